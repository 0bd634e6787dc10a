//! What jobs print beyond what is kept of it elsewhere, in files of the host. Whatever happens to them, the
//! job goes on, and what it prints later is kept again by the next daemon.

use std::path::PathBuf;

use isle_fail::Point;
use serde_json::{Value, json};

use super::Scene;
use crate::ground::{Ground, Told};
use crate::harness::until;

/// What it prints for each line it is given: as much as one of its files may hold.
const PIECE: u64 = 20_000;
/// The third one has no room: the first goes.
const PIECES: u64 = 3;

fn files(ground: &Ground) -> PathBuf {
    ground.daemon.home().state_dir().join("jobs")
}

/// A job that prints in pieces, each written at once, so that each is heard at once.
fn start_printer(ground: &mut Ground) {
    let command = format!("while read -r line; do dd if=/dev/zero bs={PIECE} count=1 status=none; done");
    let printer = json!({"name": "printer", "command": command, "input": true});
    ground.daemon.post("/v1/sandboxes/box/jobs", printer);
}

/// How much was heard of it; `None` when nobody answers.
fn heard(ground: &Ground) -> Option<u64> {
    match ground.ask("GET /v1/runs/box:printer/logs?stream=stdout&tail=0", None) {
        Told::Done(text) => serde_json::from_str::<Value>(&text).unwrap()["stdout"]["total_bytes"].as_u64(),
        Told::Refused(code) => panic!("{code}"),
        Told::Nothing => None,
    }
}

fn print(ground: &Ground) -> Told {
    for piece in 1..=PIECES {
        let told = ground.ask("POST /v1/runs/box:printer/input", Some(&json!({"text": "more\n"})));
        until("it is heard, or nobody listens any more", || {
            ground.has_fired() || heard(ground).is_none_or(|bytes| bytes >= piece * PIECE)
        });
        if ground.has_fired() || told == Told::Nothing {
            break;
        }
    }
    Told::Done(String::new())
}

/// It goes on, whoever heard it before, and ends as it should.
fn print_last(ground: &Ground) {
    let before = heard(ground).unwrap();
    ground.daemon.post("/v1/runs/box:printer/input", json!({"text": "last\n", "eof": true}));
    let ended = ground.daemon.post("/v1/runs/box:printer/wait", json!({"timeout": "60s"}));
    assert_eq!(ended["state"], "completed", "{ended}");
    assert!(heard(ground).unwrap() >= before + PIECE, "what it printed last was heard");
}

pub(crate) const JOB_FILES: Scene = Scene {
    name: "keep what a job prints",
    prepare: start_printer,
    act: print,
    settle: print_last,
    check: |ground, _| {
        let total = heard(ground).unwrap();
        assert_eq!(total % PIECE, 0, "all of it is counted: {total}");
        // Further back than what is kept elsewhere.
        let from = total - PIECE + 100;
        let page = format!("/v1/runs/box:printer/logs?stream=stdout&offset={from}&limit=100");
        let page = ground.daemon.get(&page)["stdout"].clone();
        let (lost, offset) = (page["lost_bytes"].as_u64().unwrap_or(0), page["offset"].as_u64());
        assert_eq!((lost, offset), (0, Some(from)), "what stands there was kept");
        let of_one = |run: &str| {
            let names = std::fs::read_dir(files(ground)).unwrap().map(|entry| entry.unwrap().file_name());
            names.filter(|name| name.to_string_lossy().starts_with(run)).count()
        };
        let runs = ground.daemon.get("/v1/jobs?sandbox=box");
        let run = runs["jobs"][0]["run_id"].as_str().unwrap();
        assert!((1..=2).contains(&of_one(run)), "{} files of one job", of_one(run));
    },
    last: Point::SpoolDropped,
    keeps: &[],
};

pub(crate) const JOB_FILES_SWEPT: Scene = Scene {
    name: "remove what a forgotten job printed",
    prepare: |ground| {
        ground.daemon.shell("box", "true");
        std::fs::create_dir_all(files(ground)).unwrap();
        std::fs::write(files(ground).join("run_forgotten.stdout.00000000000000000000"), "old").unwrap();
    },
    act: |ground| {
        ground.ask("POST /v1/sandboxes/box/jobs", Some(&json!({"name": "other", "command": "true"})))
    },
    settle: |_| {},
    check: |ground, _| {
        let left = std::fs::read_dir(files(ground)).unwrap().map(|entry| entry.unwrap().file_name());
        assert_eq!(left.filter(|name| name.to_string_lossy().contains("forgotten")).count(), 0);
    },
    last: Point::SpoolSwept,
    keeps: &[],
};
