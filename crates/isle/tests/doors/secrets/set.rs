//! Secrets that are set, listed, given another value and removed; and what is refused.

use serde_json::{Value, json};

use super::{REVISION, attach, set, value, with_input};
use crate::harness::{TestDaemon, finish, until};
use crate::mcp::Client;

#[test]
fn a_secret_is_set_listed_rotated_and_removed_and_never_told_again() {
    let daemon = TestDaemon::start();
    let (first, second) = (value("first"), value("second"));
    let mut answers = String::new();
    let body = json!({"name": "API_KEY", "value": first, "hosts": ["API.test."], "expires": "30d"});
    let answer = daemon.post("/v1/secrets", body);
    assert_eq!((&answer["version"], &answer["hosts"]), (&json!(1), &json!(["api.test"])), "{answer}");
    assert!(answer["expires_at"].is_string(), "{answer}");
    answers += &answer.to_string();
    // By the command line, from standard input; hosts stay, and one line end is none of the value.
    let output = with_input(daemon.isle(&["--json", "secret", "set", "API_KEY"]), &format!("{second}\n"));
    assert!(output.status.success(), "{output:?}");
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&answer["version"], &answer["hosts"]), (&json!(2), &json!(["api.test"])), "{answer}");
    assert!(answer.get("expires_at").is_none(), "{answer}");
    answers += &String::from_utf8_lossy(&output.stdout);
    let file = daemon.home().write("key.txt", "from a file\n");
    daemon.succeeds(&[
        "secret",
        "set",
        "FILED",
        "--file",
        file.to_str().unwrap(),
        "--host",
        "*.a.test",
        "--expires",
        "1h",
    ]);
    let listed = daemon.get("/v1/secrets");
    let names: Vec<&str> =
        listed["secrets"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["API_KEY", "FILED"]);
    answers += &listed.to_string();
    answers += &daemon.succeeds(&["secret", "list"]);
    let (mut client, _) = Client::initialized_with(&daemon, REVISION, &["--toolsets", "secrets"]);
    let tools = client.request("tools/list", json!({})).to_string();
    for tool in ["secret_list", "secret_attach", "secret_detach"] {
        assert!(tools.contains(&format!("\"{tool}\"")), "{tools}");
    }
    for never in ["secret_set", "secret_remove"] {
        assert!(!tools.contains(never), "a model neither says nor removes secrets: {tools}");
        let body = json!({"name": "API_KEY", "value": "x"});
        let refused = client.request("tools/call", json!({"name": never, "arguments": body}));
        assert!(refused.get("error").is_some() || refused["result"]["isError"] == true, "{refused}");
    }
    answers += &client.call("secret_list", json!({})).to_string();
    for value in [&first, &second] {
        assert!(!answers.contains(value.as_str()), "{answers}");
    }
    // Never on a command line.
    let argument = json!({"name": "API_KEY", "value": "typed"}).to_string();
    let output = finish(&mut daemon.isle(&["call", "secret_set", &argument]));
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("command line"), "{output:?}");
    assert_eq!(daemon.succeeds(&["secret", "rm", "API_KEY", "FILED"]), "API_KEY\nFILED\n");
    assert_eq!(daemon.refused("DELETE", "/v1/secrets/API_KEY", None)["code"], "SECRET_NOT_FOUND");
    assert_eq!(daemon.get("/v1/secrets")["secrets"], json!([]));
    let audit = daemon.get("/v1/audit?limit=100").to_string();
    for action in ["secret_set", "secret_remove"] {
        assert!(audit.contains(action), "{audit}");
    }
}

#[test]
fn bad_secrets_are_refused_and_change_nothing() {
    let daemon = TestDaemon::start();
    for (body, code) in [
        (json!({"name": "A", "value": ""}), "INVALID_ARGUMENT"),
        (json!({"name": "A", "value": "a\0b"}), "INVALID_ARGUMENT"),
        (json!({"name": "A", "value": "x".repeat(65_537)}), "TOO_LARGE"),
        (json!({"name": "A-B", "value": "x"}), "INVALID_NAME"),
        (json!({"name": "", "value": "x"}), "INVALID_NAME"),
        (json!({"name": "LD_PRELOAD", "value": "x"}), "INVALID_NAME"),
        (json!({"name": "A", "value": "x", "hosts": ["*"]}), "INVALID_ARGUMENT"),
        (json!({"name": "A", "value": "x", "hosts": ["https://a.test/"]}), "INVALID_ARGUMENT"),
        (json!({"name": "A", "value": "x", "expires": "0s"}), "INVALID_DURATION"),
        (json!({"name": "A", "value": "x", "expires": "soon"}), "INVALID_DURATION"),
        (json!({"name": "A"}), "INVALID_ARGUMENT"),
        (json!({"name": "A", "value": 7}), "INVALID_ARGUMENT"),
    ] {
        assert_eq!(daemon.refused("POST", "/v1/secrets", Some(&body))["code"], code, "{body}");
    }
    assert_eq!(daemon.get("/v1/secrets")["secrets"], json!([]));
    assert!(!daemon.home().state_dir().join("vault.key").exists(), "nothing needed a key");
    let output = with_input(daemon.isle(&["secret", "set", "A"]), "");
    assert!(!output.status.success());
    let short =
        daemon.post("/v1/secrets", json!({"name": "SHORT", "value": "1234567", "hosts": ["api.test"]}));
    assert!(short["note"].as_str().unwrap().contains("shorter than 8 bytes"), "{short}");
    let short = with_input(daemon.isle(&["secret", "set", "SHORT"]), "1234567");
    assert!(String::from_utf8_lossy(&short.stderr).contains("shorter than 8 bytes"), "{short:?}");
    daemon.post("/v1/secrets", json!({"name": "NOWHERE", "value": value("nowhere")}));
    daemon.post("/v1/secrets", json!({"name": "LINES", "value": "one\ntwo\nthree", "hosts": ["api.test"]}));
    daemon.post(
        "/v1/secrets",
        json!({"name": "BRIEF", "value": value("brief"), "hosts": ["api.test"], "expires": "1ms"}),
    );
    until("it has expired", || daemon.get("/v1/secrets")["secrets"][0]["expired"] == true);
    for (body, code) in [
        (json!({"secrets": ["NEVER"]}), "SECRET_NOT_FOUND"),
        (json!({"secrets": ["BRIEF"]}), "SECRET_EXPIRED"),
        (json!({"expose": ["BRIEF"]}), "SECRET_EXPIRED"),
        (json!({"expose": ["SHORT"]}), "INVALID_ARGUMENT"),
        (json!({"secrets": ["NOWHERE"]}), "INVALID_ARGUMENT"),
        (json!({"secrets": ["LINES"]}), "INVALID_ARGUMENT"),
        (json!({"secrets": ["SHORT", "SHORT"]}), "INVALID_ARGUMENT"),
        (json!({"secrets": ["SHORT=LD_PRELOAD"]}), "INVALID_ARGUMENT"),
        (json!({}), "INVALID_ARGUMENT"),
    ] {
        let error = daemon.refused("POST", "/v1/sandboxes/fresh/secrets", Some(&body));
        assert_eq!(error["code"], code, "{body}");
        if body != json!({}) {
            let run =
                json!({"command": "true", "secrets": body["secrets"], "expose_secrets": body["expose"]});
            let run = without_nulls(run);
            assert_eq!(daemon.refused("POST", "/v1/sandboxes/fresh/exec", Some(&run))["code"], code, "{run}");
            assert_eq!(daemon.refused("POST", "/v1/runs", Some(&run))["code"], code, "{run}");
        }
    }
    assert!(!daemon.names().contains(&"fresh".to_owned()), "a refusal makes no sandbox");
    daemon.shell("box", "true");
    let error =
        daemon.refused("POST", "/v1/sandboxes/box/secrets/detach", Some(&json!({"secrets": ["SHORT"]})));
    assert_eq!(error["code"], "SECRET_NOT_FOUND");
}

fn without_nulls(mut value: Value) -> Value {
    if let Some(fields) = value.as_object_mut() {
        fields.retain(|_, field| !field.is_null());
    }
    value
}

#[test]
fn secrets_outlive_the_daemon_and_rotation_holds_at_once() {
    let mut daemon = TestDaemon::start();
    let (old, new) = (value("old"), value("new"));
    set(&daemon, "KEY", &old);
    set(&daemon, "OTHER", &value("other"));
    attach(&daemon, "box", json!({"expose": ["KEY"], "secrets": ["OTHER"]}));
    daemon.shell("box", "printf %s \"$KEY\" > old");
    let placeholder = daemon.shell("box", "echo $OTHER");
    let command = "while ! [ -e go ]; do sleep 0.05; done; echo \"$KEY\"";
    let job = daemon.post("/v1/sandboxes/box/jobs", json!({"name": "late", "command": command}));
    daemon.kill();
    daemon.launch();
    assert_eq!(daemon.shell("box", "echo $OTHER"), placeholder, "the same for as long as the sandbox lives");
    assert_eq!(daemon.shell("box", "cat old; echo"), "[secret KEY]\n");
    set(&daemon, "KEY", &new);
    let shown =
        daemon.shell("box", "printf %s \"$KEY\" > new; cmp -s old new || echo differs; cat old new; echo");
    assert_eq!(shown, "differs\n[secret KEY][secret KEY]\n", "the old value is still in the sandbox");
    daemon.shell("box", "touch go");
    let path = format!("/v1/runs/{}/wait", job["run_id"].as_str().unwrap());
    let ended = daemon.post(&path, json!({"timeout": "60s"}));
    assert_eq!(ended["stdout"], "[secret KEY]\n", "a run taken over is masked too: {ended}");
    // Expired, or removed: no command gets it any more, and says so.
    daemon.post("/v1/secrets", json!({"name": "KEY", "value": new, "expires": "1ms"}));
    let run = until_without(&daemon);
    assert!(run["note"].as_str().unwrap().contains("KEY has expired"), "{run}");
    daemon.http("DELETE", "/v1/secrets/KEY", None);
    let run = daemon.exec("box", json!({"command": "echo ${KEY-none}"}));
    assert_eq!(run["stdout"], "none\n");
    assert!(run["note"].as_str().unwrap().contains("secret KEY not found"), "{run}");
    // Destroyed: the next sandbox of that name has nothing, and what the workspace kept stays masked.
    daemon.http("DELETE", "/v1/sandboxes/box", None);
    assert_eq!(daemon.shell("box", "echo ${OTHER-none}; cat old; echo"), "none\n[secret KEY]\n");
    daemon.succeeds(&["rm", "--wipe", "box"]);
}

/// A run that was not given the secret.
fn until_without(daemon: &TestDaemon) -> Value {
    crate::harness::until_some("it has expired", || {
        let run = daemon.exec("box", json!({"command": "echo ${KEY-none}"}));
        (run["stdout"] == "none\n").then_some(run)
    })
}
