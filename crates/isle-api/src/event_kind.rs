//! The kinds of events. One is listed here only when something fires it.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use isle_core::{Code, Error};

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum EventKind {
    /// A command was sent to its sandbox.
    RunStarted,
    /// It ended with exit code 0.
    RunCompleted,
    /// It ended otherwise, or could not be started.
    RunFailed,
    /// Its time was up.
    RunTimedOut,
    /// It was ended on request, or with its sandbox.
    RunKilled,
    /// Its caller no longer wanted it.
    RunCancelled,
    /// Nobody saw its end.
    RunLost,
    /// The kernel ended it for lack of memory.
    RunOutOfMemory,
    /// A rule forbade it.
    RunDenied,
    /// A named run began.
    JobStarted,
    /// A named run ended.
    JobEnded,
    /// A limit was met.
    ResourceExceeded,
    /// Work was refused because too much waits already.
    QueueBackPressure,
    /// A sandbox was made.
    SandboxCreated,
    /// It was made anew, its workspace kept.
    SandboxReset,
    /// It was removed.
    SandboxDestroyed,
    /// It died.
    SandboxLost,
    /// Its agent does not answer.
    SandboxUnresponsive,
    /// Its agent answers again.
    SandboxResponsive,
    /// Its time was up, or nobody used it for long enough, and it was removed.
    SandboxExpired,
    /// It got more time.
    SandboxExtended,
    /// Everything in it stands still.
    SandboxPaused,
    /// Everything in it goes on.
    SandboxResumed,
    /// A sandbox made another one.
    ChildSpawned,
    /// That one was removed, by request or with its parent.
    ChildDestroyed,
    /// Packages were installed.
    PackageInstalled,
    /// Somebody works in a sandbox interactively.
    SessionOpened,
    /// No longer.
    SessionClosed,
    /// A directory of a sandbox follows one of the host.
    SyncStarted,
    /// No longer.
    SyncStopped,
    /// A sandbox may reach more than before.
    NetworkGranted,
    /// A sandbox was denied something of the network for the first time.
    NetworkDenied,
    /// What a sandbox was denied waits for a person to grant it.
    NetworkRequested,
    /// A person has granted or denied it.
    NetworkAnswered,
    /// A run was given secrets, as placeholders or as values.
    SecretGiven,
    /// The placeholder of a secret was sent where the secret does not go.
    SecretStrayed,
    /// The value of a secret was put into a request.
    SecretSwapped,
    /// A server sent the value of a secret back, and it was masked.
    SecretReflected,
}

impl EventKind {
    /// All of them, in the order they are shown.
    pub const ALL: [Self; 38] = [
        Self::RunStarted,
        Self::RunCompleted,
        Self::RunFailed,
        Self::RunTimedOut,
        Self::RunKilled,
        Self::RunCancelled,
        Self::RunLost,
        Self::RunOutOfMemory,
        Self::RunDenied,
        Self::JobStarted,
        Self::JobEnded,
        Self::ResourceExceeded,
        Self::QueueBackPressure,
        Self::SandboxCreated,
        Self::SandboxReset,
        Self::SandboxDestroyed,
        Self::SandboxLost,
        Self::SandboxUnresponsive,
        Self::SandboxResponsive,
        Self::SandboxExpired,
        Self::SandboxExtended,
        Self::SandboxPaused,
        Self::SandboxResumed,
        Self::ChildSpawned,
        Self::ChildDestroyed,
        Self::PackageInstalled,
        Self::SessionOpened,
        Self::SessionClosed,
        Self::SyncStarted,
        Self::SyncStopped,
        Self::NetworkGranted,
        Self::NetworkDenied,
        Self::NetworkRequested,
        Self::NetworkAnswered,
        Self::SecretGiven,
        Self::SecretStrayed,
        Self::SecretSwapped,
        Self::SecretReflected,
    ];

    /// As text, the same as in JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RunStarted => "run_started",
            Self::RunCompleted => "run_completed",
            Self::RunFailed => "run_failed",
            Self::RunTimedOut => "run_timed_out",
            Self::RunKilled => "run_killed",
            Self::RunCancelled => "run_cancelled",
            Self::RunLost => "run_lost",
            Self::RunOutOfMemory => "run_out_of_memory",
            Self::RunDenied => "run_denied",
            Self::JobStarted => "job_started",
            Self::JobEnded => "job_ended",
            Self::ResourceExceeded => "resource_exceeded",
            Self::QueueBackPressure => "queue_back_pressure",
            Self::SandboxCreated => "sandbox_created",
            Self::SandboxReset => "sandbox_reset",
            Self::SandboxDestroyed => "sandbox_destroyed",
            Self::SandboxLost => "sandbox_lost",
            Self::SandboxUnresponsive => "sandbox_unresponsive",
            Self::SandboxResponsive => "sandbox_responsive",
            Self::SandboxExpired => "sandbox_expired",
            Self::SandboxExtended => "sandbox_extended",
            Self::SandboxPaused => "sandbox_paused",
            Self::SandboxResumed => "sandbox_resumed",
            Self::ChildSpawned => "child_spawned",
            Self::ChildDestroyed => "child_destroyed",
            Self::PackageInstalled => "package_installed",
            Self::SessionOpened => "session_opened",
            Self::SessionClosed => "session_closed",
            Self::SyncStarted => "sync_started",
            Self::SyncStopped => "sync_stopped",
            Self::NetworkGranted => "network_granted",
            Self::NetworkDenied => "network_denied",
            Self::NetworkRequested => "network_requested",
            Self::NetworkAnswered => "network_answered",
            Self::SecretGiven => "secret_given",
            Self::SecretStrayed => "secret_strayed",
            Self::SecretSwapped => "secret_swapped",
            Self::SecretReflected => "secret_reflected",
        }
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

impl FromStr for EventKind {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text).ok_or_else(|| {
            Error::new(Code::InvalidArgument, format!("there is no kind of event {text:?}"))
                .detail("kinds", Self::ALL.map(Self::as_str))
                .next("choose from those listed in `details`")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_one_name_at_every_door() {
        for kind in EventKind::ALL {
            assert_eq!(kind.as_str().parse::<EventKind>().unwrap(), kind);
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.as_str());
        }
        assert_eq!("run_exploded".parse::<EventKind>().unwrap_err().code, Code::InvalidArgument);
    }
}
