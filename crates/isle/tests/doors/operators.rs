//! What an operator asks and changes is one thing at every door.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::harness::TestDaemon;
use crate::mcp::Client;

/// The names of all fields, wherever they stand.
fn fields(value: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut open = vec![(String::new(), value)];
    while let Some((path, value)) = open.pop() {
        match value {
            Value::Object(fields) => {
                open.extend(fields.iter().map(|(name, value)| (format!("{path}.{name}"), value)));
            }
            Value::Array(items) => open.extend(items.iter().map(|item| (format!("{path}[]"), item))),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => drop(found.insert(path)),
        }
    }
    found
}

#[test]
fn what_an_operator_asks_is_answered_alike_at_every_door() {
    let policy = "box = {}";
    let daemon = TestDaemon::start_with(&[("ISLE_SPAWN_POLICIES", policy)]);
    daemon.post("/v1/sandboxes", json!({"sandbox": "box", "ttl": "2h", "env": {"PLAIN": "seen"}}));
    daemon.post("/v1/sandboxes/box/children", json!({"name": "child"}));
    daemon.post("/v1/sandboxes/box/jobs", json!({"command": "sleep 600", "name": "server"}));
    daemon.shell("box/child", "true");
    daemon.succeeds(&["token", "create", "--namespace", "other"]);
    let listed = daemon.get("/v1/sandboxes")["sandboxes"].clone();
    let child = listed.as_array().unwrap().iter().find(|one| one["name"] == "box/child").unwrap();
    assert!(child["expires_at"].is_string(), "the time a child was given is told everywhere: {child}");
    let flags = ["--toolsets", "admin,children,lifecycle"];
    let (mut client, _) = Client::initialized_with(&daemon, "2025-11-25", &flags);
    let boxed = json!({"sandbox": "box"});
    for (operation, arguments, route) in [
        ("inspect", boxed.clone(), "/v1/inspect?sandbox=box"),
        ("usage", boxed, "/v1/usage?sandbox=box"),
        ("children", json!({"parent": "box"}), "/v1/sandboxes/box/children"),
        ("events", json!({"sandbox": "box/child"}), "/v1/events/history?sandbox=box%2Fchild"),
        ("stats", json!({}), "/v1/stats"),
        ("list_tokens", json!({}), "/v1/tokens"),
    ] {
        let by_http = daemon.get(route);
        let by_model = client.call(operation, arguments.clone())["structuredContent"].clone();
        let by_hand = daemon.succeeds(&["call", operation, &arguments.to_string()]);
        let by_hand: Value = serde_json::from_str(&by_hand).unwrap();
        assert_eq!(fields(&by_model), fields(&by_http), "{operation}");
        assert_eq!(fields(&by_hand), fields(&by_http), "{operation}");
        assert!(!fields(&by_http).is_empty(), "{operation}");
    }
    // What a model changes is what everybody sees.
    let changed = client.call("limits", json!({"memory": "96M"}))["structuredContent"].clone();
    assert_eq!(changed["now"]["memory"], "96M", "{changed}");
    assert_eq!(daemon.post("/v1/limits", json!({}))["now"], changed["now"]);
    let shown = daemon.succeeds(&["limits"]);
    assert!(shown.contains("96M"), "{shown}");
}
