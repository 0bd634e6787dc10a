//! Webhooks: added, removed, and in the middle of a delivery.

use std::sync::OnceLock;

use isle_fail::Point;
use serde_json::{Value, json};

use super::Scene;
use crate::ground::{Ground, Told};
use crate::harness::Receiver;

/// One receiver for all plays.
fn receiver() -> &'static Receiver {
    static RECEIVER: OnceLock<Receiver> = OnceLock::new();
    RECEIVER.get_or_init(Receiver::start)
}

fn listed(ground: &Ground) -> Vec<Value> {
    ground.daemon.get("/v1/webhooks")["webhooks"].as_array().unwrap().clone()
}

/// Namespaces, and what is sent from them, are not cleared with sandboxes.
fn remove_all(ground: &Ground) {
    for one in listed(ground) {
        let id = one["webhook"].as_str().unwrap();
        assert_eq!(ground.daemon.http("DELETE", &format!("/v1/webhooks/{id}"), None).status, 200);
    }
}

fn add(ground: &Ground) -> Told {
    let wish = json!({"url": receiver().url(), "kind": ["run_failed"]});
    ground.ask("POST /v1/webhooks", Some(&wish))
}

pub(crate) const WEBHOOK_ADD: Scene = Scene {
    name: "add a webhook",
    // Its key is made with the first of them.
    prepare: |ground| {
        std::fs::remove_file(ground.daemon.home().state_dir().join("webhook.key")).ok();
        ground.restart();
    },
    act: add,
    settle: |_| {},
    check: |ground, told| {
        let there = listed(ground);
        assert!(there.len() <= 1, "{there:?}");
        assert!(there.len() == 1 || !matches!(told, Told::Done(_)), "it was acknowledged and is lost");
        for one in &there {
            assert!(one.get("last_error").is_none(), "half of it is left: {one}");
        }
        remove_all(ground);
        assert!(matches!(add(ground), Told::Done(_)), "another can be added");
        remove_all(ground);
    },
    last: Point::WebhookRecorded,
    keeps: &[],
};

pub(crate) const WEBHOOK_REMOVE: Scene = Scene {
    name: "remove a webhook",
    prepare: |ground| assert!(matches!(add(ground), Told::Done(_))),
    act: |ground| {
        let id = listed(ground)[0]["webhook"].as_str().unwrap().to_owned();
        ground.ask(&format!("DELETE /v1/webhooks/{id}"), None)
    },
    settle: |_| {},
    check: |ground, told| {
        let there = listed(ground);
        assert!(there.is_empty() || !matches!(told, Told::Done(_)), "it was acknowledged: {there:?}");
        remove_all(ground);
    },
    last: Point::WebhookRemoved,
    keeps: &[],
};

/// What was told before a fault is not lost: it arrives, maybe twice, and so does what happens afterwards.
pub(crate) const WEBHOOK_DELIVER: Scene = Scene {
    name: "deliver to a webhook",
    prepare: |ground| {
        receiver().forget();
        assert!(matches!(add(ground), Told::Done(_)));
        ground.daemon.shell("box", "true");
    },
    act: |ground| ground.ask("POST /v1/sandboxes/box/exec", Some(&json!({"command": "exit 3"}))),
    settle: |_| {},
    check: |ground, _| {
        ground.daemon.exec("box", json!({"command": "exit 4"}));
        receiver().until_taken("what happens later arrives", |event| event["data"]["exit_code"] == 4);
        let codes: Vec<Value> =
            receiver().taken().iter().map(|event| event["data"]["exit_code"].clone()).collect();
        assert_eq!(codes.first(), Some(&json!(3)), "in order, and nothing lost: {codes:?}");
        assert!(codes.len() <= 3, "at most the one that was under way came twice: {codes:?}");
        remove_all(ground);
    },
    last: Point::WebhookPlaced,
    keeps: &[],
};
