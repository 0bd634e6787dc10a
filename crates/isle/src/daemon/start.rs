//! Starts a daemon in the background. The daemon reports on its standard output, a pipe, when it is ready or
//! why it failed; there is no polling.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use isle_client::{ClientError, Result};
use isle_core::{Code, Error};
use serde::{Deserialize, Serialize};

use super::lock::StarterLock;
use super::lock_holder::{self, Found, WaitLimit};
use super::log_rotation::{MAX_LOG_BYTES, old_log};
use crate::config::{KEYS, Scope};
use crate::paths::{DaemonAddress, Paths, cannot};

/// The message a starting daemon writes to its standard output.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Announcement {
    /// The socket accepts connections.
    Ready,
    /// The daemon failed to start.
    Failed(ClientError),
}

/// What to do when no daemon is running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    /// Start one.
    Start,
    /// Do not start one.
    Ignore,
}

/// Returns the address of the daemon of the state directory once its socket accepts connections. Waits for one
/// that is starting or shutting down; starts one if none is running. `None` when none is running and none may be
/// started.
pub(crate) fn find_or_start(
    paths: &Paths,
    user_file: Option<&Path>,
    missing: Missing,
) -> Result<Option<DaemonAddress>> {
    let wait_limit = WaitLimit::new();
    let _lock = match missing {
        Missing::Ignore => None,
        Missing::Start => {
            paths.prepare()?;
            Some(StarterLock::wait(paths, &wait_limit)?)
        }
    };
    loop {
        match lock_holder::find_daemon(paths, &wait_limit)? {
            Found::Running(address) => return Ok(Some(address)),
            Found::None if missing == Missing::Ignore => return Ok(None),
            Found::None => match start(paths, user_file) {
                // Another process started one first, with `isle serve`.
                Err(error) if lock_holder::is_held(&error) && wait_limit.is_left() => wait_limit.pause(),
                started => started?,
            },
        }
    }
}

/// Starts a daemon and returns when its socket accepts connections.
fn start(paths: &Paths, user_file: Option<&Path>) -> Result<()> {
    rotate(&paths.log());
    if let Some(scoped) = in_systemd_scope() {
        // Without a working service manager, start it directly.
        match launch(scoped, paths, user_file)? {
            Some(Announcement::Ready) => return Ok(()),
            Some(Announcement::Failed(error)) => return Err(error),
            None => {}
        }
    }
    let program = std::env::current_exe().map_err(Error::internal)?;
    match launch(Command::new(program), paths, user_file)? {
        Some(Announcement::Ready) => Ok(()),
        Some(Announcement::Failed(error)) => Err(error),
        None => Err(Error::new(Code::DaemonUnavailable, "the daemon exited before it was ready")
            .detail("log", paths.log().display().to_string())
            .next(format!("check its log: {}", paths.log().display()))
            .into()),
    }
}

/// Runs the command and waits for its announcement; `None` when it exited without one.
fn launch(mut command: Command, paths: &Paths, user_file: Option<&Path>) -> Result<Option<Announcement>> {
    let log_path = paths.log();
    let log = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(&log_path)
        .map_err(|error| cannot("open", &log_path, &error))?;
    let (mut reader, writer) = io::pipe().map_err(Error::internal)?;
    command.args(["serve", "--background", "--state-dir"]).arg(&paths.state_dir);
    if let Some(socket) = &paths.chosen_socket {
        command.arg("--socket").arg(socket);
    }
    if let Some(file) = user_file {
        command
            .arg("--config")
            .arg(std::path::absolute(file).map_err(|error| cannot("resolve", file, &error))?);
    }
    // Variables this shell sets for one run must not become defaults of the daemon.
    for key in KEYS.iter().filter(|key| key.scope == Scope::Run) {
        if let Some(name) = key.env {
            command.env_remove(name);
        }
    }
    command.current_dir("/").stdin(Stdio::null()).stdout(writer).stderr(log);
    let child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            return Err(Error::new(Code::DaemonUnavailable, format!("cannot start the daemon: {error}"))
                .next("start it manually with `isle serve`")
                .into());
        }
    };
    // Our own copy of the write end would keep the pipe open forever.
    drop(command);
    let mut announcement = String::new();
    reader.read_to_string(&mut announcement).map_err(Error::internal)?;
    reap(child);
    Ok(serde_json::from_str(announcement.trim()).ok())
}

/// Waits for the daemon in a thread, in case it exits before this process does, which may run for days.
fn reap(mut child: Child) {
    let exited = child.try_wait();
    if matches!(exited, Ok(None)) {
        // Failure is harmless: without the thread, a zombie process remains until this process exits.
        drop(std::thread::Builder::new().name("reap".into()).spawn(move || child.wait()));
    }
}

fn has_user_manager() -> bool {
    !rustix::process::geteuid().is_root()
        && std::env::var_os("XDG_RUNTIME_DIR")
            .is_some_and(|directory| Path::new(&directory).join("systemd/private").exists())
}

/// Set for a process started in a systemd scope.
const IN_SYSTEMD_SCOPE: &str = "ISLE_IN_A_SCOPE";

/// Replaces this process by the same program in its own systemd scope, if the user has a service manager.
/// A daemon started manually or as a service then has delegated cgroups for its sandboxes, which survive its
/// restart. Returns when no scope can be created.
pub(crate) fn move_into_systemd_scope() {
    if std::env::var_os(IN_SYSTEMD_SCOPE).is_some() {
        return;
    }
    let Some(mut trial) = in_systemd_scope() else { return };
    let works = trial.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if works.status().is_ok_and(|status| status.success())
        && let Some(mut scoped) = in_systemd_scope()
    {
        // Returns only on failure; then the daemon runs in the current cgroup.
        let _ = scoped.args(std::env::args_os().skip(1)).exec();
    }
}

/// This program in its own systemd scope with delegated cgroups, if the user has a service manager.
pub(crate) fn in_systemd_scope() -> Option<Command> {
    if !has_user_manager() {
        return None;
    }
    let mut command = Command::new("systemd-run");
    command.args(["--user", "--scope", "--quiet", "--collect", "-p", "Delegate=yes", "--"]);
    match std::env::current_exe() {
        Ok(program) => command.arg(program),
        Err(_) => command.arg("isle"),
    };
    command.env(IN_SYSTEMD_SCOPE, "1");
    Some(command)
}

/// Renames a large log; one old log is kept.
fn rotate(log: &Path) {
    if log.metadata().is_ok_and(|known| known.len() > MAX_LOG_BYTES) {
        // A log that cannot be renamed is appended to.
        drop(std::fs::rename(log, old_log(log)));
    }
}
