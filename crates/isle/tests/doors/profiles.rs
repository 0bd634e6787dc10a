//! Profiles: settings of sandboxes under a name.

use serde_json::{Value, json};

use crate::harness::{Home, TestDaemon, finish, has_process_tier};
use crate::mcp::Client;

const PROFILES: &str = r#"
pids = 99

[profiles.small]
cpus = 0.5
memory = "64M"
ttl = "2h"
idle = "1h"
env = { KIND = "small", SHADE = "grey" }

[profiles.plain]
tier = "process"
allow_downgrade = true
"#;

/// A daemon that has them.
fn start() -> TestDaemon {
    let mut daemon = TestDaemon::start();
    daemon.home().write("config/isle/config.toml", PROFILES);
    daemon.terminate();
    daemon.launch();
    daemon
}

fn status(daemon: &TestDaemon, sandbox: &str) -> Value {
    daemon.get(&format!("/v1/status?sandbox={sandbox}"))
}

#[test]
fn a_profile_gives_what_a_call_leaves_out() {
    let mut daemon = start();
    let made = daemon
        .post("/v1/sandboxes", json!({"sandbox": "box", "profile": "small", "memory": "80M", "ttl": "1h"}));
    assert_eq!((&made["profile"], &made["limits"]["cpus"]), (&json!("small"), &json!(0.5)), "{made}");
    assert_eq!(made["limits"]["memory"], "80M", "what is said is stronger: {made}");
    assert_eq!(made["limits"]["pids"], 99, "what nobody says is the default: {made}");
    assert!(made["expires_at"].is_string() && made["idle_expires_at"].is_string(), "{made}");
    let env = json!({"command": "echo $KIND $SHADE $CALL", "env": {"CALL": "call"}});
    assert_eq!(daemon.exec("box", env.clone())["stdout"], "small grey call\n");
    daemon.post("/v1/sandboxes/box/env", json!({"action": "set", "variables": {"SHADE": "blue"}}));
    assert_eq!(
        daemon.exec("box", env.clone())["stdout"],
        "small blue call\n",
        "what was set later is stronger"
    );
    daemon.kill();
    daemon.launch();
    assert_eq!(daemon.exec("box", env.clone())["stdout"], "small blue call\n");
    assert_eq!(status(&daemon, "box")["sandboxes"][0]["profile"], "small");

    if has_process_tier() {
        let plain = daemon.exec("plain", json!({"command": "echo ran", "profile": "plain"}));
        assert_eq!((&plain["stdout"], &plain["tier"]), (&json!("ran\n"), &json!("process")), "{plain}");
    }
    let once = daemon.post("/v1/runs", json!({"command": "echo $KIND; ulimit -v", "profile": "small"}));
    assert!(once["stdout"].as_str().unwrap().starts_with("small\n"), "{once}");

    // The same on the command line, where what files say is weaker than a profile, too.
    let words = ["--profile", "small", "--", "sh", "-c", "echo $KIND"];
    assert_eq!(daemon.succeeds(&[&["run"], &words[..]].concat()), "small\n");
    assert_eq!(daemon.succeeds(&[&["exec", "typed"], &words[..]].concat()), "small\n");
    assert_eq!(status(&daemon, "typed")["detail"]["limits"]["memory"], "64M");
    let output = finish(&mut daemon.isle(&["exec", "--profile", "plain", "typed", "--", "true"]));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("ALREADY_EXISTS"), "one that exists was made by another: {said}");
}

#[test]
fn an_unknown_profile_is_refused_with_those_there_are_and_makes_nothing() {
    let daemon = start();
    for (path, body) in [
        ("/v1/sandboxes", json!({"sandbox": "box", "profile": "large"})),
        ("/v1/sandboxes/box/exec", json!({"command": "true", "profile": "large"})),
        ("/v1/runs", json!({"command": "true", "profile": "large"})),
    ] {
        let error = daemon.refused("POST", path, Some(&body));
        assert_eq!(error["code"], "PROFILE_NOT_FOUND", "{path}: {error}");
        assert_eq!(error["details"]["profiles"], json!(["plain", "small"]), "{path}: {error}");
    }
    assert!(!daemon.names().contains(&"box".to_owned()));
    daemon.exec("box", json!({"command": "true", "profile": "small"}));
    daemon.exec("box", json!({"command": "true", "profile": "small"}));
    let other = json!({"command": "true", "profile": "plain"});
    assert_eq!(daemon.refused("POST", "/v1/sandboxes/box/exec", Some(&other))["code"], "ALREADY_EXISTS");
    daemon.shell("box", "true");
}

#[test]
fn a_model_and_the_command_line_use_profiles_and_the_settings_show_them() {
    let daemon = start();
    daemon.succeeds(&["create", "box", "--profile", "small", "--pids", "50"]);
    let limits = status(&daemon, "box")["detail"]["limits"].clone();
    assert_eq!((&limits["memory"], &limits["pids"]), (&json!("64M"), &json!(50)), "{limits}");
    let (mut client, _) = Client::initialized_with(&daemon, "2025-11-25", &[]);
    let ran = client.call("exec", json!({"sandbox": "other", "command": "echo $KIND", "profile": "small"}));
    assert_eq!(ran["structuredContent"]["stdout"], "small\n", "{ran}");
    let settings: Value = serde_json::from_str(&daemon.succeeds(&["config", "--json"])).unwrap();
    assert_eq!(settings["profiles"]["value"]["small"]["memory"], "64M", "{settings}");
    assert_eq!(settings["profiles"]["value"]["plain"]["tier"], "process", "{settings}");
}

#[test]
fn a_profile_that_could_make_no_sandbox_is_told_with_file_and_line_and_starts_nothing() {
    for (text, line, word) in [
        ("\n[profiles.small]\nmemory = \"12X\"\n", 3, "memory"),
        ("[profiles.small]\n\nmemroy = \"64M\"\n", 3, "memroy"),
        ("\n\n[profiles.small]\nmemory = \"1M\"\n", 3, "16M"),
        ("[profiles.fine]\ncpus = 1\n[profiles.long]\nttl = \"90d\"\n", 3, "30d"),
        ("[profiles.\"../up\"]\ncpus = 1\n", 1, "name"),
        ("[profiles.x]\nenv = { LD_PRELOAD = \"x\" }\n", 1, "loader"),
        ("profiles = \"small\"\n", 1, "table"),
    ] {
        let home = Home::new();
        home.write("config/isle/config.toml", text);
        let output = finish(&mut home.isle(&["serve"]));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{text}: {said}");
        let place = format!("config.toml:{line}:");
        assert!(said.contains("error[CONFIG_INVALID]") && said.contains(&place), "{text}: {said}");
        assert!(said.contains(word) && said.contains("hint: "), "{text}: {said}");
    }
    let workspace = Home::new();
    workspace.write(".isle.toml", "[profiles.small]\ncpus = 1\n");
    let output = finish(&mut workspace.isle(&["config"]));
    assert!(!output.status.success(), "a workspace has no profiles");
}
