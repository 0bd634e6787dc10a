//! Answers to requests for network, and what a namespace is granted.

use isle_fail::Point;
use serde_json::{Value, json};

use super::Scene;
use crate::ground::{Ground, Told};

/// A sandbox that asks for a name.
fn ask_for_name(ground: &mut Ground) {
    let run = ground.daemon.exec("box", json!({"command": "getent hosts wanted.test"}));
    assert_eq!(run["state"], "failed", "{run}");
}

fn answer(ground: &Ground, how: &str, body: Value) -> Told {
    let requests = ground.daemon.get("/v1/network/requests");
    let request = requests["requests"][0]["request"].as_str().unwrap_or_else(|| panic!("{requests}"));
    ground.ask(&format!("POST /v1/network/requests/{request}/{how}"), Some(&body))
}

fn granted(ground: &Ground) -> String {
    ground.daemon.get("/v1/sandboxes/box/grants").to_string()
}

pub(crate) const APPROVE: Scene = Scene {
    name: "approve a request",
    prepare: ask_for_name,
    act: |ground| answer(ground, "approve", json!({"scope": "sandbox"})),
    settle: |_| {},
    check: |ground, told| {
        let done = matches!(told, Told::Done(_));
        let grants = granted(ground);
        assert!(grants.contains("wanted.test") || !done, "it was acknowledged and is lost: {grants}");
    },
    last: Point::GrantRecorded,
    keeps: &[],
};

pub(crate) const DENY: Scene = Scene {
    name: "deny a request",
    prepare: ask_for_name,
    act: |ground| answer(ground, "deny", json!({})),
    settle: |_| {},
    check: |ground, told| {
        assert!(!granted(ground).contains("wanted.test"), "a fault grants nothing");
        let audit = ground.daemon.get("/v1/audit?limit=500").to_string();
        assert!(audit.contains("deny_request") || !matches!(told, Told::Done(_)), "{audit}");
    },
    last: Point::AnswerRecorded,
    keeps: &[],
};

pub(crate) const NAMESPACE: Scene = Scene {
    name: "grant network to a namespace",
    prepare: |ground| {
        ground.daemon.post("/v1/grants", json!({"hosts": ["old.test:443"]}));
        ground.daemon.shell("box", "true");
    },
    act: |ground| ground.ask("POST /v1/grants", Some(&json!({"hosts": ["new.test:443"]}))),
    settle: |_| {},
    check: |ground, told| {
        let grants = granted(ground);
        assert!(grants.contains("old.test:443"), "an earlier grant is lost: {grants}");
        let done = matches!(told, Told::Done(_));
        let has_new = grants.contains("new.test:443");
        assert!(has_new || !done, "it was acknowledged and is lost: {grants}");
        // Namespaces are not cleared with sandboxes.
        let mut hosts = vec!["old.test:443"];
        hosts.extend(has_new.then_some("new.test:443"));
        ground.daemon.post("/v1/grants/revoke", json!({"hosts": hosts}));
    },
    last: Point::NamespaceGrantRecorded,
    keeps: &[],
};

pub(crate) const GRANT: Scene = Scene {
    name: "grant network",
    prepare: |ground| {
        ground.daemon.post("/v1/sandboxes/box/grants", json!({"hosts": ["old.test:443"]}));
    },
    act: |ground| ground.ask("POST /v1/sandboxes/box/grants", Some(&json!({"hosts": ["new.test:443"]}))),
    settle: |_| {},
    check: |ground, told| {
        let grants = ground.daemon.get("/v1/sandboxes/box/grants").to_string();
        assert!(grants.contains("old.test:443"), "an earlier grant is lost: {grants}");
        let done = matches!(told, Told::Done(_));
        assert!(grants.contains("new.test:443") || !done, "it was acknowledged and is lost: {grants}");
    },
    last: Point::GrantRecorded,
    keeps: &[],
};

/// The first command after requests were granted that are looked at inside TLS.
pub(crate) const TRUST: Scene = Scene {
    name: "trust the opened gate",
    prepare: |ground| {
        ground.daemon.post("/v1/sandboxes/box/grants", json!({"hosts": ["https://new.test/a GET"]}));
    },
    act: |ground| {
        // It says more than an agent keeps until the next run.
        let command = json!({"command": "cat /etc/isle/ca.pem; seq 1 5000"});
        ground.ask("POST /v1/sandboxes/box/exec", Some(&command))
    },
    settle: |_| {},
    check: |ground, told| {
        let now = ground.daemon.shell("box", "cat /etc/isle/ca.pem");
        assert!(now.starts_with("-----BEGIN CERTIFICATE-----"), "{now}");
        if let Told::Done(answer) = told {
            let run: Value = serde_json::from_str(answer).unwrap();
            let then = run["stdout"].as_str().unwrap_or_default();
            assert!(run["state"] != "completed" || then.starts_with(&now), "another authority: {then} {now}");
        }
    },
    last: Point::ExecForgotten,
    keeps: &[],
};
