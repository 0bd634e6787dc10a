//! Starting a run: the first stages of the pipeline, the place, the record, and only then the
//! request to the agent.

use std::sync::Arc;

use isle_fail::Point;
use isle_store::wall_clock_ms;
use isle_wire::{
    CodeRequest, ExecRequest, GuestUser, OnHangup, Request, StdinMode, Step, StepsRequest, Stream,
};
use minicbor::bytes::ByteVec;
use serde_json::json;

use super::Run;
use super::environment::environment;
use super::plan::{Input, Patience, Place, Plan, PlannedCommand, Program};
use super::program::{KeptCode, Resolved, resolve};
use super::pump::{Caller, Job};
use crate::agent::{ExecInput, FileToWrite};
use crate::backend::{Lifetime, Limits, SandboxSpec};
use crate::context::CallContext;
use crate::engine::Inner;
use crate::error::{Code, Error, Result};
use crate::events::secret_values;
use crate::failpoint;
use crate::journal::{Actor, Audit};
use crate::pipeline;
use crate::profile::MadeBy;
use crate::sandbox::{Entered, OneShotGuard, Sandbox};
use crate::values::{GuestPath, RunId, WORKSPACE};
use crate::variables::Set;

/// A run that was started.
pub(crate) type Started = Arc<Run>;

/// A place with an open stream into it; nothing was sent yet.
struct Ready {
    sandbox: Arc<Sandbox>,
    guard: Option<Arc<OneShotGuard>>,
    resolved: Resolved,
    stream: Stream,
}

impl Inner {
    /// Starts one run. Every execution of every door begins here.
    pub(crate) async fn start_run(self: &Arc<Self>, context: &CallContext, plan: Plan) -> Result<Started> {
        let admitted = pipeline::admit(&self.admission, context).await.inspect_err(|error| {
            if error.code == Code::Busy {
                self.tell_refused(context, error);
            }
        })?;
        let provided = pipeline::secrets(admitted, self, context, &plan.secrets)?;
        let routed = pipeline::network(provided);
        let mut passage = match pipeline::validate(routed, &plan, &self.config) {
            Err(error) if error.code == Code::PolicyDenied => {
                self.note_denial(context, &plan, &error);
                return Err(error);
            }
            judged => judged?,
        };

        let id = RunId::fresh();
        let ready = self.make_ready(context, &plan, &id).await?;
        let grants = self.grant_for_run(&ready.sandbox, &plan.allow).await?;
        let secrets = self.secrets_for_run(context, &ready.sandbox, &id, &plan.secrets)?;
        let network = self.network_variables(&ready.sandbox).await?;
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
        run.keep_in(self.spools.as_ref());
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
        let (input, caller) = match (plan.input, plan.patience) {
            (input, Patience::GoOn) => (exec_input(input), None),
            (input, Patience::EndWithCaller(events)) => {
                (exec_input(input), Some(Caller { events, cancelled: context.cancelled.clone() }))
            }
        };
        let entered = plan.lock.then(|| run.sandbox.lane.enter());
        if matches!(entered, Some(Entered::Later(_))) {
            run.queue();
        }
        // From the record to the task that owns the run there is no await: nothing can fall between.
        self.journal.begin_run(&run, &Actor::of(context))?;
        isle_fail::pass(Point::ExecRecorded);
        run.sandbox.run_begins(run.started_at_ms);
        run.sandbox.lease.count_run();
        self.runs.add(Arc::clone(&run));
        self.tell_secrets(&run, &secrets.names);
        let job = Job {
            inner: Arc::clone(self),
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
            secrets: secrets.held,
            entered,
        };
        self.tasks.spawn(job.run());
        Ok(run)
    }

    /// Finds or makes the place. A named sandbox that turns out to be dead is built anew once:
    /// nothing of this run has been sent, so nothing can run twice.
    async fn make_ready(self: &Arc<Self>, context: &CallContext, plan: &Plan, id: &RunId) -> Result<Ready> {
        match &plan.place {
            Place::Named { name, asked } => {
                let sandbox = self.ensure_as(context, name, &asked.settings).await?;
                self.awake(context, &sandbox, asked.resume).await?;
                match open_in(&sandbox, plan, id).await {
                    Err(error) if error.code == Code::SandboxFailed => {
                        let sandbox = self.ensure_as(context, name, &asked.settings).await?;
                        let (resolved, stream) = open_in(&sandbox, plan, id).await?;
                        Ok(Ready { sandbox, guard: None, resolved, stream })
                    }
                    other => {
                        let (resolved, stream) = other?;
                        Ok(Ready { sandbox, guard: None, resolved, stream })
                    }
                }
            }
            Place::OneShot { settings, files, keep } => {
                let spec = settings.spec(&self.current(), None)?;
                self.check_host(context, settings)?;
                let made_by = settings.made_by(&self.config)?;
                let fixed_etc = keep.is_none() && self.leaves_etc_alone(context, plan, made_by.as_ref());
                let spec = SandboxSpec { fixed_etc, ..spec };
                let guard = Arc::new(self.make_one_shot(&context.namespace, spec, made_by).await?);
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
            Place::Exactly { sandbox } => {
                let sandbox = Arc::clone(sandbox);
                self.awake(context, &sandbox, false).await?;
                let (resolved, stream) = open_in(&sandbox, plan, id).await?;
                Ok(Ready { sandbox, guard: None, resolved, stream })
            }
            Place::Held { guard } => {
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
            && plan.allow.is_empty()
            && profile.is_none_or(|profile| profile.allow.is_empty())
            && self.grants_of_namespace(&context.namespace).is_empty()
    }

    /// Puts on record that a rule forbade a run. It was forbidden either way.
    fn note_denial(&self, context: &CallContext, plan: &Plan, error: &Error) {
        let name = match &plan.place {
            Place::Named { name, .. } => Some(name),
            Place::Exactly { sandbox } => Some(&sandbox.name),
            Place::OneShot { .. } | Place::Held { .. } => None,
        };
        let rule = error.details.get("pattern").or_else(|| error.details.get("names"));
        let mut command = plan.display();
        if let Some(masker) = self.masker_of(name.map(|name| context.address(name)).as_ref()) {
            masker.mask_text(&mut command);
        }
        let detail = json!({ "kind": plan.kind.as_str(), "command": command, "rule": rule });
        // It logs by itself what cannot be written.
        self.journal.audit(&Audit::denied(context, name, detail)).ok();
        self.tell_denied(context, name, plan, error);
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
        let on_hangup = match (&plan.patience, run.sandbox.spec.lifetime) {
            (Patience::GoOn, Lifetime::Named) => OnHangup::Continue,
            (Patience::GoOn, Lifetime::OneShot) | (Patience::EndWithCaller(_), _) => OnHangup::Kill,
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

async fn open_in(sandbox: &Sandbox, plan: &Plan, id: &RunId) -> Result<(Resolved, Stream)> {
    plan.limits.check_in(sandbox)?;
    plan.check_agent(sandbox)?;
    let resolved = resolve(sandbox, plan, id).await?;
    let stream = sandbox.agent()?.open().await?;
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
