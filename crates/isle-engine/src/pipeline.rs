//! The pipeline every execution walks, whichever door it came through:
//! admit → secrets → network → validate → execute → mask → audit.
//!
//! - `admit` waits for a free place among the commands that may run at once.
//! - `secrets` decides which secrets the run gets.
//! - `network` decides what it may reach beside what its sandbox may.
//! - `validate` checks everything else that can be checked before anything is done.
//! - `execute` is the command itself; before it is sent, [`provide`] gives the run, in the sandbox that was found
//!   or made for it, exactly what the stages `secrets` and `network` decided.
//! - `mask` takes values of secrets and personal data out of what is reported. Output was masked as it came.
//! - `audit` records the end and its audit row in one transaction.
//!
//! Each stage takes what the stage before it made and nothing else can make that, so leaving one out does not
//! compile: a command is sent only with a [`Validated`], an end is published only as an [`Audited`]. The audit row
//! lists the stages that did something: a run without secrets has no `secrets` in it.

use std::sync::Arc;
use std::time::Duration;

use isle_egress::Grant;

use crate::admission::queue::{self, Admission};
use crate::context::CallContext;
use crate::engine::EngineConfig;
use crate::journal::{Actor, Journal};
use crate::network::{GrantSets, Network, NetworkConfig, RunGrants};
use crate::run::{Finish, Input, Plan, Program, Run, RunTarget, SimpleCommand, check_environment};
use crate::sandbox::Sandbox;
use crate::secrets::{SecretVariables, Secrets};
use isle_core::values::RunId;
use isle_core::{Code, Error, Result};
use isle_vault::RequestedSecrets;

/// How often an end is recorded again before it is told without a record.
const INSIST: u32 = 3;
const INSIST_PAUSE: Duration = Duration::from_millis(100);

/// The answer to a call that comes while the engine stops.
pub(crate) fn stopping() -> Error {
    Error::new(Code::DaemonUnavailable, "the daemon is stopping and takes no more commands")
        .next("call again in a moment: the next call starts it again")
}

/// The answer to a caller who no longer waits for it.
pub(crate) fn cancelled() -> Error {
    Error::new(Code::Cancelled, "the call was cancelled").next("nothing needs to be done")
}

/// One stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    Admit,
    Secrets,
    Network,
    Validate,
    Execute,
    Mask,
    Audit,
}

impl Stage {
    const ALL: [Self; 7] =
        [Self::Admit, Self::Secrets, Self::Network, Self::Validate, Self::Execute, Self::Mask, Self::Audit];

    /// As audit rows name it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Admit => "admit",
            Self::Secrets => "secrets",
            Self::Network => "network",
            Self::Validate => "validate",
            Self::Execute => "execute",
            Self::Mask => "mask",
            Self::Audit => "audit",
        }
    }
}

/// The stages that did something for a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Stages(u8);

impl Stages {
    fn with(self, stage: Stage) -> Self {
        Self(self.0 | 1 << stage as u8)
    }

    /// In the order of the pipeline.
    pub(crate) fn list(self) -> impl Iterator<Item = Stage> {
        Stage::ALL.into_iter().filter(move |stage| self.0 & 1 << *stage as u8 != 0)
    }
}

/// What accompanies a call through the stages.
#[derive(Debug)]
pub(crate) struct Passage {
    /// Held until the command has ended; `None` for a run taken over from an earlier daemon.
    _permit: Option<queue::RunPermit>,
    actor: Actor,
    stages: Stages,
}

impl Passage {
    /// A stage did something.
    fn did(mut self, stage: Stage) -> Self {
        self.stages = self.stages.with(stage);
        self
    }

    fn did_if(self, something: bool, stage: Stage) -> Self {
        if something { self.did(stage) } else { self }
    }
}

/// It has its turn.
#[derive(Debug)]
pub(crate) struct Admitted(Passage);
/// Its secrets are decided.
#[derive(Debug)]
pub(crate) struct SecretsDecided(Passage, RequestedSecrets);
/// Its network is decided, too.
#[derive(Debug)]
pub(crate) struct NetworkDecided(Passage, Decided);
/// Its arguments are good: it may be executed. There may be something to say about them.
#[derive(Debug)]
pub(crate) struct Validated {
    passage: Passage,
    decided: Decided,
    advice: Option<String>,
}
/// It was executed.
#[derive(Debug)]
pub(crate) struct Executed(Passage, Finish);
/// What it must not say is masked.
#[derive(Debug)]
pub(crate) struct Masked(Passage, Finish);
/// Its end is recorded, or was tried to be: it may be told.
#[derive(Debug)]
pub(crate) struct Audited(Finish, Option<Unrecorded>);
/// An end that could not be recorded yet.
#[derive(Debug)]
pub(crate) struct Unrecorded(Actor, Stages, Finish);

/// What the first stages decided a run gets; given to it once its sandbox is known.
#[derive(Debug, Default)]
struct Decided {
    secrets: RequestedSecrets,
    grants: Vec<Grant>,
}

/// What a run was given.
#[derive(Debug)]
pub(crate) struct Provided {
    /// What it may reach for as long as it is in progress.
    pub(crate) grants: Option<RunGrants>,
    pub(crate) secrets: SecretVariables,
    /// Variables that lead its programs to what is granted.
    pub(crate) network: Vec<(String, String)>,
}

/// Waits for a turn, in a queue of bounded length.
pub(crate) async fn admit(admission: &Admission, context: &CallContext) -> Result<Admitted> {
    let permit = admission.permit(context).await?;
    let passage = Passage { _permit: Some(permit), actor: Actor::of(context), stages: Stages::default() };
    Ok(Admitted(passage.did(Stage::Admit)))
}

/// Which secrets the run gets: those it asks for have to be there, and the caller has to be one who may
/// have them.
pub(crate) fn secrets(
    Admitted(passage): Admitted,
    secrets: &Secrets,
    context: &CallContext,
    plan: &mut Plan,
) -> Result<SecretsDecided> {
    let wishes = std::mem::take(&mut plan.secrets);
    if wishes.is_empty() {
        return Ok(SecretsDecided(passage, wishes));
    }
    secrets.check_requested_secrets(context, &wishes)?;
    Ok(SecretsDecided(passage.did(Stage::Secrets), wishes))
}

/// What the run may reach beside what its sandbox may, and which variables make its programs use that.
pub(crate) async fn network(
    SecretsDecided(passage, secrets): SecretsDecided,
    grant_sets: &GrantSets,
    config: &NetworkConfig,
    context: &CallContext,
    plan: &mut Plan,
) -> Result<NetworkDecided> {
    let wish = std::mem::take(&mut plan.network);
    if wish.is_nothing() {
        return Ok(NetworkDecided(passage, Decided { secrets, grants: Vec::new() }));
    }
    let granting = grant_sets.decide(context, &wish, config).await?;
    granting.add_to(&mut plan.env);
    let passage = passage.did_if(!granting.grants.is_empty(), Stage::Network);
    Ok(NetworkDecided(passage, Decided { secrets, grants: granting.grants }))
}

/// Checks everything that can be checked before anything is done.
pub(crate) fn validate(
    NetworkDecided(passage, decided): NetworkDecided,
    plan: &Plan,
    config: &EngineConfig,
) -> Result<Validated> {
    check_program(&plan.program)?;
    config.deny.judge(&plan.program)?;
    check_environment(&plan.env)?;
    let advice = config.secret_names.judge(plan.variables().map(|(name, _)| name.as_str()))?;
    plan.limits.check()?;
    if let Some(timeout) = plan.timeout {
        let refuse = |why: String| {
            Err(Error::new(Code::InvalidArgument, why)
                .detail("max_timeout", config.max_timeout.to_string())
                .next("choose a timeout in that range, or raise max_timeout in the configuration"))
        };
        if timeout.0.is_zero() {
            return refuse("a timeout of nothing leaves no time to run".into());
        }
        if timeout > config.max_timeout {
            return refuse(format!(
                "the timeout {timeout} is longer than the longest allowed, {}",
                config.max_timeout
            ));
        }
    }
    let sizes = match &plan.target {
        RunTarget::OneShot { files, .. } => files.iter().map(|(_, contents)| contents.len()).sum(),
        RunTarget::Named { .. } | RunTarget::Incarnation { .. } | RunTarget::KeptOneShot { .. } => 0,
    };
    let stdin = match &plan.input {
        Input::Bytes(bytes) | Input::Kept(bytes) => bytes.len(),
        Input::Null | Input::Live { .. } => 0,
    };
    if (sizes + stdin) as u64 > config.file_cap.0 {
        return Err(Error::new(
            Code::TooLarge,
            format!("standard input and files hold {} bytes, more than {}", sizes + stdin, config.file_cap),
        )
        .next("write large files with the streaming file route or `isle cp`, then use them by path"));
    }
    Ok(Validated { passage: passage.did(Stage::Validate), decided, advice })
}

fn check_program(program: &Program) -> Result<()> {
    if let Program::Commands { commands, .. } = program {
        for (number, command) in (1..).zip(commands) {
            let one = match &command.program {
                SimpleCommand::Shell(text) => Program::Shell(text.clone()),
                SimpleCommand::Argv(argv) => Program::Argv(argv.clone()),
            };
            check_program(&one).and_then(|()| check_environment(&command.env)).map_err(|error| {
                let message = format!("command {number}: {}", error.message);
                Error { message, ..error }
            })?;
        }
        return Ok(());
    }
    let (words, what): (Vec<&String>, &str) = match program {
        Program::Shell(text) => (vec![text], "command"),
        Program::Argv(argv) => (argv.iter().collect(), "argv"),
        Program::Code { args, .. } => (args.iter().collect(), "args"),
        Program::Tool { arguments, .. } => (arguments.iter().collect(), "arguments"),
        Program::Commands { .. } => (Vec::new(), "commands"),
    };
    if words.iter().any(|word| word.contains('\0')) {
        return Err(
            Error::new(Code::InvalidArgument, format!("{what} contains a NUL byte")).next("remove it")
        );
    }
    let empty = match program {
        Program::Shell(text) => text.trim().is_empty(),
        Program::Argv(argv) => argv.first().is_none_or(String::is_empty),
        Program::Code { .. } | Program::Tool { .. } | Program::Commands { .. } => false,
    };
    if empty {
        return Err(Error::new(Code::InvalidArgument, format!("{what} is empty"))
            .next("say what to run: `command` (shell text) or `argv` (a list)"));
    }
    Ok(())
}

impl Validated {
    /// A run that an earlier daemon sent through these stages. Whether it was given secrets is known still,
    /// what was granted to it alone is not.
    pub(crate) fn taken_over(actor: Actor, has_secrets: bool) -> Self {
        let passage = Passage { _permit: None, actor, stages: Stages::default() };
        let passage = passage.did(Stage::Admit).did_if(has_secrets, Stage::Secrets).did(Stage::Validate);
        Self { passage, decided: Decided::default(), advice: None }
    }

    /// Whether the run may reach something beside what its sandbox may.
    pub(crate) fn grants_more(&self) -> bool {
        !self.decided.grants.is_empty()
    }

    /// What there is to say about how it was called; once.
    pub(crate) fn take_advice(&mut self) -> Option<String> {
        self.advice.take()
    }

    /// The command has ended so.
    pub(crate) fn executed(self, finish: Finish) -> Executed {
        Executed(self.passage.did(Stage::Execute), finish)
    }

    /// The command ended without having been sent.
    pub(crate) fn not_executed(self, finish: Finish) -> Executed {
        Executed(self.passage, finish)
    }
}

/// Gives a run what the stages decided, in the sandbox it runs in. What the sandbox itself has (attached secrets,
/// grants of its own) comes along.
pub(crate) async fn provide(
    validated: &mut Validated,
    secrets: &Secrets,
    network: &Arc<Network>,
    context: &CallContext,
    sandbox: &Arc<Sandbox>,
    run: &RunId,
) -> Result<Provided> {
    let Decided { secrets: wishes, grants } = std::mem::take(&mut validated.decided);
    let grants = network.grant_for_run(sandbox, run, &grants).await?;
    let secrets = secrets.secrets_for_run(context, sandbox, run, &wishes)?;
    let network = network.network_variables(sandbox).await?;
    if !secrets.names.is_empty() {
        validated.passage.stages = validated.passage.stages.with(Stage::Secrets);
    }
    if sandbox.network.gate().is_some_and(|gate| !gate.is_empty()) {
        validated.passage.stages = validated.passage.stages.with(Stage::Network);
    }
    Ok(Provided { grants, secrets, network })
}

/// Masks values of secrets in what is told of the run. Its output was masked as it came.
pub(crate) fn mask(Executed(passage, mut finish): Executed, run: &Run) -> Masked {
    let masker = run.sandbox.masker();
    let passage = passage.did_if(masker.is_some(), Stage::Mask);
    if let Some(masker) = masker {
        let notes = finish.commands.iter_mut().filter_map(|command| command.note.as_mut());
        finish.note.iter_mut().chain(notes).for_each(|note| masker.mask_text(note));
        if let Some(error) = &mut finish.error {
            masker.mask_text(&mut error.message);
            error.details.values_mut().for_each(|detail| masker.mask_json(detail));
        }
        if let Some(masker) = masker.for_messages() {
            for violation in &mut finish.violations {
                masker.mask_text(&mut violation.what);
                masker.mask_text(&mut violation.remedy);
            }
        }
    }
    Masked(passage, finish)
}

/// Records the end and its audit row in one transaction.
pub(crate) fn audit(Masked(passage, mut finish): Masked, journal: &Journal, run: &Run) -> Audited {
    let passage = passage.did(Stage::Audit);
    let recorded = journal.finish_run(run, &finish, &passage.actor, passage.stages);
    let Err(error) = recorded else { return Audited(finish, None) };
    tracing::error!(run = %run.id, %error, "the end of a run could not be recorded; it is tried again");
    let unrecorded = Unrecorded(passage.actor, passage.stages, finish.clone());
    let note = format!("this end could not be recorded yet: {}", error.message);
    finish.note = Some(finish.note.map_or(note.clone(), |before| format!("{before}; {note}")));
    Audited(finish, Some(unrecorded))
}

impl Audited {
    /// Tries again for a moment when the end could not be recorded: what is told should be on record.
    pub(crate) async fn insist(self, journal: &Journal, run: &Run) -> Self {
        let Self(finish, Some(unrecorded)) = self else { return self };
        for _ in 0..INSIST {
            tokio::time::sleep(INSIST_PAUSE).await;
            if unrecorded.record(journal, run) {
                return Self(unrecorded.2, None);
            }
        }
        Self(finish, Some(unrecorded))
    }
}

impl Unrecorded {
    /// Tries once more; tells whether it is recorded now.
    pub(crate) fn record(&self, journal: &Journal, run: &Run) -> bool {
        let Self(actor, stages, finish) = self;
        journal.finish_run(run, finish, actor, *stages).is_ok()
    }
}

impl Audited {
    /// What may be told now, and what is still to be recorded.
    pub(crate) fn into_parts(self) -> (Finish, Option<Unrecorded>) {
        (self.0, self.1)
    }
}
