//! A home without any settings, and the program in it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::program::program;
use crate::run::note_identities;

/// No command of a test takes this long, unless it hangs.
const HANGS: Duration = Duration::from_secs(90);

/// A home without any settings, and a way to run the program in it.
#[derive(Debug)]
pub struct Home {
    directory: TempDir,
    state: &'static str,
}

impl Home {
    pub fn new() -> Self {
        Self::with_state_at("state")
    }

    /// One whose state is a directory deeper, for what is to be under it.
    pub fn with_state_at(state: &'static str) -> Self {
        Self { directory: tempfile::Builder::new().prefix("isle-test-").tempdir().unwrap(), state }
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Where the daemon of this home keeps its state.
    pub fn state_dir(&self) -> PathBuf {
        self.path().join(self.state)
    }

    /// Where the sockets of this home are.
    pub fn runtime_dir(&self) -> PathBuf {
        self.path().join("run")
    }

    /// Writes a file below the home.
    pub fn write(&self, path: &str, text: &str) -> PathBuf {
        let path = self.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }

    /// The program, knowing nothing of the machine's own settings and daemons.
    pub fn isle(&self, arguments: &[impl AsRef<OsStr>]) -> Command {
        let mut command = Command::new(program());
        self.dress(command.args(arguments));
        command
    }

    /// Gives any command the environment the program has here.
    pub fn dress(&self, command: &mut Command) {
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.path())
            .env("TMPDIR", std::env::temp_dir())
            .env("XDG_CONFIG_HOME", self.path().join("config"))
            .env("ISLE_STATE_DIR", self.state_dir())
            .env("ISLE_RUNTIME_DIR", self.runtime_dir())
            .env("ISLE_NO_AUTOSTART", "1")
            // A sandbox nobody asked for would outlive a daemon that is killed.
            .env("ISLE_WARM_DEFAULT", "false")
            .env("COLUMNS", "100")
            .current_dir(self.path())
            .stdin(Stdio::null());
    }

    /// Runs it and shows everything a user would see, with this home written as `HOME`.
    pub fn transcript(&self, arguments: &[&str]) -> String {
        self.transcript_of(&mut self.isle(arguments), arguments)
    }

    /// The same for a command that was prepared further.
    pub fn transcript_of(&self, command: &mut Command, arguments: &[&str]) -> String {
        let Output { status, stdout, stderr } = finish(command);
        let clean = |bytes: &[u8]| {
            let text = String::from_utf8_lossy(bytes).replace(self.path().to_str().unwrap(), "HOME");
            without_socket_name(&text.replace(env!("CARGO_PKG_VERSION"), "VERSION"))
        };
        format!(
            "$ isle {}\n--- exit {}\n--- stdout\n{}--- stderr\n{}",
            arguments.join(" "),
            status.code().map_or_else(|| "by a signal".to_owned(), |code| code.to_string()),
            clean(&stdout),
            clean(&stderr)
        )
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        note_identities(self.path());
    }
}

/// The socket is named after the state directory, which is another one every time.
fn without_socket_name(text: &str) -> String {
    let mut parts = text.split(".sock");
    let mut clean = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = clean.rfind('/').map_or(clean.len(), |slash| slash + 1);
        clean.truncate(end);
        clean.push_str("NAME.sock");
        clean.push_str(part);
    }
    clean
}

/// Runs a command to its end; one that hangs is ended, so that the test fails instead of waiting.
pub fn finish(command: &mut Command) -> Output {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let _watch = Watchdog::over(&child);
    child.wait_with_output().unwrap()
}

/// Ends a child that outlives all patience.
#[derive(Debug)]
pub struct Watchdog {
    _done: mpsc::Sender<()>,
}

impl Watchdog {
    pub fn over(child: &Child) -> Self {
        let pid = Pid::from_child(child);
        let (done, gone) = mpsc::channel::<()>();
        std::thread::spawn(move || {
            if gone.recv_timeout(HANGS) == Err(mpsc::RecvTimeoutError::Timeout) {
                // Whoever waits for the child then sees how it ended.
                kill_process(pid, Signal::KILL).ok();
            }
        });
        Self { _done: done }
    }
}
