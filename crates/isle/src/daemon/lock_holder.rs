//! The process that holds the lock of the state directory: waiting for it, and the error when it does not
//! respond.

use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use isle_client::{ClientError, Result};
use isle_core::{Code, Error, SocketPath};
use isle_store::{Instance, LOCK_FILE, LockHolder, LockState, Phase};

use super::serve::store_error;
use crate::paths::{DaemonAddress, Paths};

/// How long a command waits for a daemon to start or to shut down.
const MAX_WAIT: Duration = Duration::from_secs(60);
/// How long a command waits for a running daemon to accept a connection.
const MAX_RESPONSE_WAIT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Bounded wait for another process.
#[derive(Debug)]
pub(crate) struct WaitLimit {
    started: Instant,
    limit: Duration,
}

impl WaitLimit {
    pub(crate) fn new() -> Self {
        // Tests can lower the limit in debug builds.
        let text = if cfg!(debug_assertions) { std::env::var("ISLE_TEST_PATIENCE_MS").ok() } else { None };
        let limit = text.and_then(|text| text.parse().ok()).map(Duration::from_millis);
        Self { started: Instant::now(), limit: limit.unwrap_or(MAX_WAIT) }
    }

    pub(crate) fn is_left(&self) -> bool {
        self.started.elapsed() < self.limit
    }

    /// The same for a daemon whose record says that it is running.
    pub(crate) fn is_left_for_response(&self) -> bool {
        self.started.elapsed() < self.limit.min(MAX_RESPONSE_WAIT)
    }

    pub(crate) fn pause(&self) {
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Result of looking for a daemon.
#[derive(Debug)]
pub(super) enum Found {
    /// A daemon that accepts connections.
    Running(DaemonAddress),
    /// No daemon.
    None,
}

/// Looks for the daemon of a state directory; waits for one that is starting or shutting down.
pub(super) fn find_daemon(paths: &Paths, wait_limit: &WaitLimit) -> Result<Found> {
    loop {
        let held = LockState::read(&paths.state_dir).map_err(|error| store_error(paths, error))?;
        match held {
            LockState::Free => return Ok(Found::None),
            LockState::HeldBy(holder) if holder.phase == Phase::Running => match connect(paths, &holder) {
                Some(address) => return Ok(Found::Running(address)),
                None if wait_limit.is_left_for_response() => wait_limit.pause(),
                None => return Err(held_message(paths, &holder).into()),
            },
            LockState::HeldBy(_) if wait_limit.is_left() => wait_limit.pause(),
            LockState::HeldBy(holder) => return Err(held_message(paths, &holder).into()),
            // A process that has just taken the lock writes its record shortly after.
            LockState::Unknown { pid: None } if wait_limit.is_left_for_response() => wait_limit.pause(),
            LockState::Unknown { pid: None } => return Err(unknown_holder(paths).into()),
            LockState::Unknown { pid } => {
                let state_dir = paths.state_dir.display();
                return Err(Error::new(
                    Code::VersionMismatch,
                    format!("a daemon of an earlier version is running for {state_dir}"),
                )
                .detail("pid", pid)
                .next("run `isle restart` to start a daemon of this version; sandboxes keep running")
                .into());
            }
        }
    }
}

fn connect(paths: &Paths, holder: &LockHolder) -> Option<DaemonAddress> {
    let socket = holder.socket.clone()?;
    paths.check_socket_dir(&socket).ok()?;
    let instance = Instance::current(&paths.state_dir).ok().flatten()?.id.to_string();
    SocketPath::new(&socket).and_then(|address| UnixStream::connect(&address)).ok()?;
    Some(DaemonAddress { socket, instance })
}

/// Whether a daemon did not start because another one holds the lock of the state directory.
pub(super) fn is_held(error: &ClientError) -> bool {
    error.details.get("held") == Some(&serde_json::Value::Bool(true))
}

/// Another process has the lock, but left no record in it; a daemon of this version rewrites its record within a
/// second.
pub(crate) fn unknown_holder(paths: &Paths) -> Error {
    let lock = paths.state_dir.join(LOCK_FILE);
    let lock = lock.display();
    Error::new(
        Code::DaemonUnavailable,
        format!("{lock} is locked by a process that left no record in it, or its record was removed"),
    )
    .detail("held", true)
    .next(format!("find the process with `lslocks` or `fuser {lock}`, and stop it with `kill PID`"))
}

/// The lock holder does not respond; names the missing files that may be the cause.
pub(crate) fn held_message(paths: &Paths, holder: &LockHolder) -> Error {
    let (state_dir, log) = (paths.state_dir.display(), paths.log().display().to_string());
    let (pid, phase) = (holder.pid, holder.phase.as_str());
    let since = isle_api::timestamp(holder.since_ms);
    let missing = missing_files(paths, holder);
    let because =
        if missing.is_empty() { String::new() } else { format!("; missing: {}", missing.join(", ")) };
    let error = Error::new(
        Code::DaemonUnavailable,
        format!("the daemon of {state_dir} (pid {pid}) has been {phase} since {since} and does not respond{because}"),
    )
    .detail("pid", pid)
    .detail("phase", phase)
    .detail("since", since)
    .detail("held", true)
    .detail("missing", missing.clone())
    .detail("log", log.clone())
    .next(format!("check its log: {log}"));
    match holder.process() {
        Some(pid) if missing.is_empty() => error.next(format!(
            "wait for it, or stop it with `isle stop` (SIGTERM); if that does not help, `kill -9 {pid}`: sandboxes keep running"
        )),
        Some(pid) => error.next(format!(
            "wait until it restores the missing files, or stop it with `isle stop` (SIGTERM); do not send SIGKILL to pid {pid}: running sandboxes may be lost"
        )),
        None => error.next(format!(
            "it runs in another container or on another host, where it is pid {pid}: stop it there with `kill {pid}`, or use another `--state-dir` here"
        )),
    }
}

/// Files by which a daemon and its sandboxes are found, and which are missing.
fn missing_files(paths: &Paths, holder: &LockHolder) -> Vec<String> {
    let mut missing = Vec::new();
    if !Instance::is_written(&paths.state_dir) {
        missing.push(paths.state_dir.join("instance").display().to_string());
    }
    let instance = Instance::current(&paths.state_dir).ok().flatten();
    let runtime = instance.as_ref().and_then(Instance::runtime_dir);
    let expected = [holder.socket.as_deref(), runtime].into_iter().flatten();
    missing.extend(expected.filter(|path| !path.exists()).map(|path| path.display().to_string()));
    missing
}
