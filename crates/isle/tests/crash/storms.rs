//! The daemon dies at any moment while much is being made, used and removed: what was acknowledged is
//! so, what was not acknowledged happened once or not at all, and nothing else is left.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::http::try_unix;
use crate::harness::{TestDaemon, until};

const ROUNDS: u64 = 10;
const CALLERS: u64 = 4;
/// Names each caller uses; nobody else does.
const NAMES: u64 = 3;

/// Numbers that look random and are the same in every run.
#[derive(Debug)]
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Some moment within the busy time of a round. Not a wait for anything: the moment of the crash is
    /// what varies.
    fn pass_time(&mut self) {
        std::thread::sleep(Duration::from_millis(10 + self.next() % 300));
    }
}

/// Where a sandbox is, as far as its caller was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    Present,
    Absent,
    /// The last answer did not come.
    Unknown,
}

/// One caller and all it knows of its sandboxes.
#[derive(Debug)]
struct Caller {
    number: u64,
    numbers: Numbers,
    told: BTreeMap<String, Told>,
    /// What it had each sandbox write, and whether that was acknowledged.
    written: BTreeMap<String, BTreeMap<u64, Told>>,
    next: u64,
}

impl Caller {
    fn new(number: u64, seed: u64) -> Self {
        Self { number, numbers: Numbers(seed), told: BTreeMap::new(), written: BTreeMap::new(), next: 0 }
    }

    /// Asks for things until the daemon is gone.
    fn call(&mut self, socket: &Path, stop: &AtomicBool) {
        let send = |line: &str, body: Option<Value>| {
            let body = body.map(|body| body.to_string()).unwrap_or_default();
            let answer = try_unix(socket, line, &["Content-Type: application/json"], body.as_bytes());
            answer.ok().map(|answer| answer.status)
        };
        while !stop.load(Ordering::Acquire) {
            let name = format!("c{}n{}", self.number, self.numbers.next() % NAMES);
            match self.numbers.next() % 5 {
                0..=2 => {
                    self.next += 1;
                    let written = self.written.entry(name.clone()).or_default();
                    written.insert(self.next, Told::Unknown);
                    self.told.insert(name.clone(), Told::Unknown);
                    let body = json!({"command": format!("echo {} >> said", self.next)});
                    if send(&format!("POST /v1/sandboxes/{name}/exec"), Some(body)) == Some(200) {
                        written.insert(self.next, Told::Present);
                        self.told.insert(name, Told::Present);
                    }
                }
                3 => {
                    self.told.insert(name.clone(), Told::Unknown);
                    if matches!(send(&format!("DELETE /v1/sandboxes/{name}"), None), Some(200 | 404)) {
                        self.told.insert(name, Told::Absent);
                    }
                }
                _ => {
                    send("POST /v1/runs", Some(json!({"command": "true"})));
                }
            }
        }
    }

    /// Compares what it was told with what is there.
    fn check(&mut self, daemon: &TestDaemon, there: &BTreeSet<String>) {
        for (name, told) in &mut self.told {
            match told {
                Told::Present => assert!(there.contains(name), "{name} was acknowledged and is lost"),
                Told::Absent => assert!(!there.contains(name), "{name} was destroyed and is back"),
                Told::Unknown => {}
            }
            *told = if there.contains(name) { Told::Present } else { Told::Absent };
        }
        for (name, written) in &mut self.written {
            if !there.contains(name) {
                continue;
            }
            let said = daemon.shell(name, "cat said 2>/dev/null || true");
            let mut lines: Vec<u64> = said.lines().map(|line| line.parse().unwrap()).collect();
            lines.sort_unstable();
            let once: BTreeSet<u64> = lines.iter().copied().collect();
            assert_eq!(once.len(), lines.len(), "{name}: something was run twice");
            for (number, told) in written.iter() {
                assert!(*told != Told::Present || once.contains(number), "{name}: {number} was acknowledged");
            }
        }
    }
}

#[test]
fn a_daemon_killed_again_and_again_in_a_storm_loses_and_leaks_nothing() {
    let mut daemon = TestDaemon::start_with(&[("ISLE_POOL_SIZE", "2"), ("ISLE_DISK", "64M")]);
    let mut numbers = Numbers(0x1516_2342);
    let mut callers: Vec<Caller> = (0..CALLERS).map(|number| Caller::new(number, numbers.next())).collect();
    for round in 0..ROUNDS {
        println!("round {round}");
        let (stop, socket) = (AtomicBool::new(false), daemon.socket());
        std::thread::scope(|scope| {
            for caller in &mut callers {
                scope.spawn(|| caller.call(&socket, &stop));
            }
            numbers.pass_time();
            daemon.kill();
            stop.store(true, Ordering::Release);
        });
        daemon.launch();
        let there: BTreeSet<String> = daemon.names().into_iter().collect();
        for caller in &mut callers {
            caller.check(&daemon, &there);
        }
        check_counts(&daemon);
        daemon.succeeds(&["audit", "--verify"]);
    }
}

#[test]
fn sandboxes_that_were_acknowledged_survive_a_storm_of_first_calls() {
    let mut daemon = TestDaemon::start_with(&[("ISLE_POOL_SIZE", "0"), ("ISLE_DISK", "64M")]);
    let mut numbers = Numbers(0x0815_4711);
    let mut all: BTreeSet<String> = BTreeSet::new();
    for round in 0..4 {
        let socket = daemon.socket();
        let made: Vec<String> = std::thread::scope(|scope| {
            let makers: Vec<_> = (0..CALLERS)
                .map(|caller| {
                    let socket = &socket;
                    scope.spawn(move || make_until_gone(socket, &format!("r{round}c{caller}n")))
                })
                .collect();
            numbers.pass_time();
            daemon.kill();
            makers.into_iter().flat_map(|maker| maker.join().unwrap()).collect()
        });
        all.extend(made);
        daemon.launch();
        let there: BTreeSet<String> = daemon.names().into_iter().collect();
        assert!(all.is_subset(&there), "round {round}: lost {:?}", all.difference(&there));
        check_counts(&daemon);
    }
    for name in &all {
        assert_eq!(daemon.shell(name, "cat mine"), format!("{name}\n"));
    }
    daemon.succeeds(&["audit", "--verify"]);
}

/// Makes one sandbox after the other until nobody answers; gives those that were acknowledged.
fn make_until_gone(socket: &Path, prefix: &str) -> Vec<String> {
    let made = (0..).map_while(|number| {
        let name = format!("{prefix}{number}");
        let body = json!({"command": format!("echo {name} > mine")}).to_string();
        let line = format!("POST /v1/sandboxes/{name}/exec");
        let answer = try_unix(socket, &line, &["Content-Type: application/json"], body.as_bytes()).ok()?;
        (answer.status == 200).then_some(name)
    });
    made.collect()
}

/// Every sandbox has one record and one socket; nothing has any without a sandbox.
fn check_counts(daemon: &TestDaemon) {
    let listed = daemon.get("/v1/sandboxes");
    let listed = listed["sandboxes"].as_array().unwrap();
    let ids: BTreeSet<String> =
        listed.iter().map(|sandbox| sandbox["id"].as_str().unwrap().to_owned()).collect();
    assert_eq!(ids.len(), listed.len());
    until("one-shots are gone", || daemon.get("/v1/health")["one_shots"] == 0);
    let counts = daemon.counts();
    let records: BTreeSet<String> = counts.directories.iter().cloned().collect();
    assert_eq!(records, ids, "records and sandboxes");
    let names = counts.sockets.iter().filter_map(|path| path.rsplit('/').next());
    let sockets: BTreeSet<String> = names.filter(|name| name.starts_with("sb_")).map(str::to_owned).collect();
    assert_eq!(sockets, ids, "sockets and sandboxes");
}
