//! A real daemon with its own state: started, killed, started again, and checked for leaks when it
//! goes, whether its test passed or not.

use std::any::Any;
use std::ffi::OsStr;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::home::{Home, finish};
use crate::http::{self, Answer};
use crate::leaks::{Counts, instance};
use crate::matrix::Connections;
use crate::program::program;
use crate::run::note_identities;
use crate::skips::{Missing, part};
use crate::wait::until_some;

/// The daemon promises to go down within 10 s; a machine that is busy with other tests is slower.
const DRAIN: Duration = Duration::from_secs(30);
/// How long what was removed may need to disappear from the kernel's lists.
const SETTLE: Duration = Duration::from_secs(20);

/// A real daemon with its own state, checked for leaks when it goes.
#[derive(Debug)]
pub struct TestDaemon {
    /// What its home stands on, given up when the daemon is gone and before the home is.
    footing: Option<Arc<dyn Any + Send + Sync>>,
    home: Home,
    child: Option<Child>,
    settings: Vec<(String, String)>,
    /// Programs of the host it does not see.
    hidden: Vec<PathBuf>,
    before: Counts,
}

impl TestDaemon {
    /// Starts the program as a daemon and waits for its word.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// The same with settings of its own, as environment variables.
    pub fn start_with(settings: &[(&str, &str)]) -> Self {
        Self::start_hiding(Vec::new(), settings)
    }

    /// The same with a file of settings.
    pub fn start_configured(config: &str, settings: &[(&str, &str)]) -> Self {
        Self::start_in(Home::new(), Some(config), Vec::new(), settings)
    }

    /// The same on a host that seems not to have some programs; only root can hide them.
    pub fn start_hiding(hidden: Vec<PathBuf>, settings: &[(&str, &str)]) -> Self {
        Self::start_in(Home::new(), None, hidden, settings)
    }

    /// The same in a home that stands on something that goes with the daemon.
    pub fn start_on(footing: Arc<dyn Any + Send + Sync>, home: Home, settings: &[(&str, &str)]) -> Self {
        let mut daemon = Self::start_in(home, None, Vec::new(), settings);
        daemon.footing = Some(footing);
        daemon
    }

    fn start_in(home: Home, config: Option<&str>, hidden: Vec<PathBuf>, settings: &[(&str, &str)]) -> Self {
        if let Some(config) = config {
            home.write("config/isle/config.toml", config);
        }
        // Many daemons run side by side; none needs many sandboxes ready.
        let mut all = vec![("ISLE_POOL_SIZE".to_owned(), "1".to_owned())];
        if !rustix::process::geteuid().is_root() {
            // An ordinary user seldom has cgroups; the tests of limits look for them by themselves.
            all.push(("ISLE_ALLOW_DOWNGRADE".to_owned(), "true".to_owned()));
        }
        if let Some(way) = Connections::of_this_test() {
            all.push((Connections::SETTING.to_owned(), way.as_str().to_owned()));
        }
        all.extend(settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let before = Counts::now(&home.state_dir(), &home.runtime_dir());
        let mut daemon = Self { footing: None, home, child: None, settings: all, hidden, before };
        daemon.launch();
        daemon
    }

    pub fn home(&self) -> &Home {
        &self.home
    }

    /// Of the daemon we started ourselves.
    pub fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    /// Its memory in bytes, as the kernel counts it: `VmRSS` now, `VmHWM` at most.
    pub fn memory(&self, key: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
        let kib = line.and_then(|line| line.split_whitespace().next()).unwrap_or_else(|| panic!("no {key}"));
        kib.parse::<u64>().unwrap() * 1024
    }

    /// A setting it was started with.
    pub fn setting(&self, name: &str) -> Option<&str> {
        self.settings.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// What there is now of this daemon and its sandboxes.
    pub fn counts(&self) -> Counts {
        Counts::now(&self.home.state_dir(), &self.home.runtime_dir())
    }

    /// The program as a client of this daemon.
    pub fn isle(&self, arguments: &[impl AsRef<OsStr>]) -> Command {
        self.home.isle(arguments)
    }

    /// The program as a client that may start a daemon with the same settings.
    pub fn isle_starting(&self, arguments: &[impl AsRef<OsStr>]) -> Command {
        let mut command = self.home.isle(arguments);
        command.env_remove("ISLE_NO_AUTOSTART").envs(self.settings.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Runs a client; panics with everything it said when it fails.
    pub fn succeeds(&self, arguments: &[&str]) -> String {
        let output = finish(&mut self.isle(arguments));
        let (stdout, stderr) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "isle {arguments:?}: {}\n{stdout}\n{stderr}", output.status);
        stdout.into_owned()
    }

    /// The daemon's socket.
    pub fn socket(&self) -> PathBuf {
        until_some("the daemon has a socket", || {
            let entries = std::fs::read_dir(self.home.runtime_dir()).ok()?;
            entries.flatten().map(|entry| entry.path()).find(|path| path.extension() == Some("sock".as_ref()))
        })
    }

    /// One HTTP request over the Unix socket.
    pub fn http(&self, method: &str, path: &str, body: Option<&Value>) -> Answer {
        http::unix(&self.socket(), method, path, body)
    }

    /// A request that must work.
    pub fn post(&self, path: &str, body: Value) -> Value {
        let answer = self.http("POST", path, Some(&body));
        assert_eq!(answer.status, 200, "POST {path} {body}: {}", answer.text());
        answer.json()
    }

    /// A request that must work.
    pub fn get(&self, path: &str) -> Value {
        let answer = self.http("GET", path, None);
        assert_eq!(answer.status, 200, "GET {path}: {}", answer.text());
        answer.json()
    }

    /// A request that must be refused, with a code, a sentence and a next step; gives the error.
    pub fn refused(&self, method: &str, path: &str, body: Option<&Value>) -> Value {
        let answer = self.http(method, path, body);
        assert!(answer.status >= 400, "{method} {path}: {} {}", answer.status, answer.text());
        let error = answer.json()["error"].clone();
        assert!(error["message"].as_str().is_some_and(|text| text.len() > 8), "{error}");
        let steps = error["next_steps"].as_array().map_or(0, Vec::len);
        assert!(steps > 0, "no next step: {error}");
        error
    }

    /// `exec` in a sandbox, which must be answered.
    pub fn exec(&self, sandbox: &str, arguments: Value) -> Value {
        let sandbox = &crate::encoded(sandbox);
        self.post(&format!("/v1/sandboxes/{sandbox}/exec"), arguments)
    }

    /// Shell text that must complete; gives its standard output.
    pub fn shell(&self, sandbox: &str, command: &str) -> String {
        let run = self.exec(sandbox, json!({ "command": command }));
        assert_eq!(run["state"], "completed", "{command}: {run}");
        run["stdout"].as_str().unwrap().to_owned()
    }

    /// The id of a sandbox.
    pub fn sandbox_id(&self, sandbox: &str) -> String {
        let status = self.get(&format!("/v1/status?sandbox={sandbox}"));
        status["sandboxes"][0]["id"].as_str().unwrap_or_else(|| panic!("{status}")).to_owned()
    }

    /// A line of a sandbox's containment report.
    pub fn guarantee(&self, sandbox: &str, key: &str) -> Value {
        let status = self.get(&format!("/v1/status?sandbox={sandbox}"));
        let lines = status["detail"]["containment"].as_array().unwrap();
        let line = lines.iter().find(|line| line["key"] == key);
        line.unwrap_or_else(|| panic!("no {key}: {status}")).clone()
    }

    /// Whether this daemon's sandboxes hold what a line of their containment report promises.
    pub fn enforces(&self, sandbox: &str, key: &str) -> bool {
        self.needs_enforced(sandbox, key).is_ok()
    }

    /// The same for a test that is about nothing else.
    pub fn needs_enforced(&self, sandbox: &str, key: &str) -> Result<(), Missing> {
        let line = self.guarantee(sandbox, key);
        if line["status"] == "enforced" {
            return Ok(());
        }
        let reason = format!("{key} is {} here: {}", line["status"], line["how"]);
        // An ordinary user seldom has cgroups or images; root has.
        let is_root = rustix::process::geteuid().is_root();
        Err(if is_root { Missing::on_host(reason) } else { Missing::for_user(reason) })
    }

    /// Whether a limit is kept at all, by the kernel or by looking.
    pub fn keeps(&self, sandbox: &str, key: &str) -> bool {
        self.guarantee(sandbox, key)["status"] != "missing"
    }

    /// Whether this host has sandboxes of a tier at all.
    pub fn offers(&self, tier: &str) -> bool {
        let tiers = self.get("/v1/runtimes")["tiers"].as_array().unwrap().clone();
        tiers.iter().any(|one| one["tier"] == tier && one["available_with_downgrade"] == true)
    }

    /// Whether a sandbox has a program, for a part of a test that uses it.
    pub fn has_program(&self, sandbox: &str, program: &str) -> bool {
        part(self.needs_program(sandbox, program))
    }

    /// A program that a sandbox must have for a test.
    pub fn needs_program(&self, sandbox: &str, program: &str) -> Result<(), Missing> {
        self.needs(sandbox, &format!("command -v {program}"), program)
    }

    /// Something that a sandbox has when a command works in it.
    pub fn needs(&self, sandbox: &str, command: &str, what: &str) -> Result<(), Missing> {
        if self.exec(sandbox, json!({ "command": command }))["state"] == "completed" {
            return Ok(());
        }
        Err(Missing::on_host(format!("this host has no {what} where a sandbox could see it")))
    }

    /// Names of all sandboxes.
    pub fn names(&self) -> Vec<String> {
        let listed = self.get("/v1/sandboxes");
        let sandboxes = listed["sandboxes"].as_array().unwrap();
        sandboxes.iter().map(|sandbox| sandbox["name"].as_str().unwrap().to_owned()).collect()
    }

    /// Ends the daemon as a crash would.
    pub fn kill(&mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Waits until the daemon has died by itself, as a crash would have it.
    pub fn died(&mut self) {
        use std::os::unix::process::ExitStatusExt;
        let mut child = self.child.take().unwrap();
        let status = until_some("the daemon has died", || child.try_wait().unwrap());
        assert_eq!(status.signal(), Some(9), "{status}");
    }

    /// Crashes the daemon. The signal is sent until it is gone: what could be a full stack is looked at
    /// first, and let go on.
    pub fn crash(&mut self, signal: Signal) -> ExitStatus {
        let mut child = self.child.take().unwrap();
        until_some("the daemon has crashed", || {
            kill_process(Pid::from_child(&child), signal).ok();
            child.try_wait().unwrap()
        })
    }

    /// Starts it again on the same state.
    pub fn launch(&mut self) {
        if let Err(why) = self.try_launch() {
            panic!("the daemon did not start: {why}");
        }
    }

    /// Starts it again by way of a shell script that ends by becoming its arguments.
    pub fn launch_by(&mut self, script: &str) {
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh"]).arg(program()).args(["serve", "--background"]);
        self.home.dress(&mut command);
        command.envs(self.settings.iter().map(|(name, value)| (name, value)));
        if let Err(why) = self.try_start(command) {
            panic!("the daemon did not start: {why}");
        }
    }

    /// Starts it, or says why it did not start.
    pub fn try_launch(&mut self) -> Result<(), String> {
        self.try_launch_with(&[])
    }

    /// The same with settings for this start only.
    pub fn try_launch_with(&mut self, settings: &[(&str, &str)]) -> Result<(), String> {
        let mut command = self.serve_command();
        command.envs(self.settings.iter().map(|(name, value)| (name, value)));
        command.envs(settings.iter().copied());
        self.try_start(command)
    }

    fn try_start(&mut self, mut command: Command) -> Result<(), String> {
        let log = std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(self.home.path().join("daemon.log"))
            .unwrap();
        let mut child =
            command.env("ISLE_LOG", "debug,yamux=info").stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        // The pipe ends when the daemon has said its word.
        let mut word = String::new();
        child.stdout.take().unwrap().read_to_string(&mut word).unwrap();
        if word.trim() == "\"ready\"" {
            self.child = Some(child);
            return Ok(());
        }
        child.kill().ok();
        child.wait().ok();
        Err(word)
    }

    fn serve_command(&self) -> Command {
        const HIDE: &str =
            r#"until [ "$1" = -- ]; do mount --bind /dev/null "$1" || exit; shift; done; shift; exec "$@""#;
        if self.hidden.is_empty() {
            return self.home.isle(&["serve", "--background"]);
        }
        // Each step becomes the next, so that the process we start is the daemon.
        let mut command = Command::new("unshare");
        command.args(["--mount", "--", "sh", "-c", HIDE, "sh"]).args(&self.hidden);
        command.arg("--").arg(program()).args(["serve", "--background"]);
        self.home.dress(&mut command);
        command
    }

    /// What the daemon logged so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.home.path().join("daemon.log")).unwrap_or_default()
    }

    /// Ends it the polite way and says how it ended.
    pub fn terminate(&mut self) -> ExitStatus {
        let mut child = self.child.take().unwrap();
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        let deadline = Instant::now() + DRAIN;
        loop {
            if let Some(status) = child.try_wait().unwrap() {
                return status;
            }
            if Instant::now() > deadline {
                child.kill().ok();
                child.wait().ok();
                panic!("the daemon did not go down\n{}", last_lines(&self.log(), 40));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Whatever happened before: no sandbox, no workspace, no daemon.
    fn clean_up(&mut self) -> Result<(), String> {
        self.remove_all()?;
        // A sandbox that was being made when its caller was killed may have come after all were removed.
        if self.workspaces().next().is_some() { self.remove_all() } else { Ok(()) }
    }

    fn remove_all(&mut self) -> Result<(), String> {
        // Ended by somebody else, as by a test of the end.
        let ended = self.child.as_mut().is_none_or(|child| !matches!(child.try_wait(), Ok(None)));
        if ended {
            // A daemon somebody else started on this state would be in our way.
            finish(&mut self.isle(&["stop"]));
            self.try_launch()?;
        }
        if !rustix::process::geteuid().is_root() {
            self.revive_workspaces();
        }
        let mut said = String::new();
        for namespace in self.namespaces() {
            let removed = finish(&mut self.isle(&["rm", "--all", "--wipe", "--namespace", &namespace]));
            if !removed.status.success() {
                said.push_str(&String::from_utf8_lossy(&removed.stderr));
            }
        }
        // Of sandboxes that were destroyed without wiping.
        for (namespace, name) in self.workspaces() {
            finish(&mut self.isle(&["rm", &name, "--wipe", "--namespace", &namespace]));
        }
        self.terminate();
        // Only when they are empty.
        let apart = Path::new("/var/lib").join(instance(&self.home.state_dir()));
        std::fs::remove_dir(apart.join("volumes")).and_then(|()| std::fs::remove_dir(apart)).ok();
        if said.is_empty() { Ok(()) } else { Err(said) }
    }

    /// Workspaces there are, in the home and, of root's sandboxes of tier `process`, outside of it.
    fn workspaces(&self) -> impl Iterator<Item = (String, String)> + use<> {
        let state = self.home.state_dir();
        let apart = Path::new("/var/lib").join(instance(&state)).join("volumes");
        let volumes = [state.join("native/volumes"), apart];
        volumes
            .into_iter()
            .flat_map(|volumes| std::fs::read_dir(volumes).into_iter().flatten().flatten())
            .map(|volume| {
                let address = volume.file_name().to_string_lossy().into_owned();
                let (namespace, name) = address.split_once('@').unwrap_or(("default", &address));
                (namespace.to_owned(), name.to_owned())
            })
    }

    /// Whose sandboxes there are.
    fn namespaces(&self) -> Vec<String> {
        let listed = http::try_unix(&self.socket(), "GET /v1/tokens", &[], b"");
        let listed = listed.ok().map(|answer| answer.json()["namespaces"].clone()).unwrap_or_default();
        serde_json::from_value(listed).unwrap_or_else(|_| vec!["default".to_owned()])
    }
}

impl TestDaemon {
    /// What an ordinary user's sandboxes wrote belongs to other ids and goes only with its sandbox: those
    /// that were destroyed without wiping are made once more.
    fn revive_workspaces(&self) {
        for (namespace, name) in self.workspaces() {
            finish(&mut self.isle(&["exec", &name, "--namespace", &namespace, "--", "true"]));
        }
    }
}

impl Drop for TestDaemon {
    fn drop(&mut self) {
        // A state directory may be on a disk that goes before the home does.
        note_identities(&self.home.state_dir());
        let failing = std::thread::panicking();
        if failing {
            println!("--- the daemon's log\n{}", last_lines(&self.log(), 40));
        }
        let cleaned = self.clean_up();
        let deadline = Instant::now() + SETTLE;
        let mut after = self.counts();
        while after != self.before && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
            after = self.counts();
        }
        for (pid, _) in &after.processes {
            // Ours by the name of a directory nobody else has.
            if let Some(pid) = Pid::from_raw(*pid) {
                kill_process(pid, Signal::KILL).ok();
            }
        }
        if !failing {
            assert_eq!(cleaned, Ok(()), "cleaning up failed");
            assert_eq!(after, self.before, "the daemon left something behind");
        }
    }
}

fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}
