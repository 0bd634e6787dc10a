//! Less than a tier promises: never given silently, allowed the same way everywhere, and told in the
//! result of every run.

use serde_json::{Value, json};

use crate::harness::{TestDaemon, finish, needs_tier, needs_user, part, require};

#[test]
fn a_result_names_the_tier_in_force_and_what_did_not_hold() {
    let daemon = TestDaemon::start();
    let kept = |run: &Value, sandbox: &str| {
        let status = daemon.get(&format!("/v1/status?sandbox={sandbox}"));
        let lines = status["detail"]["containment"].as_array().unwrap().clone();
        let missing: Vec<Value> =
            lines.iter().filter(|line| line["status"] == "missing").map(|line| line["key"].clone()).collect();
        let told = run.get("not_enforced").cloned().unwrap_or_else(|| json!([]));
        assert_eq!(told, Value::Array(missing), "{run}");
    };
    let run = daemon.exec("box", json!({"command": "true"}));
    assert_eq!(run["tier"], "container", "{run}");
    kept(&run, "box");
    if !part(needs_tier("process")) {
        return;
    }
    daemon.post("/v1/sandboxes", json!({"sandbox": "weak", "tier": "process"}));
    let run = daemon.exec("weak", json!({"command": "true"}));
    assert_eq!(run["tier"], "process");
    kept(&run, "weak");
    let once = daemon.post("/v1/runs", json!({"command": "true", "tier": "process"}));
    assert_eq!(once["tier"], "process", "{once}");
    assert!(once["not_enforced"].as_array().unwrap().contains(&json!("namespaces")), "{once}");
    let output = finish(&mut daemon.isle(&["run", "--json", "--tier", "process", "--", "true"]));
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&told["tier"], &told["not_enforced"]), (&once["tier"], &once["not_enforced"]), "{told}");
    let id = once["run_id"].as_str().unwrap();
    let again = daemon.post(&format!("/v1/runs/{id}/wait"), json!({}));
    assert_eq!((&again["tier"], &again["not_enforced"]), (&once["tier"], &once["not_enforced"]));
}

#[test]
fn a_downgrade_is_allowed_by_flag_environment_or_configuration_alike() {
    let daemon = TestDaemon::start_with(&[("ISLE_ALLOW_DOWNGRADE", "false"), ("ISLE_TIER", "process")]);
    let plain = finish(&mut daemon.isle(&["run", "--", "true"]));
    require!(needs_tier("process"));
    require!(needs_user(
        !plain.status.success(),
        "the kernel enforces all that tier process promises to this user"
    ));
    for arguments in [&["run", "--", "true"][..], &["exec", "box", "--", "true"]] {
        let refused = finish(&mut daemon.isle(arguments));
        let said = String::from_utf8(refused.stderr).unwrap();
        assert!(said.contains("BACKEND_UNAVAILABLE") && said.contains("--allow-downgrade"), "{said}");
    }
    let run = finish(&mut daemon.isle(&["run", "--json", "--allow-downgrade", "--", "true"]));
    let told: Value = serde_json::from_slice(&run.stdout).unwrap();
    assert!(!told["not_enforced"].as_array().unwrap().is_empty(), "{told}");
    daemon.succeeds(&["exec", "--allow-downgrade", "box", "--", "sh", "-c", "echo kept > file"]);
    assert_eq!(daemon.succeeds(&["exec", "box", "--", "cat", "file"]), "kept\n", "made once, used as it is");
    for arguments in [&["run", "--", "true"][..], &["exec", "by-environment", "--", "true"]] {
        let allowed = finish(daemon.isle(arguments).env("ISLE_ALLOW_DOWNGRADE", "true"));
        assert!(allowed.status.success(), "{}", String::from_utf8_lossy(&allowed.stderr));
    }
    daemon.home().write("config/isle/config.toml", "allow_downgrade = true\n");
    daemon.succeeds(&["exec", "by-configuration", "--", "true"]);
}
