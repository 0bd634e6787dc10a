//! What the agent can rely on: which file system, users, processes and network the sandbox has, and which
//! limits the agent has to watch. Built once from how the agent was started and never changed; everything
//! that differs between sandboxes with namespaces, without them, and plain child processes is decided here.

use std::fs::File;

use isle_setup::landlock::Ruleset;
use isle_setup::request::{Directories, MakeRequest};
use isle_wire::RunLimits;

use crate::guest_paths::GuestPaths;
use crate::limits_watcher::WatchedLimits;
use crate::oom_score::OomScore;
use crate::processes::ProcessFinder;

/// See the module.
#[derive(Debug)]
pub(crate) struct Mode {
    pub(crate) paths: GuestPaths,
    pub(crate) users: GuestUsers,
    pub(crate) processes: ProcessFinder,
    pub(crate) network: NetworkAccess,
    /// Landlock rules for every command, beside those of the agent.
    pub(crate) command_rules: Option<Ruleset>,
    /// Limit on the size of files, where nothing else limits disk usage.
    pub(crate) file_size_limit: Option<u64>,
    /// Limits that the agent watches because no cgroup enforces them.
    pub(crate) watched_limits: Option<WatchedLimits>,
    pub(crate) oom_score: Option<OomScore>,
}

/// Which users commands run as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GuestUsers {
    /// The agent is root of the sandbox and switches to the user of each command.
    Switched,
    /// Everything runs as the user of the agent, which has this UID on the host. There is no guest root.
    AgentOnly(u32),
}

/// How programs of the sandbox reach the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NetworkAccess {
    /// They have a network namespace of their own, in which the agent is the name server and listens for
    /// connections.
    OwnNamespace,
    /// They cannot create internet sockets; the agent answers those calls with socket pairs.
    SocketPairs,
    /// The agent has no part in it.
    None,
}

impl Mode {
    /// PID 1 of a sandbox with namespaces.
    pub(crate) fn container(request: &MakeRequest, oom_score: Option<File>) -> Self {
        Self {
            paths: GuestPaths::OwnRoot,
            users: GuestUsers::Switched,
            processes: ProcessFinder::UtsTag,
            network: NetworkAccess::OwnNamespace,
            command_rules: None,
            file_size_limit: None,
            watched_limits: WatchedLimits::of(request),
            oom_score: oom_score.and_then(OomScore::new),
        }
    }

    /// A sandbox without namespaces: confined by Landlock and seccomp among the processes of the host.
    pub(crate) fn process(
        request: &MakeRequest,
        directories: Directories,
        command_rules: Ruleset,
        scope: Option<Ruleset>,
        oom_score: Option<File>,
    ) -> Self {
        Self {
            paths: GuestPaths::Mapped(directories),
            users: GuestUsers::AgentOnly(rustix::process::geteuid().as_raw()),
            processes: scope.map_or(ProcessFinder::Descendants, ProcessFinder::Supervisor),
            network: NetworkAccess::SocketPairs,
            command_rules: Some(command_rules),
            file_size_limit: Some(request.rlimit_file_size).filter(|&limit| limit > 0),
            watched_limits: WatchedLimits::of(request),
            oom_score: oom_score.and_then(OomScore::new),
        }
    }

    /// An ordinary child process that confines nothing: commands run as its own user, in its namespaces.
    pub(crate) fn plain(directories: Directories) -> Self {
        Self {
            paths: GuestPaths::Mapped(directories),
            users: GuestUsers::AgentOnly(rustix::process::geteuid().as_raw()),
            processes: ProcessFinder::Descendants,
            network: NetworkAccess::None,
            command_rules: None,
            file_size_limit: None,
            watched_limits: None,
            oom_score: None,
        }
    }

    /// The limits of a run, never above those of the sandbox.
    pub(crate) fn run_limits(&self, wanted: RunLimits) -> RunLimits {
        let file_size = [wanted.file_size, self.file_size_limit].into_iter().flatten().min();
        RunLimits { file_size, ..wanted }
    }
}
