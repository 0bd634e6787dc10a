//! Starting a daemon in the background. It says on its standard output, a pipe, when it is ready
//! or why it will not be; nobody polls.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use isle_client::{ClientError, Result};
use isle_engine::{Code, Error};
use serde::{Deserialize, Serialize};

use super::lock::StarterLock;
use crate::config::{KEYS, Scope};
use crate::places::{Places, cannot};

const LARGEST_LOG: u64 = 8 * 1024 * 1024;

/// What the daemon says on its standard output, once.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Announcement {
    /// The socket answers.
    Ready,
    /// It will not start.
    Failed(ClientError),
}

/// Starts a daemon unless another starter was faster, and returns when its socket answers.
pub(crate) fn start(places: &Places, user_file: Option<&Path>) -> Result<()> {
    places.prepare()?;
    let _lock = StarterLock::wait(places)?;
    if UnixStream::connect(&places.socket).is_ok() {
        return Ok(());
    }
    rotate(&places.log());
    if let Some(scoped) = in_a_scope() {
        // Without a manager that answers, plainly.
        match launch(scoped, places, user_file)? {
            Some(Announcement::Ready) => return Ok(()),
            Some(Announcement::Failed(error)) => return Err(error),
            None => {}
        }
    }
    let program = std::env::current_exe().map_err(Error::internal)?;
    match launch(Command::new(program), places, user_file)? {
        Some(Announcement::Ready) => Ok(()),
        Some(Announcement::Failed(error)) => Err(error),
        None => Err(Error::new(Code::DaemonUnavailable, "the daemon ended before it was ready")
            .detail("log", places.log().display().to_string())
            .next(format!("its last words are in {}", places.log().display()))
            .into()),
    }
}

/// Runs it and waits for its word; `None` when it ended without one.
fn launch(mut command: Command, places: &Places, user_file: Option<&Path>) -> Result<Option<Announcement>> {
    let log_path = places.log();
    let log = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(&log_path)
        .map_err(|error| cannot("open", &log_path, &error))?;
    let (mut reader, writer) = io::pipe().map_err(Error::internal)?;
    command.args(["serve", "--background", "--state-dir"]).arg(&places.state_dir);
    if places.socket_chosen {
        command.arg("--socket").arg(&places.socket);
    }
    if let Some(file) = user_file {
        command.arg("--config").arg(std::path::absolute(file).map_err(|error| cannot("find", file, &error))?);
    }
    // What this shell sets for one run must not become everybody's default.
    for key in KEYS.iter().filter(|key| key.scope == Scope::Run) {
        if let Some(name) = key.env {
            command.env_remove(name);
        }
    }
    command.current_dir("/").stdin(Stdio::null()).stdout(writer).stderr(log);
    let child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            return Err(Error::new(
                Code::DaemonUnavailable,
                format!("the daemon cannot be started: {error}"),
            )
            .next("start it by hand with `isle serve`")
            .into());
        }
    };
    // Our own end of the pipe would keep it open for ever.
    drop(command);
    let mut word = String::new();
    reader.read_to_string(&mut word).map_err(Error::internal)?;
    bury(child);
    Ok(serde_json::from_str(word.trim()).ok())
}

/// Collects the daemon when it ends before this process does, which may be days from now.
fn bury(mut child: Child) {
    let gone = child.try_wait();
    if matches!(gone, Ok(None)) {
        // Nothing depends on it: without the thread an entry in the process table stays until we end.
        drop(std::thread::Builder::new().name("bury".into()).spawn(move || child.wait()));
    }
}

fn has_user_manager() -> bool {
    !rustix::process::geteuid().is_root()
        && std::env::var_os("XDG_RUNTIME_DIR")
            .is_some_and(|directory| Path::new(&directory).join("systemd/private").exists())
}

/// Set for a program that was started in such a scope.
const IN_A_SCOPE: &str = "ISLE_IN_A_SCOPE";

/// Becomes the same program in a scope of its own, where the user has a service manager that makes one.
/// A daemon that somebody starts by hand, or as a service, has cgroups for its sandboxes then, and they
/// are in nobody's way when it is started again. Returns when that is not to be had.
pub(crate) fn move_into_a_scope() {
    if std::env::var_os(IN_A_SCOPE).is_some() {
        return;
    }
    let Some(mut trial) = in_a_scope() else { return };
    let works = trial.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if works.status().is_ok_and(|status| status.success())
        && let Some(mut scoped) = in_a_scope()
    {
        // Only comes back when it failed; then the daemon runs where it is.
        let _ = scoped.args(std::env::args_os().skip(1)).exec();
    }
}

/// This program in a scope of its own with delegated cgroups, where the user has a service manager.
pub(crate) fn in_a_scope() -> Option<Command> {
    if !has_user_manager() {
        return None;
    }
    let mut command = Command::new("systemd-run");
    command.args(["--user", "--scope", "--quiet", "--collect", "-p", "Delegate=yes", "--"]);
    match std::env::current_exe() {
        Ok(program) => command.arg(program),
        Err(_) => command.arg("isle"),
    };
    command.env(IN_A_SCOPE, "1");
    Some(command)
}

/// Keeps one old log, so that it cannot grow for ever.
fn rotate(log: &Path) {
    if log.metadata().is_ok_and(|known| known.len() > LARGEST_LOG) {
        // A log that cannot be moved is still a log.
        drop(std::fs::rename(log, log.with_extension("log.old")));
    }
}
