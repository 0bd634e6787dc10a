//! Sandboxes that are made, destroyed, wiped and made anew.

use isle_fail::Point;
use serde_json::{Value, json};

use super::Scene;
use crate::ground::{Ground, Told, assert_usable};

fn create(ground: &Ground, settings: Value) -> Told {
    ground.ask("POST /v1/sandboxes", Some(&settings))
}

fn check_created(ground: &Ground, told: &Told) {
    let there = ground.names().contains("box");
    assert!(there || !matches!(told, Told::Done(_)), "it was acknowledged and is lost");
    if !there {
        assert!(ground.volumes().is_empty(), "half of it is left: {:?}", ground.volumes());
    }
    // Whole, or not at all: in both cases the name can be used.
    assert_usable(ground, "box");
}

pub(crate) const CREATE: Scene = Scene {
    name: "create",
    prepare: Ground::cool_down,
    act: |ground| create(ground, json!({"sandbox": "box"})),
    settle: |_| {},
    check: check_created,
    last: Point::CreateConfirmed,
    keeps: &[],
};

pub(crate) const CREATE_PROCESS: Scene = Scene {
    name: "create, tier process",
    act: |ground| create(ground, json!({"sandbox": "box", "tier": "process", "allow_downgrade": true})),
    ..CREATE
};

pub(crate) const DESTROY: Scene = Scene {
    name: "destroy",
    prepare: |ground| drop(ground.daemon.shell("box", "echo kept > file")),
    act: |ground| ground.ask("DELETE /v1/sandboxes/box", None),
    settle: |_| {},
    check: |ground, told| {
        assert!(!(matches!(told, Told::Done(_)) && ground.names().contains("box")), "it is back");
        assert_eq!(ground.daemon.shell("box", "cat file"), "kept\n", "the workspace stays in any case");
    },
    last: Point::DestroyForgotten,
    keeps: &["box"],
};

fn check_wiped(ground: &Ground, told: &Told) {
    if matches!(told, Told::Done(_)) {
        assert!(!ground.names().contains("box"), "it is back");
        assert!(!ground.volumes().contains("box"), "its workspace is still there");
    }
    let found = ground.daemon.shell("box", "cat file 2>/dev/null || true");
    // Once the intent is on record the wipe is carried out, whatever happens and whatever was answered.
    let may_be_there = !matches!(told, Told::Done(_)) && !ground.was_begun();
    assert!(found.is_empty() || (found == "kept\n" && may_be_there), "{found}");
}

pub(crate) const WIPE: Scene = Scene {
    name: "destroy and wipe",
    act: |ground| ground.ask("DELETE /v1/sandboxes/box", Some(&json!({"wipe": true}))),
    check: check_wiped,
    ..DESTROY
};

pub(crate) const WIPE_PROCESS: Scene = Scene {
    name: "destroy and wipe, tier process",
    prepare: |ground| {
        let told = create(ground, json!({"sandbox": "box", "tier": "process", "allow_downgrade": true}));
        assert!(matches!(told, Told::Done(_)), "{told:?}");
        ground.daemon.shell("box", "echo kept > file");
    },
    ..WIPE
};

pub(crate) const WIPE_KEPT: Scene = Scene {
    name: "wipe a workspace without a sandbox",
    prepare: |ground| {
        ground.daemon.shell("box", "echo kept > file");
        let told = ground.ask("DELETE /v1/sandboxes/box", None);
        assert!(matches!(told, Told::Done(_)), "{told:?}");
    },
    last: Point::WipeRemoved,
    ..WIPE
};

/// A sandbox with settings of its own, something in its workspace and something that a reset takes.
fn prepare_reset(ground: &mut Ground) {
    let told = create(ground, json!({"sandbox": "box", "pids": 77}));
    assert!(matches!(told, Told::Done(_)), "{told:?}");
    ground.daemon.shell("box", "echo kept > file; echo kept > ~/.cache/file; echo gone > ~/gone");
}

pub(crate) const RESET: Scene = Scene {
    name: "reset",
    prepare: prepare_reset,
    act: |ground| ground.ask("POST /v1/sandboxes/box/reset", Some(&json!({}))),
    settle: |_| {},
    check: |ground, told| {
        let status = ground.daemon.get("/v1/status?sandbox=box");
        assert_eq!(status["detail"]["limits"]["pids"], 77, "its settings stay in any case: {status}");
        let found = ground.daemon.shell("box", "cat file ~/.cache/file; cat ~/gone 2>/dev/null || true");
        let allowed: &[&str] = match told {
            Told::Done(_) => &["kept\nkept\n"],
            Told::Refused(_) | Told::Nothing => &["kept\nkept\n", "kept\nkept\ngone\n"],
        };
        assert!(allowed.contains(&found.as_str()), "{found}");
    },
    last: Point::ReplaceForgotten,
    keeps: &[],
};

pub(crate) const RESET_EMPTIED: Scene = Scene {
    name: "reset with an empty workspace",
    act: |ground| ground.ask("POST /v1/sandboxes/box/reset", Some(&json!({"wipe": true}))),
    check: |ground, told| {
        let found = ground.daemon.shell("box", "cat ~/.cache/file; cat file 2>/dev/null || true");
        let allowed: &[&str] = match told {
            Told::Done(_) => &["kept\n"],
            Told::Refused(_) | Told::Nothing if ground.was_begun() => &["kept\n"],
            Told::Refused(_) | Told::Nothing => &["kept\n", "kept\nkept\n"],
        };
        assert!(allowed.contains(&found.as_str()), "{found}");
    },
    ..RESET
};
