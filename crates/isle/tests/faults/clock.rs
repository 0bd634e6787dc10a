//! The wall clock jumps by an hour, forward and back: nothing ends early or late, and records stay in
//! order.

use serde_json::{Value, json};

use crate::ground::{Ground, Told};
use crate::harness::until;

const HOUR_MS: i64 = 3_600_000;

fn set_clock(ground: &Ground, shift_ms: i64) {
    std::fs::write(ground.file("clock-being-set"), shift_ms.to_string()).unwrap();
    std::fs::rename(ground.file("clock-being-set"), ground.file("wall_clock")).unwrap();
}

fn state(ground: &Ground, run: &Value) -> Value {
    let id = run["run_id"].as_str().unwrap();
    ground.daemon.post(&format!("/v1/runs/{id}/wait"), json!({"timeout": "0s"}))
}

#[test]
fn a_wall_clock_that_jumps_moves_no_deadline() {
    let mut ground = Ground::new();
    let long = ground.daemon.exec("box", json!({"command": "sleep 3000", "timeout": "40m", "wait": "0s"}));
    ground.daemon.post("/v1/sandboxes", json!({"sandbox": "leased", "ttl": "40m", "idle": "30m"}));
    let before = ground.daemon.get("/v1/runs?limit=1")["runs"][0]["started_at"].clone();
    let mut ended = Vec::new();
    for shift in [HOUR_MS, -HOUR_MS, 0] {
        set_clock(&ground, shift);
        let short = ground.daemon.exec("box", json!({"command": "sleep 3000", "timeout": "300ms"}));
        assert_eq!(short["state"], "timed_out", "a deadline holds at {shift}: {short}");
        assert!(short["duration_ms"].as_u64().unwrap() < 1_000_000, "{short}");
        assert_eq!(state(&ground, &long)["state"], "running", "nothing ends early at {shift}");
        assert!(ground.names().contains("leased"), "nor does a sandbox at {shift}");
        ended.push(short["run_id"].as_str().unwrap().to_owned());
        ground.restart();
        let long = state(&ground, &long);
        assert_eq!(long["state"], "running", "nor after a restart at {shift}: {long}");
        let leased = ground.ask("POST /v1/sandboxes/leased/extend", Some(&json!({"by": "1s"})));
        assert!(matches!(leased, Told::Done(_)), "nor has a sandbox expired after it: {leased:?}");
    }
    let history = ground.daemon.get("/v1/runs?limit=100");
    let runs = history["runs"].as_array().unwrap();
    let order: Vec<&str> = runs.iter().map(|run| run["run_id"].as_str().unwrap()).collect();
    let expected: Vec<&str> = ended.iter().rev().map(String::as_str).chain(long["run_id"].as_str()).collect();
    assert_eq!(order, expected, "history is in the order of events, not of clocks");
    let starts: std::collections::BTreeSet<String> =
        runs.iter().map(|run| run["started_at"].to_string()).collect();
    assert!(starts.len() == runs.len() && starts.contains(&before.to_string()), "the clock was really moved");
    ground.daemon.succeeds(&["audit", "--verify"]);
    let id = long["run_id"].as_str().unwrap();
    ground.daemon.post(&format!("/v1/runs/{id}/kill"), json!({"force": true}));
    until("it has ended", || state(&ground, &long)["state"] == "killed");
}

#[test]
fn a_run_that_is_lost_while_the_clock_goes_back_took_no_negative_time() {
    let mut ground = Ground::new();
    let run = ground.daemon.post("/v1/runs", json!({"command": "sleep 3000", "wait": "0s"}));
    ground.daemon.kill();
    set_clock(&ground, -HOUR_MS);
    ground.daemon.launch();
    let lost = state(&ground, &run);
    assert_eq!(lost["state"], "lost", "{lost}");
    assert!(lost["duration_ms"].as_u64().unwrap() < 1_000_000, "{lost}");
}
