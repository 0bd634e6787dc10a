//! A vault whose key is missing, wrong or not kept well.

use std::os::unix::fs::PermissionsExt;

use serde_json::json;

use super::{attach, set, value};
use crate::harness::TestDaemon;

#[test]
fn without_its_key_nothing_of_the_vault_is_used_or_changed() {
    let (good, wrong) = ("ab".repeat(32), "cd".repeat(32));
    let mut daemon = TestDaemon::start_with(&[("ISLE_VAULT_KEY", &good)]);
    let secret = value("locked");
    set(&daemon, "KEY", &secret);
    assert!(!daemon.home().state_dir().join("vault.key").exists());
    attach(&daemon, "box", json!({"expose": ["KEY"]}));
    daemon.terminate();
    daemon.try_launch_with(&[("ISLE_VAULT_KEY", &wrong)]).unwrap();
    let listed = daemon.get("/v1/secrets");
    assert!(listed["locked"].as_str().unwrap().contains("another key"), "{listed}");
    assert_eq!(listed["secrets"][0]["name"], "KEY");
    for (path, body) in [
        ("/v1/secrets", json!({"name": "KEY", "value": "new"})),
        ("/v1/secrets", json!({"name": "NEW", "value": "new"})),
        ("/v1/sandboxes/box/secrets", json!({"secrets": ["KEY"]})),
        ("/v1/sandboxes/box/exec", json!({"command": "true", "secrets": ["KEY"]})),
        // It has a value that could not be masked.
        ("/v1/sandboxes/box/exec", json!({"command": "true"})),
    ] {
        assert_eq!(daemon.refused("POST", path, Some(&body))["code"], "VAULT_LOCKED", "{path} {body}");
    }
    daemon.terminate();
    daemon.try_launch_with(&[("ISLE_VAULT_KEY", &good)]).unwrap();
    assert_eq!(daemon.get("/v1/secrets")["secrets"].as_array().unwrap().len(), 1);
    assert_eq!(daemon.shell("box", "echo $KEY"), "[secret KEY]\n");
    // A file of its own is for its owner alone, and never made anew over secrets.
    drop(daemon);
    let mut daemon = TestDaemon::start();
    set(&daemon, "KEY", &secret);
    let path = daemon.home().state_dir().join("vault.key");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let key = std::fs::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    daemon.terminate();
    daemon.launch();
    let error = daemon.refused("POST", "/v1/secrets", Some(&json!({"name": "KEY", "value": "new"})));
    assert_eq!(error["code"], "VAULT_LOCKED");
    assert!(!path.exists(), "a fresh key opens nothing");
    std::fs::write(&path, key).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    let error = daemon.refused("POST", "/v1/secrets", Some(&json!({"name": "KEY", "value": "new"})));
    assert!(error["message"].as_str().unwrap().contains("readable by others"), "{error}");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    set(&daemon, "KEY", &value("again"));
    assert_eq!(daemon.get("/v1/secrets")["secrets"][0]["version"], 2);
}
