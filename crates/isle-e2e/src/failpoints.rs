//! A daemon whose failpoints a test can arm, and what must hold of it after every fault.

use std::collections::BTreeSet;
use std::path::PathBuf;

use isle_fail::{Point, Where};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::http::{Answer, try_unix};
use crate::{TestDaemon, instance, processes_with, until};

/// What happens at an armed point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Die,
    Fail,
    /// Fail for lack of space.
    Full,
}

impl Action {
    fn word(self) -> &'static str {
        match self {
            Self::Die => "die",
            Self::Fail => "fail",
            Self::Full => "full",
        }
    }
}

/// What a caller was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    /// That it was done.
    Done(String),
    /// That it was not, with a code.
    Refused(String),
    /// Nothing: the connection broke.
    Nothing,
}

/// A daemon and the directory its failpoints look into.
#[derive(Debug)]
pub struct Ground {
    pub daemon: TestDaemon,
    failpoints: TempDir,
}

impl Ground {
    pub fn new() -> Self {
        Self::with(&[])
    }

    pub fn with(settings: &[(&str, &str)]) -> Self {
        let failpoints = tempfile::Builder::new().prefix("isle-test-points-").tempdir().unwrap();
        let mut all = vec![
            ("ISLE_FAILPOINTS", failpoints.path().to_str().unwrap()),
            ("ISLE_HOST_ROOTS", failpoints.path().to_str().unwrap()),
            // Only what a call does is to pass points.
            ("ISLE_POOL_SIZE", "0"),
            ("ISLE_DISK", "16M"),
            ("ISLE_SWEEP_INTERVAL", "100ms"),
            // The time of last use is written down now and then; what a scene passes is to be the same always.
            ("ISLE_DEFAULT_IDLE", "none"),
            // What a job prints beyond the first is in files, and three pieces of the tests' are too much.
            ("ISLE_OUTPUT_CAP", "16K"),
            ("ISLE_JOB_OUTPUT_CAP", "40000"),
            ("ISLE_SPAWN_POLICIES", "kin = { inject_ctl = false, max_total = 1000 }"),
        ];
        all.extend_from_slice(settings);
        let daemon = TestDaemon::start_with(&all);
        Self { daemon, failpoints }
    }

    /// A file the daemon's failpoints look at.
    pub fn file(&self, name: &str) -> PathBuf {
        self.failpoints.path().join(name)
    }

    pub fn arm(&self, point: &str, action: Action, number: usize) {
        self.arm_as(&format!("{point}={}@{number}", action.word()));
    }

    fn arm_as(&self, text: &str) {
        std::fs::remove_file(self.file("fired")).ok();
        std::fs::write(self.file("being-armed"), text).unwrap();
        std::fs::rename(self.file("being-armed"), self.file("armed")).unwrap();
    }

    /// Every time from now on, until it is disarmed.
    pub fn arm_for_good(&self, point: &str, action: Action) {
        self.arm_as(&format!("{point}={}@1+", action.word()));
    }

    pub fn disarm(&self) {
        std::fs::remove_file(self.file("armed")).ok();
    }

    /// Whether what was asked for was on record when the fault came: only the first change of the store
    /// that never began leaves everything as it was.
    pub fn was_begun(&self) -> bool {
        let fired = std::fs::read_to_string(self.file("fired")).unwrap_or_default();
        !fired.starts_with("store.begins=")
    }

    pub fn has_fired(&self) -> bool {
        self.file("fired").exists()
    }

    /// Forgets what was passed until now.
    pub fn forget_passed(&self) {
        std::fs::write(self.file("passed"), "").unwrap();
    }

    /// The points passed since, in order.
    pub fn passed(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.file("passed")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// A request that may be refused or cut off.
    pub fn ask(&self, line: &str, body: Option<&Value>) -> Told {
        ask(&self.daemon, line, body)
    }

    /// The same with a body that is not JSON.
    pub fn ask_raw(&self, line: &str, body: &[u8]) -> Told {
        let headers = ["Content-Type: application/octet-stream"];
        told(try_unix(&self.daemon.socket(), line, &headers, body))
    }

    /// As a crash and a new start.
    pub fn restart(&mut self) {
        self.daemon.kill();
        self.daemon.launch();
    }

    /// A daemon as it is after its very first start: no fork server, nothing made beforehand.
    pub fn cool_down(&mut self) {
        std::fs::remove_dir_all(self.daemon.home().state_dir().join("native/images")).ok();
        self.restart();
    }

    /// The agent of a sandbox, as the host numbers it.
    pub fn agent(&self, sandbox: &str) -> i32 {
        let id = self.daemon.sandbox_id(sandbox);
        processes_with(&format!("isle-agent {id}"))[0]
    }

    /// Names of all sandboxes that can be used or built anew.
    pub fn names(&self) -> BTreeSet<String> {
        self.daemon.names().into_iter().collect()
    }

    /// What must hold after any fault, with the daemon just started: the audit chain is whole, no run
    /// goes on that should not, every sandbox has one record and one socket and nothing else has any,
    /// and a volume without a sandbox is one that was left on purpose.
    pub fn check(&self, kept_volumes: &[&str]) {
        let audit = self.daemon.get("/v1/audit/verify");
        assert_eq!(audit["intact"], true, "{audit}");
        let mut looks = 0;
        until("no run is left open", || {
            let open = self.daemon.get("/v1/runs?state=running");
            looks += 1;
            if looks == 1000 {
                eprintln!("still open: {open:#}");
            }
            open["runs"].as_array().unwrap().is_empty()
        });
        let listed = self.daemon.get("/v1/sandboxes");
        let listed = listed["sandboxes"].as_array().unwrap();
        let field = |name: &str| -> BTreeSet<String> {
            listed.iter().map(|sandbox| sandbox[name].as_str().unwrap().to_owned()).collect()
        };
        let (ids, names) = (field("id"), field("name"));
        // Of one that failed there may be nothing left but what it was made to be.
        let lost: BTreeSet<String> = listed
            .iter()
            .filter(|sandbox| sandbox["state"] == "failed")
            .map(|sandbox| sandbox["id"].as_str().unwrap().to_owned())
            .collect();
        until("records, sockets and cgroups are those of the sandboxes", || {
            let counts = self.daemon.counts();
            let records: BTreeSet<String> = counts.directories.iter().cloned().collect();
            let cgroups = ids_in(&counts.cgroups);
            records.is_subset(&ids)
                && ids.difference(&records).all(|id| lost.contains(id))
                && ids_in(&counts.sockets).is_subset(&ids)
                && cgroups.is_subset(&ids)
                && counts.unfinished.is_empty()
                && counts.loop_devices.len() <= ids.len()
        });
        let mut volumes = self.volumes();
        // Those of children are named after their ids.
        volumes.retain(|volume| {
            !names.contains(volume) && !ids.contains(volume) && !kept_volumes.contains(&volume.as_str())
        });
        assert!(volumes.is_empty(), "volumes of nobody: {volumes:?}");
    }

    /// Volumes in the state directory, and those of tier `process`.
    pub fn volumes(&self) -> BTreeSet<String> {
        let state = self.daemon.home().state_dir();
        let mut found = BTreeSet::new();
        let apart = PathBuf::from("/var/lib").join(instance(&state)).join("volumes");
        for directory in [state.join("native/volumes"), state.join("native/process/volumes"), apart] {
            for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
                found.insert(entry.file_name().to_string_lossy().into_owned());
            }
        }
        found
    }

    /// Removes everything, and sees that it is gone.
    pub fn clear(&self) {
        for name in self.names().into_iter().chain(self.volumes()) {
            let answer =
                self.daemon.http("DELETE", &format!("/v1/sandboxes/{name}"), Some(&json!({"wipe": true})));
            assert!(matches!(answer.status, 200 | 404), "{name}: {}", answer.text());
        }
        until("nothing is left", || {
            let counts = self.daemon.counts();
            let agents = counts.processes.iter().filter(|(_, command)| command.starts_with("isle-agent"));
            counts.directories.is_empty()
                && ids_in(&counts.sockets).is_empty()
                && counts.loop_devices.is_empty()
                && agents.count() == 0
                && self.volumes().is_empty()
        });
    }
}

/// A request that may be refused or cut off.
pub fn ask(daemon: &TestDaemon, line: &str, body: Option<&Value>) -> Told {
    let body = body.map(Value::to_string).unwrap_or_default();
    told(try_unix(&daemon.socket(), line, &["Content-Type: application/json"], body.as_bytes()))
}

/// What an answer, or the lack of one, tells.
pub fn told(answer: std::io::Result<Answer>) -> Told {
    match answer {
        Ok(answer) if answer.status == 200 => Told::Done(answer.text()),
        Ok(answer) => {
            let error = answer.json()["error"].clone();
            assert!(!error["next_steps"].as_array().unwrap().is_empty(), "{error}");
            Told::Refused(error["code"].as_str().unwrap().to_owned())
        }
        Err(_) => Told::Nothing,
    }
}

/// The ids of sandboxes in paths.
fn ids_in(paths: &[String]) -> BTreeSet<String> {
    let names = paths.iter().filter_map(|path| path.rsplit('/').next());
    names.filter(|name| name.starts_with("sb_")).map(str::to_owned).collect()
}

/// Whether daemons like this one pass a point.
pub fn is_passed_here(point: Point) -> bool {
    let images = rustix::process::geteuid().is_root()
        && std::path::Path::new("/dev/loop-control").exists()
        && ["/usr/sbin/mkfs.ext4", "/sbin/mkfs.ext4"].iter().any(|path| std::path::Path::new(path).exists());
    match point.place() {
        Where::Everywhere => true,
        Where::Images => images,
        Where::Directories => !images,
    }
}

/// A sandbox that works, whatever else.
pub fn assert_usable(ground: &Ground, name: &str) {
    let run = ground.daemon.exec(name, json!({"command": "echo works"}));
    assert_eq!(run["stdout"], "works\n", "{name}: {run}");
}
