//! Starting a run: the first stages of the pipeline, the place, the record, and only then the
//! request to the agent.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use isle_core::clock::wall_clock_ms;
use isle_fail::Point;
use isle_wire::{CodeRequest, ExecRequest, GuestUser, OnHangup, Request, StdinMode, Step, StepsRequest};
use minicbor::bytes::ByteVec;
use serde_json::json;

use super::environment::environment;
use super::plan::{Input, OnDisconnect, Plan, PlannedCommand, Program, RunTarget};
use super::program::{KeptCode, Resolved, resolve};
use super::pump::{Caller, Pump};
use super::{Run, Runs};
use crate::agent::{AgentStream, ExecInput, FileToWrite, Purpose, too_long};
use crate::context::CallContext;
use crate::events::secret_values;
use crate::failpoint;
use crate::journal::{Actor, Audit};
use crate::pipeline::{self, Provided};
use crate::profile::MadeBy;
use crate::sandbox::{LockRequest, OneShotGuard, Sandbox};
use crate::variables::Set;
use isle_core::backend::{Lifetime, Limits, SandboxSpec};
use isle_core::values::{GuestPath, RunId, WORKSPACE};
use isle_core::{Code, Error, Result};

/// A run that was started.
pub(crate) type Started = Arc<Run>;

/// A place with an open stream into it; nothing was sent yet.
struct Ready {
    sandbox: Arc<Sandbox>,
    guard: Option<Arc<OneShotGuard>>,
    resolved: Resolved,
    stream: AgentStream,
}

/// Refuses what does not fit into one message to the agent, before there is a record of a run.
fn refuse_long(lengths: impl Iterator<Item = usize>) -> Result<()> {
    let whole = lengths.fold(0usize, usize::saturating_add);
    if whole > isle_wire::MAX_FRAME { Err(too_long(whole)) } else { Ok(()) }
}

impl Runs {
    /// Starts one run. Every execution of every door begins here.
    pub(crate) async fn start(self: &Arc<Self>, context: &CallContext, mut plan: Plan) -> Result<Started> {
        let admitted = pipeline::admit(&self.admission, context).await.inspect_err(|error| {
            if error.code == Code::Busy {
                self.notifier.queue_refused(context, error);
            }
        })?;
        let decided = pipeline::secrets(admitted, &self.secrets, context, &mut plan)?;
        let network = &self.config.network;
        let decided = pipeline::network(decided, &self.grant_sets, network, context, &mut plan).await?;
        let mut passage = match pipeline::validate(decided, &plan, &self.config) {
            Err(error) if error.code == Code::PolicyDenied => {
                self.note_denial(context, &plan, &error);
                return Err(error);
            }
            judged => judged?,
        };

        refuse_long(plan.words().map(str::len))?;
        let id = RunId::fresh();
        let ready = self.make_ready(context, &plan, &id, passage.grants_more()).await?;
        let Provided { grants, secrets, network } =
            pipeline::provide(&mut passage, &self.secrets, &self.network, context, &ready.sandbox, &id)
                .await?;
        let mut command = plan.display();
        let mut commands = plan.command_texts();
        if let Some(masker) = ready.sandbox.masker() {
            masker.mask_text(&mut command);
            commands.iter_mut().for_each(|one| masker.mask_text(&mut one.command));
        }
        let mut run = Run::new(
            id,
            Arc::clone(&ready.sandbox),
            plan.kind,
            command,
            wall_clock_ms(),
            plan.timeout,
            self.config.output_cap,
        );
        run.limits = plan.limits;
        run.advice = match (passage.take_advice(), secrets.note) {
            (Some(advice), Some(note)) => Some(format!("{advice}; {note}")),
            (advice, note) => advice.or(note),
        };
        run.job.clone_from(&plan.job);
        run.terminal = plan.terminal.is_some();
        run.locked = plan.lock;
        run.commands = commands;
        run.keep_in(self.job_output.as_ref());
        run.awaited_by(context);
        run.reach = Some(ready.sandbox.network.reach());
        let variables = match &plan.program {
            Program::Tool { variables: false, .. } => Set::default(),
            _ => self.variables.of(&run.sandbox.address()),
        };
        run.secrets =
            secret_values(variables.iter().chain(plan.variables().map(|(name, value)| (name, value))));
        let run = Arc::new(run);
        // The profile's first: what was set later is stronger.
        let given = match (&plan.program, &run.sandbox.profile) {
            (Program::Tool { variables: false, .. }, _) | (_, None) => Vec::new(),
            (_, Some(profile)) => profile.env.clone().into_iter().collect(),
        };
        // What is said about the network is the weakest: who sets such a variable means it.
        let own = network
            .into_iter()
            .chain(given)
            .chain(variables.iter().map(|(name, value)| (name.clone(), value.clone())));
        let attached = match &plan.program {
            Program::Tool { variables: false, .. } => Vec::new(),
            _ => secrets.attached,
        };
        let asked: Vec<(String, String)> = plan.env.iter().cloned().chain(secrets.own).collect();
        let env: Vec<(String, String)> = own.chain(attached).chain(asked.iter().cloned()).collect();
        let request = self.request(&run, &plan, &env, ready.resolved.argv);
        run.set_context(ready.resolved.code.as_ref().and_then(|code| code.context.clone()));
        let request = match (ready.resolved.code, &plan.program) {
            (Some(code), _) => {
                // A context that is there already has its variables, and may have changed them.
                let given = if code.context.is_some() { &asked } else { &env };
                let limits = &run.sandbox.spec.limits;
                Request::Code(code_request(*request, given, plan.cwd.is_some(), code, limits))
            }
            (None, Program::Commands { commands, continue_on_error }) => {
                let steps = steps(&run, &plan, &env, commands, ready.resolved.steps);
                Request::Steps(Box::new(StepsRequest {
                    exec: *request,
                    steps,
                    continue_on_error: *continue_on_error,
                }))
            }
            (None, Program::Shell(_) | Program::Argv(_) | Program::Code { .. } | Program::Tool { .. }) => {
                Request::Exec(request)
            }
        };
        // With what the sandbox, the profile and the network add it may not fit.
        refuse_long(std::iter::once(isle_wire::Frame::message(&request).len()))?;
        let (input, caller) = match (plan.input, plan.on_disconnect) {
            (input, OnDisconnect::Continue) => (exec_input(input), None),
            (input, OnDisconnect::Kill(events)) => (
                exec_input(input),
                Some(Caller { events, cancelled: context.cancelled.clone(), lags: AtomicBool::new(false) }),
            ),
        };
        let entered = plan.lock.then(|| run.sandbox.lock_queue.enter());
        if matches!(entered, Some(LockRequest::Queued(_))) {
            run.queue();
        }
        // From the record to the task that owns the run there is no await: nothing can fall between.
        self.journal.begin_run(&run, &Actor::of(context))?;
        isle_fail::pass(Point::ExecRecorded);
        run.sandbox.run_begins(run.started_at_ms);
        run.sandbox.lease.count_run();
        self.live.add(Arc::clone(&run));
        self.notifier.secrets_given(&run, &secrets.names);
        let pump = Pump {
            runs: Arc::clone(self),
            run: Arc::clone(&run),
            passage,
            stream: ready.stream,
            request: Some(request),
            input,
            caller,
            named: ready.resolved.named,
            language: ready.resolved.language,
            remove_after: ready.resolved.remove_after.map(|path| (path, plan.user)),
            guard: ready.guard,
            grants,
            secrets: secrets.guard,
            entered,
        };
        self.tasks.spawn(pump.run());
        Ok(run)
    }

    /// Finds or makes the place. A named sandbox that turns out to be dead is built anew once:
    /// nothing of this run has been sent, so nothing can run twice.
    async fn make_ready(
        self: &Arc<Self>,
        context: &CallContext,
        plan: &Plan,
        id: &RunId,
        reaches: bool,
    ) -> Result<Ready> {
        match &plan.target {
            RunTarget::Named { name, options } => {
                let sandbox = self.sandboxes.ensure_as(context, name, &options.settings).await?;
                self.sandboxes.awake(context, &sandbox, options.resume).await?;
                match open_in(&sandbox, plan, id).await {
                    Err(error) if error.code == Code::SandboxFailed => {
                        let sandbox = self.sandboxes.ensure_as(context, name, &options.settings).await?;
                        let (resolved, stream) = open_in(&sandbox, plan, id).await?;
                        Ok(Ready { sandbox, guard: None, resolved, stream })
                    }
                    other => {
                        let (resolved, stream) = other?;
                        Ok(Ready { sandbox, guard: None, resolved, stream })
                    }
                }
            }
            RunTarget::OneShot { settings, files, keep } => {
                let chosen = settings.chosen(context, &self.config)?;
                let spec = chosen.spec(&self.settings.current(), None)?;
                self.sandboxes.check_host(context, settings)?;
                let made_by = chosen.made_by();
                let fixed_etc =
                    keep.is_none() && !reaches && self.leaves_etc_alone(context, plan, made_by.as_ref());
                let spec = SandboxSpec { fixed_etc, ..spec };
                let guard = Arc::new(self.sandboxes.make_one_shot(&context.namespace, spec, made_by).await?);
                if let Some(keep) = keep {
                    // Its maker is the only one who fills it.
                    keep.set(Arc::clone(&guard)).ok();
                }
                let sandbox = Arc::clone(guard.sandbox());
                if !files.is_empty() {
                    sandbox.agent()?.write_files(plan.user, files.iter().map(to_write).collect()).await?;
                    failpoint(Point::OneShotFilled)?;
                }
                let (resolved, stream) = open_in(&sandbox, plan, id).await?;
                Ok(Ready { sandbox, guard: Some(guard), resolved, stream })
            }
            RunTarget::Incarnation { sandbox } => {
                let sandbox = Arc::clone(sandbox);
                self.sandboxes.awake(context, &sandbox, false).await?;
                let (resolved, stream) = open_in(&sandbox, plan, id).await?;
                Ok(Ready { sandbox, guard: None, resolved, stream })
            }
            RunTarget::KeptOneShot { guard } => {
                let sandbox = Arc::clone(guard.sandbox());
                let (resolved, stream) = open_in(&sandbox, plan, id).await?;
                Ok(Ready { sandbox, guard: Some(Arc::clone(guard)), resolved, stream })
            }
        }
    }

    /// Whether nothing of a run could change `/etc`: it is not root, and may reach nothing, so that no
    /// authority has to be placed there.
    fn leaves_etc_alone(&self, context: &CallContext, plan: &Plan, profile: Option<&MadeBy>) -> bool {
        plan.user != GuestUser::Root
            && profile.is_none_or(|profile| profile.allow.is_empty())
            && self.network.grants_of_namespace(&context.namespace).is_empty()
    }

    /// Puts on record that a rule forbade a run. It was forbidden either way.
    fn note_denial(&self, context: &CallContext, plan: &Plan, error: &Error) {
        let name = match &plan.target {
            RunTarget::Named { name, .. } => Some(name),
            RunTarget::Incarnation { sandbox } => Some(&sandbox.name),
            RunTarget::OneShot { .. } | RunTarget::KeptOneShot { .. } => None,
        };
        let rule = error.details.get("pattern").or_else(|| error.details.get("names"));
        let mut command = plan.display();
        if let Some(masker) = self.notifier.masker_of(name.map(|name| context.address(name)).as_ref()) {
            masker.mask_text(&mut command);
        }
        let detail = json!({ "kind": plan.kind.as_str(), "command": command, "rule": rule });
        // It logs by itself what cannot be written.
        self.journal.audit(&Audit::denied(context, name, detail)).ok();
        self.notifier.run_denied(context, name, plan, error);
    }

    fn request(
        &self,
        run: &Run,
        plan: &Plan,
        env: &[(String, String)],
        argv: Vec<ByteVec>,
    ) -> Box<ExecRequest> {
        let (cwd, make_cwd) = directory(plan.cwd.as_ref());
        let stdin = match &plan.input {
            Input::Null | Input::Live { stdin: false, .. } => StdinMode::Null,
            Input::Bytes(_) | Input::Kept(_) | Input::Live { stdin: true, .. } => StdinMode::Stream,
        };
        let on_hangup = match (&plan.on_disconnect, run.sandbox.spec.lifetime) {
            (OnDisconnect::Continue, Lifetime::Named) => OnHangup::Continue,
            (OnDisconnect::Continue, Lifetime::OneShot) | (OnDisconnect::Kill(_), _) => OnHangup::Kill,
        };
        Box::new(ExecRequest {
            run: run.id.as_str().to_owned(),
            argv,
            env: environment(
                run.sandbox_name(),
                run.sandbox.spec.control,
                plan.user,
                plan.terminal.is_some(),
                env,
            ),
            cwd,
            make_cwd,
            user: plan.user,
            stdin,
            terminal: plan.terminal,
            on_hangup,
            retain: self.config.output_cap.0,
            limits: plan.limits.to_wire(),
            forget: run.sandbox.take_forgettable(),
            keep_input: matches!(plan.input, Input::Kept(_)),
            timeout_ms: plan.timeout.map(|timeout| u64::try_from(timeout.0.as_millis()).unwrap_or(u64::MAX)),
        })
    }
}

/// A working directory as the agent takes it, and whether it is made when it is missing.
fn directory(cwd: Option<&GuestPath>) -> (ByteVec, bool) {
    let cwd = cwd.map_or_else(|| WORKSPACE.to_owned(), GuestPath::absolute);
    let below_workspace =
        cwd.strip_prefix(WORKSPACE).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    (cwd.into_bytes().into(), below_workspace)
}

/// Several commands as the agent takes them.
fn steps(
    run: &Run,
    plan: &Plan,
    env: &[(String, String)],
    commands: &[PlannedCommand],
    argvs: Vec<Vec<ByteVec>>,
) -> Vec<Step> {
    let step = |(command, argv): (&PlannedCommand, Vec<ByteVec>)| {
        let (cwd, make_cwd) = directory(command.cwd.as_ref().or(plan.cwd.as_ref()));
        let extra = [env, &command.env].concat();
        let env = environment(run.sandbox_name(), run.sandbox.spec.control, plan.user, false, &extra);
        Step { argv, env, cwd, make_cwd, may_fail: command.allow_failure }
    };
    commands.iter().zip(argvs).map(step).collect()
}

/// Memory below which nothing is kept ready.
const ROOM_TO_KEEP: u64 = 256 * 1024 * 1024;

fn code_request(
    exec: ExecRequest,
    given: &[(String, String)],
    given_cwd: bool,
    code: KeptCode,
    limits: &Limits,
) -> Box<CodeRequest> {
    Box::new(CodeRequest {
        exec,
        language: code.language,
        source: code.source,
        args: code.args,
        context: code.context.map(|context| context.to_string()),
        given_env: given.iter().map(|(name, value)| format!("{name}={value}").into_bytes().into()).collect(),
        given_cwd,
        keep_warm: limits.memory.0 >= ROOM_TO_KEEP,
    })
}

async fn open_in(sandbox: &Sandbox, plan: &Plan, id: &RunId) -> Result<(Resolved, AgentStream)> {
    super::check_limits_in(&plan.limits, sandbox)?;
    let resolved = resolve(sandbox, plan, id).await?;
    let stream = sandbox.agent()?.open(Purpose::Run).await?;
    Ok((resolved, stream))
}

fn to_write((path, contents): &(GuestPath, bytes::Bytes)) -> FileToWrite {
    // Placed files are often scripts; who may read them inside a sandbox of one user matters little.
    FileToWrite::whole(path.clone(), Some(0o755), false, contents.clone())
}

fn exec_input(input: Input) -> ExecInput {
    match input {
        Input::Null => ExecInput::Null,
        Input::Bytes(bytes) => ExecInput::Bytes(bytes),
        Input::Kept(bytes) => ExecInput::Kept(bytes),
        Input::Live { signals, stdin } => ExecInput::Live { signals, held: Vec::new(), stdin },
    }
}
