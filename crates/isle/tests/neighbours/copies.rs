//! State directories that were copied: two daemons with what was one state must not share a name.

use std::process::Command;

use crate::harness::{Home, TestDaemon, finish, needs_root, require};

#[test]
fn a_copied_state_directory_leaves_the_sandboxes_of_the_original_alone() {
    require!(needs_root("copy files of the ids of sandboxes"));
    let daemon = TestDaemon::start();
    daemon.shell("box", "echo kept > file");
    let copy = Home::new();
    let copied = Command::new("cp")
        .args(["-a", "--sparse=always", "--no-target-directory"])
        .args([daemon.home().state_dir(), copy.state_dir()])
        .status();
    assert!(copied.unwrap().success());
    // With the same runtime directory, as a copy beside the original has.
    let isle = |arguments: &[&str]| {
        let mut command = copy.isle(arguments);
        command.env("ISLE_RUNTIME_DIR", daemon.home().runtime_dir());
        finish(command.env_remove("ISLE_NO_AUTOSTART").env("ISLE_POOL_SIZE", "0"))
    };
    let listed = isle(&["ls", "--json"]);
    assert!(listed.status.success(), "{listed:?}");
    let logged = std::fs::read_to_string(copy.state_dir().join("daemon.log")).unwrap();
    assert!(logged.contains("copied or moved"), "{logged}");
    let removed = isle(&["rm", "--all", "--wipe"]);
    assert!(removed.status.success(), "{removed:?}");
    let run = isle(&["run", "--", "true"]);
    assert!(run.status.success(), "{run:?}");
    assert!(isle(&["stop"]).status.success());
    assert_eq!(daemon.shell("box", "cat file"), "kept\n");
    let listed = daemon.get("/v1/sandboxes");
    assert_eq!(listed["sandboxes"].as_array().unwrap().len(), 1, "{listed}");
    assert_ne!(listed["sandboxes"][0]["state"], "failed", "{listed}");
}

#[test]
fn a_renamed_state_directory_keeps_its_identity() {
    let home = Home::new();
    let isle = |state: &str, arguments: &[&str]| {
        let mut command = home.isle(arguments);
        command.env("ISLE_STATE_DIR", home.path().join(state));
        finish(command.env_remove("ISLE_NO_AUTOSTART").env("ISLE_POOL_SIZE", "0"))
    };
    let id = |state: &str| {
        let text = std::fs::read_to_string(home.path().join(state).join("instance")).unwrap();
        serde_json::from_str::<serde_json::Value>(&text).unwrap()["id"].as_str().unwrap().to_owned()
    };
    assert!(isle("one", &["ls"]).status.success());
    assert!(isle("one", &["stop"]).status.success());
    let before = id("one");
    std::fs::rename(home.path().join("one"), home.path().join("two")).unwrap();
    assert!(isle("two", &["ls"]).status.success());
    assert!(isle("two", &["stop"]).status.success());
    assert_eq!(id("two"), before);
    assert_eq!(before.len(), 32, "128 bits");
}

#[test]
fn a_daemon_killed_while_it_made_its_identity_leaves_a_usable_state() {
    let home = Home::new();
    std::fs::create_dir_all(home.state_dir()).unwrap();
    // What a kill between writing and renaming leaves.
    std::fs::write(home.state_dir().join("instance.new"), "{\"id\":").unwrap();
    let isle = |arguments: &[&str]| finish(home.isle(arguments).env_remove("ISLE_NO_AUTOSTART"));
    let listed = isle(&["ls"]);
    assert!(listed.status.success(), "{listed:?}");
    assert!(isle(&["stop"]).status.success());
    let instance = home.state_dir().join("instance");
    let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&instance).unwrap());
    assert_eq!(mode & 0o777, 0o600);
    // A damaged one is said where the lock has no record of it, and nothing is minted in its place.
    std::fs::write(&instance, "not an identity").unwrap();
    std::fs::remove_file(home.state_dir().join("isle.lock")).unwrap();
    let refused = isle(&["ls", "--json"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("STATE_DAMAGED"), "{refused:?}");
    assert!(said.contains("instance"), "{said}");
    assert_eq!(std::fs::read_to_string(&instance).unwrap(), "not an identity");
}
