//! Ending a run from outside: a polite signal first, then the whole tree.

use std::sync::Arc;
use std::time::Duration;

use isle_wire::Reply;

use super::pump::end_tree;
use super::{Ending, Run};
use crate::agent::file_error;
use crate::context::CallContext;
use crate::run::wait::OnCancel;
use isle_core::{Code, Error, Result};

const SIGHUP: i32 = 1;
const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;
/// How long a run has between the polite signal and the end of its tree.
const GRACE: Duration = Duration::from_secs(5);
/// How long the end of a killed tree may take to be reported.
const LAST_WORDS: Duration = Duration::from_secs(15);

const SIGNALS: &[(&str, i32)] = &[
    ("HUP", 1),
    ("INT", 2),
    ("QUIT", 3),
    ("ILL", 4),
    ("TRAP", 5),
    ("ABRT", 6),
    ("BUS", 7),
    ("FPE", 8),
    ("KILL", SIGKILL),
    ("USR1", 10),
    ("SEGV", 11),
    ("USR2", 12),
    ("PIPE", 13),
    ("ALRM", 14),
    ("TERM", SIGTERM),
    ("CHLD", 17),
    ("CONT", 18),
    ("STOP", 19),
    ("TSTP", 20),
    ("XCPU", 24),
    ("XFSZ", 25),
    ("WINCH", 28),
    ("SYS", 31),
];

/// The name of a signal.
pub(crate) fn signal_name(signal: i32) -> String {
    SIGNALS
        .iter()
        .find(|(_, number)| *number == signal)
        .map_or_else(|| format!("signal {signal}"), |(name, _)| format!("SIG{name}"))
}

/// A signal by name or number.
pub(crate) fn parse_signal(text: &str) -> Result<i32> {
    let refuse = || {
        Error::new(Code::InvalidArgument, format!("{text:?} is not a signal"))
            .next("use a name such as TERM, INT or KILL, or a number from 1 to 64")
    };
    if let Ok(number) = text.parse::<i32>() {
        return if (1..=64).contains(&number) { Ok(number) } else { Err(refuse()) };
    }
    let name = text.to_ascii_uppercase();
    let name = name.strip_prefix("SIG").unwrap_or(&name);
    SIGNALS.iter().find(|(known, _)| *known == name).map(|(_, number)| *number).ok_or_else(refuse)
}

/// How to end a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KillRequest {
    /// TERM, time to react, then the whole tree.
    Politely,
    /// The whole tree at once.
    AtOnce,
    /// Only this signal, to the run's process group.
    Signal(i32),
}

impl Run {
    /// Ends it, or signals it. Returns when it has ended, or the signal was delivered.
    pub(crate) async fn kill(self: &Arc<Self>, context: &CallContext, request: KillRequest) -> Result<()> {
        if self.state().is_final() {
            return Err(already_ended(self));
        }
        match request {
            KillRequest::Signal(signal) if self.is_queued() && signal != SIGKILL => {
                return Err(Error::new(Code::Busy, format!("the run {} waits for its turn", self.id))
                    .next("signal it when it has started, or leave `signal` out to end it"));
            }
            _ if self.is_queued() => {
                self.intend(Ending::Killed);
                self.wait(context, GRACE, OnCancel::Leave).await?;
                // Its turn may have come in that moment.
                if !self.state().is_final() {
                    end_tree(self).await;
                }
            }
            KillRequest::Politely => {
                self.intend(Ending::Killed);
                // It may have ended meanwhile, or not have begun; either shows in a moment.
                if let Err(error) = self.send(SIGTERM).await
                    && error.code != Code::RunFinished
                {
                    return Err(error);
                }
                if self.terminal {
                    // What ends a shell at a terminal is not TERM but the end of the line.
                    self.send(SIGHUP).await.ok();
                }
                self.wait(context, GRACE, OnCancel::Leave).await?;
                if !self.state().is_final() {
                    end_tree(self).await;
                }
            }
            KillRequest::AtOnce | KillRequest::Signal(SIGKILL) => {
                self.intend(Ending::Killed);
                end_tree(self).await;
            }
            KillRequest::Signal(signal) => return self.send(signal).await,
        }
        self.wait(context, LAST_WORDS, OnCancel::Leave).await
    }

    async fn send(&self, signal: i32) -> Result<()> {
        match self.sandbox.agent()?.signal(self.id.as_str(), signal, false).await? {
            Reply::Failed(failure) => Err(file_error(&failure, "the run")),
            Reply::Done
            | Reply::Stat(_)
            | Reply::Listing(_)
            | Reply::Found(_)
            | Reply::Written(_)
            | Reply::Taken(_)
            | Reply::Edited(_)
            | Reply::EditRefused(_)
            | Reply::Matches(_)
            | Reply::Carried(_)
            | Reply::ArchiveRefused(_)
            | Reply::Pruned(_)
            | Reply::Stood(_)
            | Reply::Connected(_)
            | Reply::Used(_) => Ok(()),
        }
    }
}

pub(super) fn already_ended(run: &Run) -> Error {
    finished(run.id.as_str(), run.state().as_str())
}

/// The run has ended already.
pub(crate) fn finished(id: &str, state: &str) -> Error {
    Error::new(Code::RunFinished, format!("the run {id} has already ended ({state})"))
        .detail("state", state)
        .next("`logs` has its output")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_known_by_name_and_number() {
        assert_eq!(parse_signal("TERM").unwrap(), 15);
        assert_eq!(parse_signal("sigint").unwrap(), 2);
        assert_eq!(parse_signal("9").unwrap(), 9);
        for wrong in ["", "0", "65", "-1", "SIG", "NOPE"] {
            assert_eq!(parse_signal(wrong).unwrap_err().code, Code::InvalidArgument, "{wrong:?}");
        }
        assert_eq!(signal_name(11), "SIGSEGV");
        assert_eq!(signal_name(40), "signal 40");
    }
}
