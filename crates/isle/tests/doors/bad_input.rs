//! Everything a caller can get wrong is answered with a code, a sentence and a next step, and changes
//! nothing: at the HTTP door, on the command line and through `isle call`.

use serde_json::{Value, json};

use crate::harness::http::unix_raw;
use crate::harness::{Home, TestDaemon, finish};

#[test]
fn bad_arguments_are_refused_and_change_nothing() {
    let daemon = TestDaemon::start();
    let long = "a".repeat(64);
    let exec = |name: &str| format!("/v1/sandboxes/{name}/exec");
    let yes = json!({"command": "true"});
    let cases: Vec<(&str, String, Option<Value>, &str)> = vec![
        ("POST", exec("..%2Fx"), Some(yes.clone()), "INVALID_NAME"),
        ("POST", exec(&long), Some(yes.clone()), "INVALID_NAME"),
        ("POST", exec("a%0Ab"), Some(yes.clone()), "INVALID_NAME"),
        ("POST", exec("a%00"), Some(yes.clone()), "INVALID_NAME"),
        ("POST", exec(".hidden"), Some(yes.clone()), "INVALID_NAME"),
        ("POST", exec("%C3%A4"), Some(yes.clone()), "INVALID_NAME"),
        ("GET", "/v1/status?sandbox=nobody".into(), None, "SANDBOX_NOT_FOUND"),
        ("DELETE", "/v1/sandboxes/nobody".into(), None, "SANDBOX_NOT_FOUND"),
        ("GET", "/v1/sandboxes/nobody/files/read?path=a".into(), None, "SANDBOX_NOT_FOUND"),
        ("GET", "/v1/sandboxes/nobody/files/list".into(), None, "SANDBOX_NOT_FOUND"),
        ("POST", exec("box"), Some(json!({})), "INVALID_ARGUMENT"),
        ("POST", exec("box"), Some(json!({"command": "a", "argv": ["b"]})), "INVALID_ARGUMENT"),
        ("POST", exec("box"), Some(json!({"command": "  "})), "INVALID_ARGUMENT"),
        ("POST", exec("box"), Some(json!({"argv": "ls -l"})), "INVALID_ARGUMENT"),
        ("POST", exec("box"), Some(json!({"argv": [""]})), "INVALID_ARGUMENT"),
        ("POST", exec("box"), Some(json!({"command": "a\u{0}b"})), "INVALID_ARGUMENT"),
        ("POST", exec("box"), Some(json!({"command": "a", "colour": "red"})), "INVALID_ARGUMENT"),
        ("POST", exec("box"), Some(json!({"command": 7})), "INVALID_ARGUMENT"),
        ("POST", exec("box"), Some(json!({"command": "a", "cwd": "relative"})), "INVALID_PATH"),
        ("POST", exec("box"), Some(json!({"command": "a", "cwd": "/a/../b"})), "INVALID_PATH"),
        ("POST", exec("box"), Some(json!({"command": "a", "env": {"A=B": "c"}})), "INVALID_ARGUMENT"),
        ("POST", exec("box"), Some(json!({"command": "a", "timeout": "soon"})), "INVALID_DURATION"),
        ("POST", exec("box"), Some(json!({"command": "a", "timeout": "0s"})), "INVALID_ARGUMENT"),
        ("POST", exec("box"), Some(json!({"command": "a", "timeout": "99d"})), "INVALID_ARGUMENT"),
        ("POST", exec("box"), Some(json!({"command": "a", "wait": "-1s"})), "INVALID_DURATION"),
        ("POST", exec("box"), Some(json!({"command": "a", "output_limit": "12X"})), "INVALID_SIZE"),
        ("POST", exec("box"), Some(json!({"command": "a", "user": "admin"})), "INVALID_ARGUMENT"),
        ("POST", exec("box"), Some(json!(["command"])), "INVALID_ARGUMENT"),
        ("POST", "/v1/runs".into(), Some(json!({"command": "a", "code": "b"})), "INVALID_ARGUMENT"),
        ("POST", "/v1/runs".into(), Some(json!({"argv": ["a"], "language": "python"})), "INVALID_ARGUMENT"),
        ("GET", "/v1/runs?limit=0".into(), None, "INVALID_ARGUMENT"),
        ("GET", "/v1/runs?limit=many".into(), None, "INVALID_ARGUMENT"),
        ("GET", "/v1/runs?state=happy".into(), None, "INVALID_ARGUMENT"),
    ];
    for (method, path, body, code) in cases {
        let error = daemon.refused(method, &path, body.as_ref());
        assert_eq!(error["code"], code, "{method} {path} {body:?}: {error}");
    }
    assert!(daemon.names().is_empty(), "no sandbox was made");
    assert_eq!(daemon.get("/v1/runs")["runs"], json!([]), "no run was recorded");
}

#[test]
fn bodies_that_are_not_what_they_should_be_are_refused() {
    let daemon = TestDaemon::start();
    let send = |kind: &str, body: &str| {
        unix_raw(&daemon.socket(), "POST /v1/sandboxes/box/exec", &[kind], body.as_bytes())
    };
    let json = "Content-Type: application/json";
    for body in ["{", "{\"command\": \"a\",}", "null null", "{\"command\": \"a\", \"command\": \"b\"}"] {
        let answer = send(json, body);
        assert_eq!((answer.status, answer.code().as_str()), (400, "INVALID_ARGUMENT"), "{body}");
    }
    let answer = send("Content-Type: text/plain", "{\"command\": \"true\"}");
    assert_eq!(answer.status, 415);
    let nowhere = daemon.http("GET", "/v1/nowhere", None);
    assert_eq!(nowhere.status, 404);
    let wrong = daemon.http("GET", "/v1/sandboxes/box/exec", None);
    assert_eq!(wrong.status, 405);
    let large = format!("{{\"command\": \"{}\"}}", "x".repeat(40 << 20));
    let answer = send(json, &large);
    assert_eq!((answer.status, answer.code().as_str()), (413, "TOO_LARGE"));
    assert!(daemon.names().is_empty());
}

#[test]
fn the_command_line_says_code_sentence_and_next_step() {
    let daemon = TestDaemon::start();
    let said = |arguments: &[&str]| {
        let output = finish(&mut daemon.isle(arguments));
        assert!(!output.status.success(), "{arguments:?}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let cases: [(&[&str], &str); 8] = [
        (&["status", "nobody"], "SANDBOX_NOT_FOUND"),
        (&["rm", "nobody"], "SANDBOX_NOT_FOUND"),
        (&["exec", "../x", "--", "true"], "INVALID_NAME"),
        (&["run", "--memory", "12X", "--", "true"], "INVALID_SIZE"),
        (&["run", "--cwd", "here", "--", "true"], "INVALID_PATH"),
        (&["run", "--env", "=x", "--", "true"], "INVALID_ARGUMENT"),
        (&["logs", "run_00000000000000000000000000"], "RUN_NOT_FOUND"),
        (&["call", "exec", "{\"command\": \"a\", \"argv\": [\"b\"]}"], "INVALID_ARGUMENT"),
    ];
    for (arguments, code) in cases {
        let said = said(arguments);
        assert!(said.contains(code) && said.contains("hint: "), "{arguments:?}: {said}");
    }
    assert!(daemon.names().is_empty());
}

#[test]
fn a_dead_daemon_is_told_with_the_way_to_start_one() {
    let home = Home::new();
    let output = finish(&mut home.isle(&["--json", "ls"]));
    assert!(!output.status.success());
    let said = String::from_utf8(output.stderr).unwrap();
    let error: Value = serde_json::from_str(&said).unwrap_or_else(|why| panic!("{why}: {said}"));
    let error = error.get("error").unwrap_or(&error);
    assert_eq!(error["code"], "DAEMON_UNAVAILABLE");
    assert!(error["next_steps"][0].as_str().unwrap().contains("isle serve"), "{error}");
    assert_eq!(error["retryable"], true);
}
