//! Data handed from one sandbox to another, across languages.

use serde_json::{Value, json};

use crate::contexts::{both_tiers, code};
use crate::harness::TestDaemon;
use crate::mcp::Client;

fn bridge(daemon: &TestDaemon, to: &str, body: Value) -> Value {
    daemon.post(&format!("/v1/sandboxes/{to}/bridge"), body)
}

fn said(run: &Value) -> &str {
    assert_eq!(run["state"], "completed", "{run}");
    run["stdout"].as_str().unwrap()
}

#[test]
fn what_one_language_has_another_one_in_another_sandbox_gets() {
    let daemon = TestDaemon::start();
    daemon.shell("source", "true");
    let data = json!({"numbers": [1, 2.5], "text": "\u{e4} \"quoted\" 'too'\n$HOME `x`", "nothing": null});
    let text = format!("import json\nfound = json.loads({:?})", data.to_string());
    code(&daemon, "source", json!({"code": text, "language": "python", "context": "py"}));
    for sandbox in both_tiers(&daemon) {
        daemon.shell(sandbox, "true");
        code(&daemon, sandbox, json!({"code": "1", "language": "node", "context": "js"}));
        code(&daemon, sandbox, json!({"code": "1", "language": "python", "context": "py"}));
        code(&daemon, sandbox, json!({"code": "true", "language": "shell", "context": "sh"}));
        let body = json!({"from": "source", "context": "py", "variable": "found", "name": "found"});
        let answer = bridge(&daemon, sandbox, body);
        assert_eq!(answer["path"], "/workspace/isle_data/found.json", "{answer}");
        assert_eq!(answer["contexts"].as_array().unwrap().len(), 3, "{answer}");
        let read: Value = serde_json::from_str(&daemon.shell(sandbox, "cat isle_data/found.json")).unwrap();
        assert_eq!(read, data, "the file, {sandbox}");
        let run = code(
            &daemon,
            sandbox,
            json!({"code": "process.stdout.write(JSON.stringify(isle_data.found))", "context": "js"}),
        );
        assert_eq!(serde_json::from_str::<Value>(said(&run)).unwrap(), data, "Node, {sandbox}");
        let run = code(
            &daemon,
            sandbox,
            json!({"code": "import json\nprint(json.dumps(isle_data['found']))", "context": "py"}),
        );
        assert_eq!(serde_json::from_str::<Value>(said(&run)).unwrap(), data, "Python, {sandbox}");
        let run =
            code(&daemon, sandbox, json!({"code": "printf %s \"${isle_data[found]}\"", "context": "sh"}));
        assert_eq!(serde_json::from_str::<Value>(said(&run)).unwrap(), data, "a shell, {sandbox}");
        // And back, from where it is.
        let body = json!({"from": sandbox, "context": "js", "variable": "isle_data"});
        bridge(&daemon, "source", body);
        let back: Value = serde_json::from_str(&daemon.shell("source", "cat isle_data/data.json")).unwrap();
        assert_eq!(back["found"], data, "{sandbox}");
    }
}

#[test]
fn a_value_or_a_file_is_handed_over_at_every_door() {
    let daemon = TestDaemon::start();
    daemon.shell("box", "true");
    daemon.shell("other", "echo '[1, {\"a\": null}]' > out.json; echo no json > wrong.json");
    assert_eq!(daemon.succeeds(&["bridge", "box", "{\"a\": 1}"]), "/workspace/isle_data/data.json\n");
    assert_eq!(daemon.shell("box", "cat isle_data/data.json"), "{\"a\":1}");
    daemon.succeeds(&["bridge", "box", "--from", "other", "--file", "out.json", "--as", "out"]);
    assert_eq!(daemon.shell("box", "cat isle_data/out.json"), "[1,{\"a\":null}]");
    let (mut client, _) = Client::initialized_with(&daemon, "2025-11-25", &["--toolsets", "children"]);
    let answer = client.call("bridge", json!({"sandbox": "box", "value": null, "name": "none"}));
    assert_eq!(answer["structuredContent"]["bytes"], 4, "{answer}");
    drop(client);
    assert_eq!(daemon.shell("box", "cat isle_data/none.json"), "null");
    let audit = daemon.get("/v1/audit?limit=50");
    let rows = audit["rows"].as_array().unwrap();
    assert_eq!(rows.iter().filter(|row| row["action"] == "bridge").count(), 3, "{audit}");
}

#[test]
fn what_cannot_be_handed_over_is_refused_and_changes_nothing() {
    let daemon = TestDaemon::start();
    daemon.shell("box", "echo no json > wrong.json; head -c 1100000 /dev/zero | tr '\\0' 1 > large.json");
    code(&daemon, "box", json!({"code": "f = open", "language": "python", "context": "py"}));
    let large = "x".repeat(1_100_000);
    for (to, body, expected) in [
        ("nobody", json!({"value": 1}), "SANDBOX_NOT_FOUND"),
        ("box", json!({"from": "nobody", "file": "x.json"}), "SANDBOX_NOT_FOUND"),
        ("box", json!({"from": "box", "file": "x.json"}), "FILE_NOT_FOUND"),
        ("box", json!({"from": "box", "file": "wrong.json"}), "INVALID_ARGUMENT"),
        ("box", json!({"from": "box", "file": "large.json"}), "TOO_LARGE"),
        ("box", json!({"value": large}), "TOO_LARGE"),
        ("box", json!({"from": "box", "context": "none", "variable": "x"}), "CONTEXT_NOT_FOUND"),
        ("box", json!({"from": "box", "context": "py", "variable": "f"}), "INVALID_ARGUMENT"),
        ("box", json!({"from": "box", "context": "py", "variable": "unknown"}), "INVALID_ARGUMENT"),
        ("box", json!({"from": "box", "context": "py", "variable": "f); print(1"}), "INVALID_ARGUMENT"),
        ("box", json!({"value": 1, "to_context": "none"}), "CONTEXT_NOT_FOUND"),
        ("box", json!({"value": 1, "from": "box"}), "INVALID_ARGUMENT"),
        ("box", json!({"value": 1, "name": "../x"}), "INVALID_NAME"),
        ("box", json!({}), "INVALID_ARGUMENT"),
        ("box", json!({"from": "box"}), "INVALID_ARGUMENT"),
    ] {
        let error = daemon.refused("POST", &format!("/v1/sandboxes/{to}/bridge"), Some(&body));
        let shown: String = body.to_string().chars().take(80).collect();
        assert_eq!(error["code"], expected, "{to} {shown}: {error}");
    }
    assert_eq!(daemon.shell("box", "ls"), "large.json\nwrong.json\n");
    assert!(!daemon.names().contains(&"nobody".to_owned()));
}
