//! Processes whose first thread has ended while another goes on. The kernel shows them as zombies without
//! memory; they run all the same, so they end, stand still and are counted like everybody.

use serde_json::{Value, json};

use crate::harness::{Case, Missing, TestDaemon, per_tier, processes_with, require, until};

/// Leaves the first thread, while another touches so much memory and then writes or computes for ever.
fn headless(marker: &str, mib: u32, then: &str) -> String {
    format!(
        "import ctypes, os, threading, time  # {marker}
def go_on():
    keep = bytearray(b'x') * ({mib} << 20)
    while True: {then}
threading.Thread(target=go_on).start()
number = 93 if os.uname().machine == 'aarch64' else 60
ctypes.CDLL(None).syscall(number, 0)
"
    )
}

const WRITE: &str = "open('beats', 'a').write('x'); time.sleep(0.01)";

fn marker(number: u32) -> String {
    format!("headless-{number}-{}", std::process::id())
}

fn needs_python(daemon: &TestDaemon) -> Result<(), Missing> {
    daemon.needs("box", "python3 -c 'import ctypes'", "python3 with ctypes")
}

/// The states of the living threads of everybody with this marker.
fn states(marker: &str) -> Vec<u8> {
    let threads = |pid: i32| std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let state = |entry: std::fs::DirEntry| {
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        stat.rsplit_once(") ")?.1.bytes().next()
    };
    let all = processes_with(marker).into_iter().flat_map(threads).filter_map(state);
    all.filter(|state| !matches!(state, b'Z' | b'X')).collect()
}

/// Somebody with this marker lives without a first thread.
fn is_headless(marker: &str) -> bool {
    processes_with(marker).into_iter().any(|pid| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('Z'))
    })
}

fn sandbox(daemon: &TestDaemon, tier: &str, mut settings: Value) -> Result<(), Missing> {
    settings["sandbox"] = json!("box");
    settings["tier"] = json!(tier);
    daemon.post("/v1/sandboxes", settings);
    needs_python(daemon)
}

per_tier!(a_process_without_its_first_thread_ends_with_its_run);

fn a_process_without_its_first_thread_ends_with_its_run(Case { tier, .. }: Case) {
    let number = if tier == "container" { 10 } else { 20 };
    let daemon = TestDaemon::start();
    require!(sandbox(&daemon, tier, json!({})));
    // Behind the first process of a run, and as the first.
    let behind = marker(number);
    let run = json!({"argv": ["sh", "-c", "python3 -c \"$0\" & sleep 600", headless(&behind, 0, WRITE)],
            "timeout": "2s", "wait": "20s"});
    let run = daemon.exec("box", run);
    assert_eq!(run["state"], "timed_out", "{tier}: {run}");
    until("nothing of it is left", || processes_with(&behind).is_empty());
    let first = marker(number + 1);
    let run = json!({"argv": ["python3", "-c", headless(&first, 0, WRITE)], "timeout": "2s", "wait": "20s"});
    let run = daemon.exec("box", run);
    assert_eq!(run["state"], "timed_out", "{tier}: {run}");
    until("nothing of it is left", || processes_with(&first).is_empty());
    // One that is killed, and one that outlives its run.
    let killed = marker(number + 2);
    let run = json!({"argv": ["python3", "-c", headless(&killed, 0, WRITE)], "wait": "0s"});
    let run = daemon.exec("box", run)["run_id"].as_str().unwrap().to_owned();
    until("its first thread has ended", || is_headless(&killed));
    daemon.post(&format!("/v1/runs/{run}/kill"), json!({"force": true}));
    assert_eq!(daemon.post(&format!("/v1/runs/{run}/wait"), json!({}))["state"], "killed");
    until("nothing of it is left", || processes_with(&killed).is_empty());
    let left = marker(number + 3);
    let script = "python3 -c \"$0\" </dev/null >/dev/null 2>&1 & while ! [ -e beats ]; do sleep 0.1; done";
    daemon.exec("box", json!({"command": "rm -f beats"}));
    daemon.exec("box", json!({"argv": ["sh", "-c", script, headless(&left, 0, WRITE)]}));
    until("nothing of it is left", || processes_with(&left).is_empty());
    // The sandbox was not ended to achieve that.
    assert_eq!(daemon.shell("box", "test -s beats && echo same"), "same\n");
    let events = daemon.get("/v1/events/history?sandbox=box&kind=sandbox_unresponsive");
    assert_eq!(events["events"].as_array().map(Vec::len), Some(0), "{events}");
}

#[test]
fn a_context_without_its_first_thread_is_ended() {
    let daemon = TestDaemon::start();
    require!(needs_python(&daemon));
    let code = headless("in a context", 0, WRITE);
    let body = json!({"code": code, "language": "python", "context": "c", "timeout": "2s", "wait": "30s"});
    let run = daemon.post("/v1/sandboxes/box/code", body.clone());
    assert_eq!(run["state"], "timed_out", "{run}");
    let mut once = body;
    once.as_object_mut().unwrap().remove("context");
    let run = daemon.post("/v1/sandboxes/box/code", once);
    assert_eq!(run["state"], "timed_out", "{run}");
    let run = daemon.post("/v1/sandboxes/box/code", json!({"code": "print(1)", "language": "python"}));
    assert_eq!(run["stdout"], "1\n", "{run}");
}

per_tier!(a_process_without_its_first_thread_stands_still_in_a_paused_sandbox);

fn a_process_without_its_first_thread_stands_still_in_a_paused_sandbox(Case { tier, .. }: Case) {
    let number = if tier == "container" { 50 } else { 51 };
    let daemon = TestDaemon::start();
    require!(sandbox(&daemon, tier, json!({})));
    let marker = marker(number);
    daemon.exec("box", json!({"argv": ["python3", "-c", headless(&marker, 0, WRITE)], "wait": "0s"}));
    until("its first thread has ended", || is_headless(&marker));
    daemon.post("/v1/sandboxes/box/pause", json!({}));
    until("it stands still", || states(&marker).iter().all(|&state| matches!(state, b'T' | b't')));
    assert!(!states(&marker).is_empty(), "it was not ended");
    daemon.post("/v1/sandboxes/box/resume", json!({}));
    until("it goes on", || states(&marker).iter().any(|&state| !matches!(state, b'T' | b't')));
}

per_tier!(memory_of_processes_without_their_first_thread_is_limited);

fn memory_of_processes_without_their_first_thread_is_limited(Case { tier, .. }: Case) {
    let number = if tier == "container" { 60 } else { 70 };
    let daemon = TestDaemon::start();
    require!(sandbox(&daemon, tier, json!({"memory": "128M"})));
    let program = headless(&marker(number), 60, "time.sleep(1)");
    // Each tells its own end: which of them the kernel chooses is not known.
    let all = "for i in 1 2 3 4; do (python3 -c \"$0\"; echo ended $?) & done; wait";
    let run = daemon.exec("box", json!({"argv": ["sh", "-c", all, program], "wait": "0s"}));
    let run = run["run_id"].as_str().unwrap().to_owned();
    // Three of them have too much, and none ends by itself.
    until("one of them is killed", || {
        let logs = daemon.get(&format!("/v1/runs/{run}/logs?stream=stdout"));
        logs["state"] == "oom_killed" || logs["stdout"]["text"].as_str().unwrap().contains("ended 137")
    });
    assert_eq!(daemon.shell("box", "echo alive"), "alive\n", "{tier}");
}

per_tier!(processes_without_their_first_thread_get_no_more_than_their_share_of_cpu);

fn processes_without_their_first_thread_get_no_more_than_their_share_of_cpu(Case { tier, .. }: Case) {
    let daemon = TestDaemon::start();
    require!(sandbox(&daemon, tier, json!({"cpus": 0.2})));
    let used = || daemon.get("/v1/status?sandbox=box")["detail"]["usage"]["cpu_ms"].as_f64().unwrap();
    let before = used();
    let program = headless(&marker(if tier == "container" { 90 } else { 91 }), 0, "pass");
    let both = "python3 -c \"$0\" & python3 -c \"$0\" & sleep 600";
    let run = json!({"argv": ["sh", "-c", both, program], "timeout": "6s", "wait": "40s"});
    let run = daemon.exec("box", run);
    assert_eq!(run["state"], "timed_out", "{run}");
    let share = (used() - before) / run["duration_ms"].as_f64().unwrap();
    assert!(share <= 0.4, "{tier}: used {share} CPUs of 0.2");
}
