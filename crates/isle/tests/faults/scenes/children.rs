//! The scenes of children: made, ended with their parent, ended by themselves, counted.

use isle_fail::Point;
use serde_json::json;

use super::Scene;
use crate::ground::{Ground, Told, assert_usable};

fn prepare_parent(ground: &mut Ground) {
    ground.daemon.shell("kin", "echo kept > file");
}

fn prepare_child(ground: &mut Ground) {
    prepare_parent(ground);
    ground.daemon.post("/v1/sandboxes/kin/children", json!({"name": "child", "memory": "64M"}));
    ground.daemon.shell("kin/child", "echo work > file");
}

/// A child is there only with its parent, and is then whole.
fn child_is_whole_or_gone(ground: &Ground) -> bool {
    let names = ground.names();
    if !names.contains("kin/child") {
        return false;
    }
    assert!(names.contains("kin"), "a child without its parent: {names:?}");
    let family = ground.daemon.get("/v1/sandboxes/kin/children");
    assert_eq!(family["children"][0]["name"], "kin/child", "it is nobody's child: {family}");
    assert!(family["total"]["used"].as_u64().unwrap() >= 1, "it does not count: {family}");
    assert_usable(ground, "kin/child");
    true
}

pub(crate) const SPAWN: Scene = Scene {
    name: "spawn",
    prepare: prepare_parent,
    act: |ground| {
        let body = json!({"name": "child", "memory": "64M"});
        ground.ask("POST /v1/sandboxes/kin/children", Some(&body))
    },
    settle: |_| {},
    check: |ground, told| {
        let there = child_is_whole_or_gone(ground);
        assert!(there || !matches!(told, Told::Done(_)), "it was acknowledged and is lost");
        if !there {
            let body = json!({"name": "child", "memory": "64M"});
            ground.daemon.post("/v1/sandboxes/kin/children", body);
        }
        assert_eq!(ground.daemon.shell("kin", "cat file"), "kept\n");
    },
    last: Point::CreateConfirmed,
    keeps: &[],
};

pub(crate) const CASCADE: Scene = Scene {
    name: "destroy a parent",
    prepare: prepare_child,
    act: |ground| ground.ask("DELETE /v1/sandboxes/kin", None),
    settle: |_| {},
    check: |ground, told| {
        let there = child_is_whole_or_gone(ground);
        assert!(!(there && matches!(told, Told::Done(_))), "it outlived its parent");
        assert_eq!(ground.daemon.shell("kin", "cat file"), "kept\n", "the workspace stays in any case");
    },
    last: Point::DestroyForgotten,
    keeps: &["kin"],
};

pub(crate) const DESTROY_CHILD: Scene = Scene {
    name: "destroy a child",
    act: |ground| ground.ask("DELETE /v1/children/kin%2Fchild", None),
    last: Point::ChildEnded,
    keeps: &[],
    ..CASCADE
};

pub(crate) const RESET_COUNT: Scene = Scene {
    name: "set the count of children back",
    prepare: prepare_child,
    act: |ground| ground.ask("POST /v1/sandboxes/kin/children/reset_count", Some(&json!({}))),
    settle: |_| {},
    check: |ground, told| {
        let used = ground.daemon.get("/v1/sandboxes/kin/children")["total"]["used"].as_u64().unwrap();
        assert!(used == 0 || !matches!(told, Told::Done(_)), "{used} count");
        assert_usable(ground, "kin/child");
    },
    last: Point::SpawnCountReset,
    keeps: &[],
};

pub(crate) const BRIDGE: Scene = Scene {
    name: "hand data over",
    prepare: |ground| drop(ground.daemon.shell("kin", "mkdir isle_data; echo old > isle_data/data.json")),
    act: |ground| ground.ask("POST /v1/sandboxes/kin/bridge", Some(&json!({"value": {"new": true}}))),
    settle: |_| {},
    check: |ground, told| {
        let found = ground.daemon.shell("kin", "cat isle_data/data.json");
        let new = found == "{\"new\":true}";
        assert!(new || (found == "old\n" && !matches!(told, Told::Done(_))), "{found}");
    },
    last: Point::BridgeAudited,
    keeps: &[],
};
