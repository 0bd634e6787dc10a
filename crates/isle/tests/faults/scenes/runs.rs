//! Commands: run once, in turn, with input, looked at, and what they are given.

use std::sync::atomic::{AtomicUsize, Ordering};

use isle_fail::Point;
use serde_json::{Value, json};

use super::Scene;
use crate::ground::{Ground, Told};
use crate::harness::until;

/// Counts itself, and says more than an agent keeps until the next run.
const COUNTED: &str = "echo run >> count; seq 1 5000";
const COUNTED_BYTES: u64 = 23_893;
/// Tells the commands of one play from those of another: history stays.
static PLAYS: AtomicUsize = AtomicUsize::new(0);

fn counted() -> String {
    format!("{COUNTED} # {}", PLAYS.load(Ordering::Relaxed))
}

pub(crate) const EXEC: Scene = Scene {
    name: "exec",
    prepare: |ground| drop(ground.daemon.shell("box", "true")),
    act: |ground| {
        PLAYS.fetch_add(1, Ordering::Relaxed);
        ground.ask("POST /v1/sandboxes/box/exec", Some(&json!({"command": counted()})))
    },
    settle: |_| {},
    check: |ground, told| {
        let runs = ground.daemon.get("/v1/runs?sandbox=box&limit=100");
        let runs: Vec<Value> = runs["runs"].as_array().unwrap().clone();
        let counted: Vec<&Value> = runs.iter().filter(|run| run["command"] == counted()).collect();
        assert!(counted.len() <= 1, "{counted:?}");
        let count = ground.daemon.shell("box", "cat count 2>/dev/null || true").lines().count();
        assert!(count <= 1, "it ran {count} times");
        if let Told::Done(answer) = told {
            let run: Value = serde_json::from_str(answer).unwrap();
            if run["state"] == "completed" {
                assert_eq!((count, counted.len()), (1, 1));
                assert_eq!(counted[0]["state"], "completed", "{run} and now {}", counted[0]);
                let logs = ground
                    .daemon
                    .get(&format!("/v1/runs/{}/logs?stream=stdout", run["run_id"].as_str().unwrap()));
                assert_eq!(logs["stdout"]["total_bytes"], COUNTED_BYTES, "{logs}");
            }
        }
    },
    last: Point::ExecForgotten,
    keeps: &[],
};

/// A run that has the lock until the file `go` is there.
fn hold_the_lock(ground: &Ground) {
    let holder = json!({"command": "while ! [ -e go ]; do sleep 0.02; done", "lock": true, "wait": "0s"});
    ground.daemon.exec("box", holder);
}

pub(crate) const TURN: Scene = Scene {
    name: "exec with lock",
    prepare: hold_the_lock_and_count,
    act: |ground| {
        PLAYS.fetch_add(1, Ordering::Relaxed);
        let body = json!({"command": counted(), "lock": true, "wait": "0s"});
        let told = ground.ask("POST /v1/sandboxes/box/exec", Some(&body));
        if let Told::Done(answer) = &told {
            let run: Value = serde_json::from_str(answer).unwrap();
            assert_eq!(run["state"], "queued", "{run}");
        }
        // Its turn comes; the daemon may die of it, or of the exec that brings it.
        let _ = ground.ask("POST /v1/sandboxes/box/exec", Some(&json!({"command": "touch go"})));
        told
    },
    settle: |ground| drop(ground.daemon.shell("box", "touch go")),
    check: |ground, told| {
        let open = |state: &str| ground.daemon.get(&format!("/v1/runs?state={state}"))["runs"].clone();
        until("nothing waits and nothing runs", || {
            open("queued") == json!([]) && open("running") == json!([])
        });
        let runs = ground.daemon.get("/v1/runs?sandbox=box&limit=100");
        let runs: Vec<Value> = runs["runs"].as_array().unwrap().clone();
        let counted: Vec<&Value> = runs.iter().filter(|run| run["command"] == counted()).collect();
        let count = ground.daemon.shell("box", "cat count 2>/dev/null || true").lines().count();
        assert!(counted.len() <= 1 && count <= 1, "it ran {count} times: {counted:?}");
        assert!(!counted.is_empty() || !matches!(told, Told::Done(_)), "it was acknowledged and is lost");
        if let Some(run) = counted.first() {
            // Who is told that it never ran must be right, and so must who is told that it did.
            assert!(run["state"] != "cancelled" || count == 0, "{run}: it ran");
            assert!(run["state"] != "completed" || count == 1, "{run}: it did not run");
        }
    },
    last: Point::ExecForgotten,
    keeps: &[],
};

fn hold_the_lock_and_count(ground: &mut Ground) {
    ground.daemon.shell("box", "rm -f go count");
    hold_the_lock(ground);
}

/// A job that waits for input in the sandbox `box`.
fn start_reader(ground: &mut Ground) {
    ground.daemon.shell("box", "rm -f heard");
    let reader =
        json!({"name": "reader", "command": "while read x; do echo $x >> heard; done", "input": true});
    ground.daemon.post("/v1/sandboxes/box/jobs", reader);
}

/// Whatever happened to whoever spoke to it, the job goes on and hears until its input ends.
fn end_reader(ground: &Ground) {
    let ended = ground.daemon.post("/v1/runs/box:reader/input", json!({"eof": true}));
    assert_eq!(ended["ended"], true, "{ended}");
    let ended = ground.daemon.post("/v1/runs/box:reader/wait", json!({"timeout": "60s"}));
    assert_eq!(ended["state"], "completed", "{ended}");
}

pub(crate) const INPUT: Scene = Scene {
    name: "write to a job",
    prepare: start_reader,
    act: |ground| ground.ask("POST /v1/runs/box:reader/input", Some(&json!({"text": "word\n"}))),
    settle: end_reader,
    check: |ground, told| {
        let heard = ground.daemon.shell("box", "cat heard 2>/dev/null || true");
        let lost = heard.is_empty() && !matches!(told, Told::Done(_));
        assert!(lost || heard == "word\n", "never twice: {heard}");
    },
    last: Point::InputAudited,
    keeps: &[],
};

/// Looks at the job for a moment, over the door a viewer comes through.
fn look(ground: &Ground) -> Told {
    ground.forget_passed();
    let output = ground
        .daemon
        .isle(&["attach", "--json", "box:reader"])
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::piped())
        .spawn();
    let mut child = output.unwrap();
    // It goes on looking until it is told not to, or the daemon dies of it.
    until("it looks, or cannot", || {
        ground.passed().iter().any(|name| name == Point::AttachAudited.name())
            || ground.has_fired()
            || child.try_wait().unwrap().is_some()
    });
    child.kill().ok();
    child.wait().unwrap();
    Told::Done(String::new())
}

pub(crate) const ATTACH: Scene = Scene {
    name: "attach",
    prepare: start_reader,
    act: look,
    settle: end_reader,
    check: |_, _| {},
    last: Point::AttachAudited,
    keeps: &[],
};

fn run_once(ground: &Ground, tier: &str) -> Told {
    let files = json!([{"path": "given", "content": "placed"}]);
    let body = json!({"command": "cat given", "files": files, "tier": tier, "allow_downgrade": true});
    ground.ask("POST /v1/runs", Some(&body))
}

fn check_once(ground: &Ground, told: &Told) {
    assert!(ground.names().is_empty());
    if let Told::Done(answer) = told {
        let run: Value = serde_json::from_str(answer).unwrap();
        let now =
            ground.daemon.post(&format!("/v1/runs/{}/wait", run["run_id"].as_str().unwrap()), json!({}));
        assert_eq!((&run["state"], &run["stdout"]), (&now["state"], &now["stdout"]), "as it was told");
    }
}

pub(crate) const ONE_SHOT: Scene = Scene {
    name: "run once",
    prepare: Ground::cool_down,
    act: |ground| run_once(ground, "container"),
    settle: |_| {},
    check: check_once,
    last: Point::OneShotRemoved,
    keeps: &[],
};

pub(crate) const ONE_SHOT_PROCESS: Scene =
    Scene { name: "run once, tier process", act: |ground| run_once(ground, "process"), ..ONE_SHOT };

pub(crate) const ENV: Scene = Scene {
    name: "set a variable",
    prepare: |ground| {
        let old = json!({"action": "set", "variables": {"A": "old", "B": "old"}});
        ground.daemon.post("/v1/sandboxes/box/env", old);
    },
    act: |ground| {
        let new = json!({"action": "set", "variables": {"A": "new", "B": "new"}});
        ground.ask("POST /v1/sandboxes/box/env", Some(&new))
    },
    settle: |_| {},
    check: |ground, told| {
        let found = ground.daemon.shell("box", "echo $A $B");
        let done = matches!(told, Told::Done(_));
        assert!(found == "new new\n" || (found == "old old\n" && !done), "{found}");
    },
    last: Point::StoreCommitted,
    keeps: &[],
};
