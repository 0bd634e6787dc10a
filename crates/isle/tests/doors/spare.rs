//! The sandbox `default`, which is made ready when the daemon starts.

use serde_json::Value;

use crate::harness::{TestDaemon, until};

const READY: &[(&str, &str)] = &[("ISLE_WARM_DEFAULT", "true")];

/// The id of `default`, once it runs.
fn made_ready(daemon: &TestDaemon) -> String {
    let mut id = String::new();
    until("it is made ready", || {
        let sandbox: Value = daemon.get("/v1/sandboxes")["sandboxes"][0].clone();
        id = sandbox["id"].as_str().unwrap_or_default().to_owned();
        sandbox["name"] == "default" && sandbox["state"] == "running"
    });
    id
}

#[test]
fn a_default_that_nobody_used_goes_when_the_daemon_is_stopped() {
    let mut daemon = TestDaemon::start_with(READY);
    let first = made_ready(&daemon);
    // Looking at it is not using it.
    daemon.succeeds(&["status", "default"]);
    daemon.succeeds(&["usage"]);
    assert!(daemon.terminate().success());
    let counts = daemon.counts();
    assert!(counts.directories.is_empty(), "{counts:?}");
    daemon.try_launch_with(&[("ISLE_WARM_DEFAULT", "false")]).unwrap();
    assert!(daemon.names().is_empty(), "nobody wanted it");
    let removed = daemon.get("/v1/audit?action=destroy_sandbox")["rows"][0].clone();
    assert!(removed.to_string().contains("before anybody used it"), "{removed}");
    daemon.terminate();
    daemon.launch();
    assert_ne!(made_ready(&daemon), first);
}

#[test]
fn a_default_that_was_used_or_found_after_a_crash_stays() {
    let mut daemon = TestDaemon::start_with(READY);
    let first = made_ready(&daemon);
    daemon.kill();
    daemon.launch();
    assert_eq!(made_ready(&daemon), first, "the next daemon found it");
    daemon.shell("default", "echo mine > /tmp/file");
    for _ in 0..2 {
        daemon.terminate();
        daemon.launch();
        assert_eq!(made_ready(&daemon), first);
        assert_eq!(daemon.shell("default", "cat /tmp/file"), "mine\n");
    }
    // Made ready again, and used by a file only.
    daemon.succeeds(&["rm", "default"]);
    daemon.terminate();
    daemon.launch();
    let second = made_ready(&daemon);
    daemon.post(
        "/v1/sandboxes/default/files/write",
        serde_json::json!({"files": [{"path": "/tmp/a", "content": "b"}]}),
    );
    daemon.terminate();
    daemon.launch();
    assert_eq!(made_ready(&daemon), second);
}
