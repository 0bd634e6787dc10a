//! Scenes about how long sandboxes live.

use isle_fail::Point;
use serde_json::{Value, json};

use super::Scene;
use crate::ground::{Ground, Told, assert_usable};
use crate::harness::until;

fn brief(ground: &Ground) -> Value {
    ground.daemon.get("/v1/status?sandbox=box")["sandboxes"][0].clone()
}

fn make(ground: &mut Ground, settings: Value) {
    ground.daemon.post("/v1/sandboxes", settings);
}

pub(crate) const EXTEND: Scene = Scene {
    name: "extend",
    prepare: |ground| make(ground, json!({"sandbox": "box", "ttl": "1d"})),
    act: |ground| ground.ask("POST /v1/sandboxes/box/extend", Some(&json!({"by": "20d"}))),
    settle: |_| {},
    check: |ground, told| {
        // The days of the month are the same only when nothing was moved: 21 days are no month.
        let (made, expires) = (brief(ground)["created_at"].clone(), brief(ground)["expires_at"].clone());
        let day = |time: &Value| time.as_str().unwrap()[8..10].parse::<i64>().unwrap();
        let moved = !(1..=2).contains(&(day(&expires) - day(&made)).rem_euclid(28));
        assert!(moved || !matches!(told, Told::Done(_)), "it was acknowledged and is lost: {made} {expires}");
        assert_usable(ground, "box");
    },
    last: Point::ExtendRecorded,
    keeps: &[],
};

/// A look at its files is use, which the sweeper writes down.
pub(crate) const USE: Scene = Scene {
    name: "use of a sandbox with an idle time",
    prepare: |ground| make(ground, json!({"sandbox": "box", "idle": "1h"})),
    act: |ground| ground.ask("GET /v1/sandboxes/box/files/list?path=.", None),
    settle: |_| {},
    check: |ground, _| {
        assert!(brief(ground)["idle_expires_at"].is_string(), "{}", brief(ground));
        assert_usable(ground, "box");
    },
    last: Point::SweepUseRecorded,
    keeps: &[],
};

fn set_paused(ground: &Ground, on: bool) -> Told {
    let line = if on { "POST /v1/sandboxes/box/pause" } else { "POST /v1/sandboxes/box/resume" };
    ground.ask(line, Some(&json!({})))
}

/// Sees that the sandbox is as its record says, notes which that was, and lets it come to its end.
fn see(ground: &Ground) {
    let state = brief(ground)["state"].as_str().unwrap().to_owned();
    let size = || ground.daemon.get("/v1/sandboxes/box/files/stat?path=count")["size"].as_u64().unwrap();
    let before = size();
    if state == "running" {
        until("it counts", || size() > before);
    } else {
        assert_eq!(state, "paused");
        // Somebody else needs this long for a command.
        ground.daemon.shell("other", "sleep 0.2");
        assert_eq!(size(), before, "it is paused and counts");
    }
    std::fs::write(ground.file("seen"), state).unwrap();
    ground.daemon.exec("box", json!({"command": "true", "resume": true}));
    let grown = size();
    until("it can be resumed", || size() > grown);
    ground.daemon.shell("box", "touch stop");
}

fn check_seen(ground: &Ground, told: &Told, wanted: &str) {
    let seen = std::fs::read_to_string(ground.file("seen")).unwrap();
    assert!(seen == wanted || !matches!(told, Told::Done(_)), "acknowledged, and then {seen}");
}

fn start_counting(ground: &mut Ground) {
    let command = "while ! [ -e stop ]; do echo x >> count; sleep 0.02; done";
    ground.daemon.exec("box", json!({"command": command, "wait": "0s"}));
    let counts = || ground.daemon.http("GET", "/v1/sandboxes/box/files/stat?path=count", None).status == 200;
    until("it counts", counts);
}

pub(crate) const PAUSE: Scene = Scene {
    name: "pause",
    prepare: start_counting,
    act: |ground| set_paused(ground, true),
    settle: see,
    check: |ground, told| check_seen(ground, told, "paused"),
    last: Point::PauseDone,
    keeps: &[],
};

pub(crate) const RESUME: Scene = Scene {
    name: "resume",
    prepare: |ground| {
        start_counting(ground);
        assert!(matches!(set_paused(ground, true), Told::Done(_)));
    },
    act: |ground| set_paused(ground, false),
    settle: see,
    check: |ground, told| check_seen(ground, told, "running"),
    last: Point::PauseDone,
    keeps: &[],
};

/// One whose idle time has passed as soon as it goes on.
pub(crate) const SWEEP: Scene = Scene {
    name: "sweep",
    prepare: |ground| {
        make(ground, json!({"sandbox": "box", "idle": "1s"}));
        assert!(matches!(set_paused(ground, true), Told::Done(_)));
    },
    act: |ground| set_paused(ground, false),
    settle: |_| {},
    check: |ground, _| {
        // Paused still, when nobody was told otherwise.
        ground.ask("POST /v1/sandboxes/box/resume", Some(&json!({})));
        until("it is removed", || !ground.names().contains("box"));
        assert_usable(ground, "box");
    },
    last: Point::DestroyForgotten,
    keeps: &["box"],
};
