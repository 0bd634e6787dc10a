//! Directories made alike, and a fault on the way: each tree that was sent is whole or not there, and what is
//! done again makes them alike.

use isle_fail::Point;
use serde_json::json;

use super::Scene;
use super::files::{host_root, prepare_host};
use crate::ground::{Ground, Told};

fn body(ground: &Ground, below: &str) -> serde_json::Value {
    json!({"host_path": host_root(ground).join(below), "path": "tree", "delete": true})
}

pub(crate) const PUSH: Scene = Scene {
    name: "push a directory",
    prepare: |ground| {
        prepare_host(ground);
        ground.daemon.shell("box", "mkdir tree; echo extra > tree/extra; echo old > tree/a");
    },
    act: |ground| ground.ask("POST /v1/sandboxes/box/sync/push", Some(&body(ground, "tree"))),
    settle: |_| {},
    check: |ground, told| {
        let found = || {
            ground
                .daemon
                .shell("box", "cd tree; for f in *; do printf '%s: ' $f; head -c 3 $f; printf '; '; done")
        };
        let said = found();
        let sent = said.contains("b: new");
        assert!(sent || !matches!(told, Told::Done(_)), "{said}");
        assert_eq!(sent, said.contains("a: new"), "half of what was sent is there: {said}");
        ground.daemon.post("/v1/sandboxes/box/sync/push", body(ground, "tree"));
        assert_eq!(found(), "a: new; b: new; ");
    },
    last: Point::UnpackAudited,
    keeps: &[],
};

pub(crate) const PULL: Scene = Scene {
    name: "pull a directory",
    prepare: |ground| {
        prepare_host(ground);
        ground.daemon.shell("box", "mkdir tree; echo one > tree/x; echo two > tree/y");
        let out = host_root(ground).join("out");
        std::fs::create_dir(&out).unwrap();
        std::fs::write(out.join("extra"), "extra").unwrap();
    },
    act: |ground| ground.ask("POST /v1/sandboxes/box/sync/pull", Some(&body(ground, "out"))),
    settle: |_| {},
    check: check_pulled,
    last: Point::CopyOutAudited,
    keeps: &[],
};

pub(crate) const PULL_NEW: Scene = Scene {
    name: "pull a directory that the host does not have",
    prepare: |ground| {
        prepare_host(ground);
        ground.daemon.shell("box", "mkdir tree; echo one > tree/x; echo two > tree/y");
    },
    ..PULL
};

fn check_pulled(ground: &Ground, told: &Told) {
    let out = host_root(ground).join("out");
    let there = |name: &str| out.join(name).exists();
    assert!(there("x") || !matches!(told, Told::Done(_)));
    assert_eq!(there("x"), there("y"), "half of what was sent is there");
    ground.daemon.post("/v1/sandboxes/box/sync/pull", body(ground, "out"));
    let mut left: Vec<_> = std::fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["x", "y"], "and nothing else");
}
