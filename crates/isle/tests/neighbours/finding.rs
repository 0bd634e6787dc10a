//! What a daemon makes outside its state directory carries the identity of the state directory.

use std::path::Path;

use crate::harness::{TestDaemon, instance, tiers};

#[test]
fn everything_outside_the_state_directory_carries_its_identity() {
    let daemon = TestDaemon::start();
    for tier in tiers() {
        let settings = serde_json::json!({"sandbox": tier, "tier": tier, "allow_downgrade": true});
        daemon.post("/v1/sandboxes", settings);
    }
    let name = instance(&daemon.home().state_dir());
    let text = std::fs::read_to_string(daemon.home().state_dir().join("instance")).unwrap();
    let id = serde_json::from_str::<serde_json::Value>(&text).unwrap()["id"].as_str().unwrap().to_owned();
    assert_eq!(name, format!("isle-{id}"));
    let runtime: Vec<String> = std::fs::read_dir(daemon.home().runtime_dir())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    assert!(!runtime.is_empty() && runtime.iter().all(|entry| entry.starts_with(&id)), "{runtime:?}");
    if rustix::process::geteuid().is_root() {
        let counts = daemon.counts();
        assert!(!counts.cgroups.is_empty(), "cgroups are found by the identity");
        if tiers().contains(&"process") {
            assert!(Path::new("/var/lib").join(&name).is_dir());
        }
    }
}
