//! Deny patterns: a guard rail on every way to run something.

use serde_json::{Value, json};

use crate::harness::{Home, TestDaemon, finish};
use crate::mcp::Client;

const PATTERNS: &str = "\\brm\\s+-rf\\s+/(\\s|$)\nforbidden_word{1,2}";

#[test]
fn a_forbidden_command_is_refused_by_every_door_before_anything_is_made() {
    let daemon = TestDaemon::start_with(&[("ISLE_DENY_PATTERNS", PATTERNS)]);
    let ways: [(&str, Value); 7] = [
        ("/v1/sandboxes/box/exec", json!({"command": "true && rm -rf / "})),
        ("/v1/sandboxes/box/exec", json!({"command": "r''m  \"-rf\" /"})),
        ("/v1/sandboxes/box/exec", json!({"argv": ["rm", "-rf", "/"], "wait": "0s"})),
        ("/v1/sandboxes/box/code", json!({"code": "print('forbidden_word')", "language": "python"})),
        ("/v1/sandboxes/box/code", json!({"code": "# forbidden_word", "language": "shell", "context": "c"})),
        ("/v1/runs", json!({"command": "rm -rf /"})),
        ("/v1/runs", json!({"code": "forbidden_word = 1", "language": "python"})),
    ];
    for (path, body) in &ways {
        let error = daemon.refused("POST", path, Some(body));
        assert_eq!(error["code"], "POLICY_DENIED", "{body}: {error}");
        let pattern = error["details"]["pattern"].as_str().unwrap();
        assert!(PATTERNS.lines().any(|line| line == pattern), "{error}");
        assert!(error["message"].as_str().unwrap().contains("forbids"), "{error}");
    }
    for arguments in [&["run", "--", "rm", "-rf", "/"][..], &["exec", "box", "--", "rm", "-rf", "/"]] {
        let output = finish(&mut daemon.isle(arguments));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains("error[POLICY_DENIED]"), "{said}");
    }
    let (mut client, _) = Client::initialized(&daemon, "2025-11-25");
    let answer = client.call("exec", json!({"sandbox": "box", "command": "rm -rf /"}));
    assert_eq!(answer["isError"], true, "{answer}");
    assert!(answer.to_string().contains("POLICY_DENIED"), "{answer}");
    assert!(daemon.names().is_empty(), "nothing was made for any of them");
    let audit = daemon.get("/v1/audit?limit=50");
    let denied = audit["rows"].as_array().unwrap().iter().filter(|row| row["action"] == "denied").count();
    assert_eq!(denied, ways.len() + 3, "{audit}");
    assert_eq!(daemon.shell("box", "mkdir -p x && rm -rf /workspace/x && echo charm -rf /"), "charm -rf /\n");
}

#[test]
fn the_patterns_can_be_switched_off() {
    let settings = [("ISLE_DENY_PATTERNS", "forbidden"), ("ISLE_DENY_ENABLED", "false")];
    let daemon = TestDaemon::start_with(&settings);
    assert_eq!(daemon.shell("box", "echo forbidden"), "forbidden\n");
}

#[test]
fn a_pattern_that_cannot_be_read_is_told_with_file_and_line_and_starts_nothing() {
    let home = Home::new();
    home.write(
        "config/isle/config.toml",
        "memory = \"1G\"\ndeny_patterns = [\n  'fine',\n  'not(fine',\n]\n",
    );
    for arguments in [&["config"][..], &["serve"]] {
        let output = finish(&mut home.isle(arguments));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{said}");
        assert!(said.contains("error[CONFIG_INVALID]") && said.contains("config.toml:4:"), "{said}");
        assert!(said.contains("not(fine") && said.contains("hint: "), "{said}");
    }
    home.write("config/isle/config.toml", "");
    let output = finish(home.isle(&["serve"]).env("ISLE_DENY_PATTERNS", "fine\n["));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("ISLE_DENY_PATTERNS"), "{said}");
    let workspace = Home::new();
    workspace.write(".isle.toml", "deny_enabled = false\n");
    let output = finish(&mut workspace.isle(&["config"]));
    assert!(!output.status.success(), "a workspace cannot take the rail down");
}
