//! An attacker, a neighbour whose patience is measured, and what is looked at when it is over.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{Missing, TestDaemon, processes_with, until};

/// How often the neighbour is asked; the median counts.
const SAMPLES: usize = 11;
/// What is forgiven on top of three times the quiet time. A quiet `true` takes a few milliseconds, less
/// than the slices the scheduler deals in; a sandbox that has used up its CPU quota makes whoever waits
/// for the same core wait for a period of 100 ms, and other tests run beside this one on two cores. A
/// neighbour that is really starved waits for seconds.
const FORGIVEN: Duration = Duration::from_millis(300);

/// The attacker's sandbox.
pub(crate) const WILD: &str = "wild";
const CALM: &str = "calm";

/// A daemon with two sandboxes.
pub(crate) struct Arena {
    pub(crate) daemon: TestDaemon,
    quiet: Duration,
}

impl Arena {
    /// `settings` are those of the attacker.
    pub(crate) fn new(mut settings: Value) -> Self {
        let daemon = TestDaemon::start();
        settings["sandbox"] = json!(WILD);
        daemon.post("/v1/sandboxes", settings);
        daemon.shell(CALM, "true");
        daemon.shell(WILD, "true");
        let quiet = median(&daemon);
        Self { daemon, quiet }
    }

    /// Whether this host enforces a limit for the attacker.
    pub(crate) fn needs_enforced(&self, key: &str) -> Result<(), Missing> {
        self.daemon.needs_enforced(WILD, key)
    }

    /// Whether the kernel counts something for the attacker.
    pub(crate) fn has_cgroups(&self) -> bool {
        let status = self.daemon.get(&format!("/v1/status?sandbox={WILD}"));
        status["detail"]["usage"]["oom_kills"].is_u64()
    }

    /// Runs a Python attack to its end.
    pub(crate) fn run(&self, program: &str) -> Value {
        self.daemon.exec(WILD, json!({"argv": ["python3", "-c", program], "timeout": "60s", "wait": "70s"}))
    }

    /// Starts a Python attack that would go on for ever, waits until it says that it is at its worst,
    /// measures the neighbour, and ends it. Gives the run as it ended.
    pub(crate) fn endure(&self, program: &str) -> Value {
        let body = json!({"argv": ["python3", "-c", program], "wait": "0s"});
        let run = self.daemon.exec(WILD, body)["run_id"].as_str().unwrap().to_owned();
        until("the attack is at its worst", || {
            let logs = self.daemon.get(&format!("/v1/runs/{run}/logs?stream=stderr"));
            let worst = logs["stderr"]["text"].as_str().unwrap().contains("worst");
            assert!(worst || logs["state"] == "running" || logs["state"] == "queued", "it ended: {logs}");
            worst
        });
        self.assert_neighbour_calm();
        self.daemon.post(&format!("/v1/runs/{run}/kill"), json!({"force": true}));
        self.daemon.post(&format!("/v1/runs/{run}/wait"), json!({}))
    }

    /// The neighbour is answered within three times its quiet time, give or take scheduling.
    pub(crate) fn assert_neighbour_calm(&self) {
        let now = median(&self.daemon);
        let bound = self.quiet * 3 + FORGIVEN;
        assert!(now <= bound, "a neighbour's `true` took {now:?} instead of {:?}", self.quiet);
    }

    /// Nothing of the attack is left: the sandbox is as empty as a new one and works.
    pub(crate) fn assert_all_gone(&self, marker: &str) {
        until("every process of it is gone", || processes_with(marker).is_empty());
        let usage = || self.daemon.get(&format!("/v1/status?sandbox={WILD}"))["detail"]["usage"].clone();
        if usage()["pids"].is_u64() {
            until("only the agent is left", || usage()["pids"] == 1);
        }
        assert_eq!(self.daemon.shell(WILD, "echo alive"), "alive\n");
    }
}

fn median(daemon: &TestDaemon) -> Duration {
    let mut times: Vec<Duration> = (0..SAMPLES)
        .map(|_| {
            let began = Instant::now();
            daemon.shell(CALM, "true");
            began.elapsed()
        })
        .collect();
    times.sort();
    times[SAMPLES / 2]
}

/// The run says that this limit was met, what it is, and how to raise it; people are told the same.
pub(crate) fn assert_names(run: &Value, limit: &str, value: &str) {
    let hit = run["limits_hit"].as_array().and_then(|all| all.iter().find(|one| one["limit"] == limit));
    let hit = hit.unwrap_or_else(|| panic!("{limit} is not named: {run}"));
    assert!(hit["value"].as_str().unwrap().contains(value), "{hit}");
    let raise = hit["raise"].as_str().unwrap();
    assert!(raise.len() > 20, "how to raise it: {hit}");
    let note = run["note"].as_str().unwrap_or_else(|| panic!("no note: {run}"));
    assert!(note.contains(value), "the note does not say {value}: {note}");
}

/// A word only one test has in its command lines.
pub(crate) fn marker(test: impl std::fmt::Display) -> String {
    format!("wild-{test}-{}", std::process::id())
}
