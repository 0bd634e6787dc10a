//! Secrets that are set, given and removed.

use isle_fail::Point;
use serde_json::{Value, json};

use super::Scene;
use crate::ground::{Ground, Told};

/// No secret, and no key: the first one makes it.
fn forget_secrets(ground: &Ground) {
    for name in ["OLD", "NEW"] {
        ground.daemon.http("DELETE", &format!("/v1/secrets/{name}"), None);
    }
    std::fs::remove_file(ground.daemon.home().state_dir().join("vault.key")).ok();
}

fn secret(ground: &Ground, name: &str) -> Value {
    let listed = ground.daemon.get("/v1/secrets");
    assert!(listed.get("locked").is_none(), "{listed}");
    let all = listed["secrets"].as_array().unwrap();
    all.iter().find(|one| one["name"] == name).cloned().unwrap_or_default()
}

pub(crate) const SECRET: Scene = Scene {
    name: "set the first secret",
    prepare: |ground| forget_secrets(ground),
    act: |ground| {
        let body = json!({"name": "NEW", "value": "a new value", "hosts": ["api.test"]});
        ground.ask("POST /v1/secrets", Some(&body))
    },
    settle: |_| {},
    check: |ground, told| {
        let done = matches!(told, Told::Done(_));
        assert!(!done || secret(ground, "NEW")["version"] == 1, "it was acknowledged and is lost");
        // Whatever is there can be opened, and set anew.
        let body = json!({"name": "NEW", "value": "another value", "hosts": ["api.test"]});
        ground.daemon.post("/v1/secrets", body);
        let run = ground.daemon.exec("box", json!({"command": "echo $NEW", "expose_secrets": ["NEW"]}));
        assert_eq!(run["stdout"], "[secret NEW]\n", "{run}");
    },
    last: Point::SecretRecorded,
    keeps: &[],
};

pub(crate) const SECRET_REMOVE: Scene = Scene {
    name: "remove a secret",
    prepare: |ground| {
        ground.daemon.post("/v1/secrets", json!({"name": "OLD", "value": "an old value"}));
    },
    act: |ground| ground.ask("DELETE /v1/secrets/OLD", None),
    settle: |_| {},
    check: |ground, told| {
        let done = matches!(told, Told::Done(_));
        assert!(!done || secret(ground, "OLD").is_null(), "it was removed and is there again");
    },
    last: Point::SecretRemoved,
    keeps: &[],
};

pub(crate) const SECRET_USE: Scene = Scene {
    name: "give a sandbox a secret",
    prepare: |ground| {
        ground
            .daemon
            .post("/v1/secrets", json!({"name": "OLD", "value": "an old value", "hosts": ["a.test"]}));
        ground.daemon.shell("box", "true");
    },
    act: |ground| ground.ask("POST /v1/sandboxes/box/secrets", Some(&json!({"expose": ["OLD"]}))),
    settle: |_| {},
    check: |ground, told| {
        let found = ground.daemon.shell("box", "echo ${OLD-none}");
        let done = matches!(told, Told::Done(_));
        assert!(found == "[secret OLD]\n" || (found == "none\n" && !done), "{found}");
    },
    last: Point::SecretUseRecorded,
    keeps: &[],
};

pub(crate) const SECRET_DESTROY: Scene = Scene {
    name: "destroy a sandbox that has a secret",
    prepare: |ground| {
        (SECRET_USE.prepare)(ground);
        ground.daemon.post("/v1/sandboxes/box/secrets", json!({"expose": ["OLD"]}));
        ground.daemon.shell("box", "printf %s \"$OLD\" > kept");
    },
    act: |ground| ground.ask("DELETE /v1/sandboxes/box", None),
    settle: |_| {},
    check: |ground, told| {
        let found = ground.daemon.shell("box", "echo ${OLD-none}; cat kept");
        let done = matches!(told, Told::Done(_));
        assert!(found == "none\n[secret OLD]" || (found == "[secret OLD]\n[secret OLD]" && !done), "{found}");
    },
    last: Point::DestroyForgotten,
    keeps: &["box"],
};
