//! What the tests of the command line share: the real program in a home of its own, and a daemon
//! that is checked for leaks when it goes.

mod leaks;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use tempfile::TempDir;

/// A home without any settings, and a way to run the program in it.
#[derive(Debug)]
pub(crate) struct Home {
    directory: TempDir,
}

impl Home {
    pub(crate) fn new() -> Self {
        Self { directory: tempfile::Builder::new().prefix("isle-test-").tempdir().unwrap() }
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Writes a file below the home.
    pub(crate) fn write(&self, path: &str, text: &str) -> PathBuf {
        let path = self.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }

    /// The program, knowing nothing of the machine's own settings and daemons.
    pub(crate) fn isle(&self, arguments: &[impl AsRef<OsStr>]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_isle"));
        command
            .args(arguments)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.path())
            .env("XDG_CONFIG_HOME", self.path().join("config"))
            .env("ISLE_STATE_DIR", self.path().join("state"))
            .env("ISLE_RUNTIME_DIR", self.path().join("run"))
            .env("ISLE_NO_AUTOSTART", "1")
            // A sandbox nobody asked for would outlive a daemon that is only stopped.
            .env("ISLE_WARM_DEFAULT", "false")
            .env("COLUMNS", "100")
            .current_dir(self.path())
            .stdin(Stdio::null());
        command
    }

    /// Runs it and shows everything a user would see, with this home written as `HOME`.
    pub(crate) fn transcript(&self, arguments: &[&str]) -> String {
        self.transcript_of(&mut self.isle(arguments), arguments)
    }

    /// The same for a command that was prepared further.
    pub(crate) fn transcript_of(&self, command: &mut Command, arguments: &[&str]) -> String {
        let Output { status, stdout, stderr } = command.output().unwrap();
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

/// A real daemon with its own state, checked for leaks when it goes.
#[derive(Debug)]
pub(crate) struct TestDaemon {
    home: Home,
    child: Option<Child>,
    before: leaks::Counts,
}

impl TestDaemon {
    /// Starts the program as a daemon and waits for its word.
    pub(crate) fn start() -> Self {
        let home = Home::new();
        let before = leaks::Counts::now(&home.path().join("state"));
        let mut daemon = Self { home, child: None, before };
        daemon.launch();
        daemon
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    /// The program as a client of this daemon.
    pub(crate) fn isle(&self, arguments: &[impl AsRef<OsStr>]) -> Command {
        self.home.isle(arguments)
    }

    /// Runs a client; panics with everything it said when it fails.
    pub(crate) fn succeeds(&self, arguments: &[&str]) -> String {
        let output = self.isle(arguments).output().unwrap();
        let (stdout, stderr) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "isle {arguments:?}: {}\n{stdout}\n{stderr}", output.status);
        stdout.into_owned()
    }

    /// Ends the daemon as a crash would.
    pub(crate) fn kill(&mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Starts it again on the same state.
    pub(crate) fn launch(&mut self) {
        use std::io::Read;
        let log = std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(self.home.path().join("daemon.log"))
            .unwrap();
        let mut child = self
            .home
            .isle(&["serve", "--background"])
            .env("ISLE_LOG", "debug")
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        // The pipe ends when the daemon has said its word.
        let mut word = String::new();
        child.stdout.take().unwrap().read_to_string(&mut word).unwrap();
        if !word.contains("ready") {
            let log = std::fs::read_to_string(self.home.path().join("daemon.log")).unwrap_or_default();
            child.kill().ok();
            child.wait().ok();
            panic!("the daemon did not start: {word}\n{log}");
        }
        self.child = Some(child);
    }

    fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let pid = rustix::process::Pid::from_child(&child);
            rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
            child.wait().unwrap();
        }
    }
}

impl Drop for TestDaemon {
    fn drop(&mut self) {
        if self.child.is_none() && !std::thread::panicking() {
            self.launch();
        }
        if self.child.is_some() {
            // Best effort here: what it could not remove shows up in the counts.
            self.isle(&["rm", "--all", "--wipe"]).output().ok();
        }
        self.stop();
        let after = leaks::Counts::now(&self.home.path().join("state"));
        if !std::thread::panicking() {
            assert_eq!(self.before, after, "the daemon left something behind");
        }
    }
}
