//! Arguments that the operations that run something have in common, and how a plan becomes an answer.

use std::sync::Arc;

use bytes::Bytes;
use isle_api::RunLimits;
use isle_api::inputs::sandbox_or_default;
use isle_api::shapes::RunResult;
use isle_core::backend::GuaranteeStatus;
use isle_core::values::{ByteSize, GuestPath, SandboxName, Span};
use isle_core::{Code, Error, Result};

use super::{Input, NamedOptions, OnCancel, Plan, Program, RunTarget, Runs, answer_budget};
use crate::context::CallContext;
use crate::sandbox::Sandbox;

/// Exactly one of the two forms of a command.
pub(crate) fn program(command: Option<String>, argv: Option<Vec<String>>) -> Result<Program> {
    let refuse = |what: &str| {
        Err(Error::new(Code::InvalidArgument, what)
            .next("give either command (shell text) or argv (a list), such as command: \"ls -l\""))
    };
    // Some clients send every argument they know of; empty ones then mean nothing.
    let argv = argv.filter(|words| !words.is_empty());
    let command = command.filter(|text| argv.is_none() || !text.is_empty());
    match (command, argv) {
        (Some(text), None) => Ok(Program::Shell(text)),
        (None, Some(words)) => Ok(Program::Argv(words)),
        (Some(_), Some(_)) => refuse("command and argv are both given"),
        (None, None) => refuse("neither command nor argv is given"),
    }
}

/// A directory as operations name it.
pub(crate) fn directory(cwd: Option<&str>) -> Result<Option<GuestPath>> {
    cwd.map(GuestPath::parse_absolute).transpose()
}

/// Text for standard input, then its end.
pub(crate) fn text_input(text: Option<String>) -> Input {
    text.map_or(Input::Null, |text| Input::Bytes(Bytes::from(text.into_bytes())))
}

/// How long a caller waits for the end of a run, and how much output it wants to read; as configured when
/// nothing is said.
#[derive(Debug, Default)]
pub(crate) struct AnswerOptions {
    pub(crate) wait: Option<Span>,
    pub(crate) output_limit: Option<ByteSize>,
}

impl Runs {
    /// The time limit of a run: what the call says, or the default. A default longer than the longest allowed is
    /// the longest allowed.
    pub(crate) fn timeout(&self, wanted: Option<Span>) -> Option<Span> {
        wanted.or_else(|| Some(self.settings.current().timeout.min(self.config.max_timeout)))
    }

    /// The longest time limit a call may ask for.
    pub(crate) fn longest_timeout(&self) -> Span {
        self.config.max_timeout
    }

    /// Starts a run and waits for it as long as was asked.
    pub(crate) async fn answer(
        self: &Arc<Self>,
        context: &CallContext,
        plan: Plan,
        options: AnswerOptions,
    ) -> Result<RunResult> {
        let wait = options.wait.unwrap_or(self.config.wait);
        let budget = answer_budget(options.output_limit.map(|limit| (limit, context)), &self.config);
        let run = self.start(context, plan).await?;
        run.wait(context, wait.0, OnCancel::Kill).await?;
        if let Some(error) = run.finish().and_then(|finish| finish.error.clone()) {
            return Err(error);
        }
        Ok(self.snapshot_of(&run).result(budget))
    }
}

/// Refuses what this sandbox cannot keep. Processes are counted by user id, and where a sandbox has
/// none of its own that would count the whole host.
pub(super) fn check_limits_in(limits: &RunLimits, sandbox: &Sandbox) -> Result<()> {
    let shares_ids = sandbox.containment().is_some_and(|report| {
        let ids = report.guarantees.iter().find(|guarantee| guarantee.key == "private_ids");
        ids.is_some_and(|ids| ids.status == GuaranteeStatus::Missing)
    });
    if limits.processes.is_some() && shares_ids {
        return Err(Error::new(
            Code::InvalidArgument,
            "limits.processes cannot be kept here: the sandbox has no user id of its own",
        )
        .next("use tier container, or leave it out: pids of the sandbox limits all its processes"));
    }
    Ok(())
}

/// The place of a command: a named sandbox as the configuration makes it.
pub(crate) fn named_target(name: Option<SandboxName>) -> RunTarget {
    RunTarget::Named { name: sandbox_or_default(name), options: NamedOptions::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_one_form_of_a_command_is_taken() {
        assert!(matches!(program(Some("ls".into()), None), Ok(Program::Shell(_))));
        assert!(matches!(program(Some("ls".into()), Some(vec![])), Ok(Program::Shell(_))));
        assert!(matches!(program(None, Some(vec!["ls".into()])), Ok(Program::Argv(_))));
        assert!(matches!(program(Some(String::new()), Some(vec!["ls".into()])), Ok(Program::Argv(_))));
        for (command, argv) in [(Some("ls"), Some(vec!["ls".to_owned()])), (None, None), (None, Some(vec![]))]
        {
            let error = program(command.map(Into::into), argv).unwrap_err();
            assert_eq!(error.code, Code::InvalidArgument);
        }
    }
}
