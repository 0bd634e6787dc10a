//! The pipeline every execution walks, whichever door it came through:
//! admit → secrets → network → validate → execute → sign → mask → audit.
//!
//! Each stage takes what the stage before it made and nothing else can make that, so leaving one
//! out does not compile: a command is sent only with a [`Validated`], an end is published only as
//! an [`Audited`]. The stages a run passed are in its audit row.

use std::time::Duration;

use crate::context::CallContext;
use crate::engine::{EngineConfig, Inner};
use crate::error::{Code, Error, Result};
use crate::journal::{Actor, Journal};
use crate::queue::{self, Admission};
use crate::run::{Finish, Input, Place, Plan, Program, Run, Simple, check_environment};
use crate::vault::Wishes;

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
    Sign,
    Mask,
    Audit,
}

impl Stage {
    /// As audit rows name it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Admit => "admit",
            Self::Secrets => "secrets",
            Self::Network => "network",
            Self::Validate => "validate",
            Self::Execute => "execute",
            Self::Sign => "sign",
            Self::Mask => "mask",
            Self::Audit => "audit",
        }
    }
}

/// What accompanies a call through the stages.
#[derive(Debug)]
pub(crate) struct Passage {
    /// Held until the command has ended; `None` for a run taken over from an earlier daemon.
    _place: Option<queue::Place>,
    actor: Actor,
    stages: Vec<Stage>,
}

impl Passage {
    fn pass(mut self, stage: Stage) -> Self {
        self.stages.push(stage);
        self
    }
}

/// It has its turn.
#[derive(Debug)]
pub(crate) struct Admitted(Passage);
/// Its secrets are known.
#[derive(Debug)]
pub(crate) struct Provided(Passage);
/// Its network is decided.
#[derive(Debug)]
pub(crate) struct Routed(Passage);
/// Its arguments are good: it may be executed. There may be something to say about them.
#[derive(Debug)]
pub(crate) struct Validated(Passage, Option<String>);
/// It was executed.
#[derive(Debug)]
pub(crate) struct Executed(Passage, Finish);
/// What it made is signed.
#[derive(Debug)]
pub(crate) struct Signed(Passage, Finish);
/// What it must not say is masked.
#[derive(Debug)]
pub(crate) struct Masked(Passage, Finish);
/// Its end is recorded, or was tried to be: it may be told.
#[derive(Debug)]
pub(crate) struct Audited(Finish, Option<Unrecorded>);
/// An end that could not be recorded yet.
#[derive(Debug)]
pub(crate) struct Unrecorded(Actor, Vec<Stage>, Finish);

/// Waits for a turn, in a line of bounded length.
pub(crate) async fn admit(admission: &Admission, context: &CallContext) -> Result<Admitted> {
    let place = admission.place(context).await?;
    let passage = Passage { _place: Some(place), actor: Actor::of(context), stages: Vec::with_capacity(8) };
    Ok(Admitted(passage.pass(Stage::Admit)))
}

/// Which secrets the run gets: those it asks for have to be there, and the caller has to be one who may
/// have them.
pub(crate) fn secrets(
    Admitted(passage): Admitted,
    inner: &Inner,
    context: &CallContext,
    wishes: &Wishes,
) -> Result<Provided> {
    inner.check_wishes(context, wishes)?;
    Ok(Provided(passage.pass(Stage::Secrets)))
}

/// What the run may reach: what its sandbox was granted, and what was granted to the run alone. Who asked for
/// more than they may was refused when the call was read; the grants are given once the sandbox is known.
pub(crate) fn network(Provided(passage): Provided) -> Routed {
    Routed(passage.pass(Stage::Network))
}

/// Checks everything that can be checked before anything is done.
pub(crate) fn validate(Routed(passage): Routed, plan: &Plan, config: &EngineConfig) -> Result<Validated> {
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
    let sizes = match &plan.place {
        Place::OneShot { files, .. } => files.iter().map(|(_, contents)| contents.len()).sum(),
        Place::Named { .. } | Place::Exactly { .. } | Place::Held { .. } => 0,
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
    Ok(Validated(passage.pass(Stage::Validate), advice))
}

fn check_program(program: &Program) -> Result<()> {
    if let Program::Commands { commands, .. } = program {
        for (number, command) in (1..).zip(commands) {
            let one = match &command.program {
                Simple::Shell(text) => Program::Shell(text.clone()),
                Simple::Argv(argv) => Program::Argv(argv.clone()),
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
    /// A run an earlier daemon sent through these stages; it goes on where it is.
    pub(crate) fn taken_over(actor: Actor) -> Self {
        let stages = vec![Stage::Admit, Stage::Secrets, Stage::Network, Stage::Validate];
        Self(Passage { _place: None, actor, stages }, None)
    }

    /// What there is to say about how it was called; once.
    pub(crate) fn take_advice(&mut self) -> Option<String> {
        self.1.take()
    }

    /// The command has ended so.
    pub(crate) fn executed(self, finish: Finish) -> Executed {
        Executed(self.0.pass(Stage::Execute), finish)
    }
}

/// Signs what the run made: nothing is collected from a sandbox yet, so there is nothing to sign.
pub(crate) fn sign(Executed(passage, finish): Executed) -> Signed {
    Signed(passage.pass(Stage::Sign), finish)
}

/// Masks values of secrets in what is told of the run. Its output was masked as it came.
pub(crate) fn mask(Signed(passage, mut finish): Signed, run: &Run) -> Masked {
    if let Some(masker) = run.sandbox.masker() {
        let notes = finish.commands.iter_mut().filter_map(|command| command.note.as_mut());
        finish.note.iter_mut().chain(notes).for_each(|note| masker.mask_text(note));
        if let Some(error) = &mut finish.error {
            masker.mask_text(&mut error.message);
            error.details.values_mut().for_each(|detail| masker.mask_json(detail));
        }
        if let Some(masker) = masker.for_words() {
            for violation in &mut finish.violations {
                masker.mask_text(&mut violation.what);
                masker.mask_text(&mut violation.remedy);
            }
        }
    }
    Masked(passage.pass(Stage::Mask), finish)
}

/// Records the end and its audit row in one transaction.
pub(crate) fn audit(Masked(passage, mut finish): Masked, journal: &Journal, run: &Run) -> Audited {
    let passage = passage.pass(Stage::Audit);
    let recorded = journal.finish_run(run, &finish, &passage.actor, &passage.stages);
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
        journal.finish_run(run, finish, actor, stages).is_ok()
    }
}

impl Audited {
    /// What may be told now, and what is still to be recorded.
    pub(crate) fn into_parts(self) -> (Finish, Option<Unrecorded>) {
        (self.0, self.1)
    }
}
