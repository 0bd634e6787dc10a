//! Where attacks are run: the program and its canary in a directory anybody may look into, and the ways
//! to let the program loose.

use std::collections::BTreeMap;
use std::mem::ManuallyDrop;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use isle_probe::limits::{self, CPUS, DISK, MEMORY, PIDS};
use isle_probe::{Canary, Verdict, canary};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{TestDaemon, finish};

/// What came of every attack.
pub(crate) type Results = BTreeMap<String, (Verdict, String)>;

/// The program, the canary, and nobody else's business.
#[derive(Debug)]
pub(crate) struct Range {
    pub(crate) canary: Canary,
    directory: TempDir,
}

impl Range {
    pub(crate) fn new() -> Self {
        let directory = tempfile::Builder::new()
            .prefix("isle-range-")
            .permissions(std::fs::Permissions::from_mode(0o755))
            .tempdir()
            .unwrap();
        let program = directory.path().join("isle-probe");
        std::fs::write(&program, isle_embed::attack_program()).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let canary = Canary::spawn(&program, directory.path()).unwrap();
        leak(&directory.path().join("canary.txt"));
        Self { canary, directory }
    }

    pub(crate) fn program(&self) -> PathBuf {
        self.path().join("isle-probe")
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// A daemon that knows a secret and has a descriptor too many.
    pub(crate) fn daemon(&self) -> TestDaemon {
        let (name, value) = self.canary.variable();
        TestDaemon::start_with(&[(name, &value)])
    }

    /// What the attacks are told; without a daemon its places are the canary's.
    pub(crate) fn arguments(&self, daemon: Option<&TestDaemon>) -> Vec<String> {
        let (state, socket) = match daemon {
            Some(daemon) => (daemon.home().state_dir(), daemon.socket()),
            None => (self.path().to_owned(), self.path().join("canary.sock")),
        };
        let mut arguments = self.canary.arguments().to_vec();
        arguments.extend([
            format!("--state={}", state.display()),
            format!("--daemon-socket={}", socket.display()),
        ]);
        arguments.extend(limits::arguments(isle_core::backend::OPEN_FILES));
        arguments
    }

    /// A command on a terminal, as a person would start it; the last argument says which session that is.
    pub(crate) fn on_a_terminal(&self, words: &[String]) -> Command {
        let mut command = Command::new(self.program());
        command.args(["terminal", "bash", "-c", r#"exec "$@" --session=$$"#, "bash"]).args(words);
        command
    }

    /// The attacks without any sandbox.
    pub(crate) fn plain(&self, words: &[&str], directory: &Path) -> Results {
        let mut all: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        all.extend([self.program().display().to_string(), "attack".to_owned()]);
        all.extend(self.arguments(None));
        let (name, value) = self.canary.variable();
        let mut command = self.on_a_terminal(&all);
        collect(command.env(name, value).current_dir(directory))
    }

    /// The attacks in a fresh sandbox, through `isle run`.
    pub(crate) fn one_shot(&self, daemon: &TestDaemon, flags: &[&str]) -> Results {
        let mut words = vec![env!("CARGO_BIN_EXE_isle").to_owned(), "run".to_owned()];
        words.extend(flags.iter().map(|flag| (*flag).to_owned()));
        words.extend([
            format!("--memory={MEMORY}"),
            format!("--disk={DISK}"),
            format!("--pids={PIDS}"),
            format!("--cpus={CPUS}"),
            format!("--file={}:isle-probe", self.program().display()),
        ]);
        let start = "chmod 755 isle-probe && exec ./isle-probe attack \"$@\"";
        words.extend(["--", "sh", "-c", start, "sh"].map(str::to_owned));
        words.extend(self.arguments(Some(daemon)));
        let mut command = self.on_a_terminal(&words);
        daemon.home().dress(&mut command);
        let (name, value) = self.canary.variable();
        collect(command.env(name, value))
    }

    /// Makes a named sandbox with the program in it; gives its containment report.
    pub(crate) fn create(&self, daemon: &TestDaemon, name: &str, tier: &str) -> Vec<Value> {
        let created = daemon.post(
            "/v1/sandboxes",
            json!({
                "sandbox": name, "tier": tier, "memory": MEMORY.to_string(), "disk": DISK.to_string(),
                "pids": PIDS, "cpus": CPUS,
            }),
        );
        let program = self.program().display().to_string();
        daemon.succeeds(&["cp", &program, &format!("{name}:isle-probe")]);
        created["containment"]["guarantees"].as_array().unwrap().clone()
    }

    /// The attacks in a named sandbox, through `isle exec`, and the one that is judged from outside.
    pub(crate) fn named(&self, daemon: &TestDaemon, name: &str, flags: &[&str], more: &[String]) -> Results {
        let mut words = vec![env!("CARGO_BIN_EXE_isle").to_owned(), "exec".to_owned()];
        words.extend(flags.iter().map(|flag| (*flag).to_owned()));
        words.extend([name, "--", "/workspace/isle-probe", "attack"].map(str::to_owned));
        words.extend(self.arguments(Some(daemon)));
        words.extend(more.iter().cloned());
        let mut command = self.on_a_terminal(&words);
        daemon.home().dress(&mut command);
        let (variable, value) = self.canary.variable();
        collect(command.env(variable, value))
    }
}

/// Opens a file at the number that is looked for in every sandbox. All that this process starts has it.
fn leak(file: &Path) {
    let file = std::fs::File::open(file).unwrap();
    // SAFETY: nobody else uses that number, and it is not closed when the handle goes.
    let mut place = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(canary::LEAKED) });
    rustix::io::dup2(&file, &mut place).unwrap();
}

/// Runs a command that prints the lines of the attacks.
pub(crate) fn collect(command: &mut Command) -> Results {
    let output = finish(command);
    let (said, complained) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let results: Results = said
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .map(|line| {
            let text = |name: &str| line[name].as_str().unwrap().to_owned();
            (text("name"), (Verdict::from_name(&text("verdict")).unwrap(), text("seen")))
        })
        .collect();
    assert!(!results.is_empty(), "no attack was run: {}\n{said}\n{complained}", output.status);
    results
}

/// Names of the attacks with a verdict.
pub(crate) fn with(results: &Results, wanted: Verdict) -> Vec<&str> {
    results.iter().filter(|(_, (verdict, _))| *verdict == wanted).map(|(name, _)| name.as_str()).collect()
}

/// Every attack was tried: none left out but `skipped`, and none that says it could not be.
pub(crate) fn assert_complete(results: &Results, skipped: &[String]) {
    for attack in isle_probe::attacks() {
        let tried = results.contains_key(attack.name) || skipped.iter().any(|name| name == attack.name);
        assert!(tried, "{} was not tried", attack.name);
    }
    let untestable: Vec<_> =
        results.iter().filter(|(_, (verdict, _))| *verdict == Verdict::NotTestable).collect();
    assert!(untestable.is_empty(), "not testable, and nobody said why: {untestable:#?}");
}

/// What an attack saw, for messages.
pub(crate) fn seen<'a>(results: &'a Results, names: &[&str]) -> Vec<(&'a str, &'a str)> {
    results
        .iter()
        .filter(|(name, _)| names.contains(&name.as_str()))
        .map(|(name, (_, seen))| (name.as_str(), seen.as_str()))
        .collect()
}
