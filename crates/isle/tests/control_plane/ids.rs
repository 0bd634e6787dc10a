//! Identifiers and names that are almost right: another sandbox's, guessed, used again, spelled
//! differently. Each means exactly one thing or nothing.

use serde_json::{Value, json};

use crate::harness::http::unix_raw;
use crate::harness::{TestDaemon, until};
use crate::support::{proper, refused};

/// Starts something that runs until it is ended; gives its id.
fn long_run(daemon: &TestDaemon, sandbox: &str) -> String {
    let run = daemon.exec(sandbox, json!({"command": "echo from here; exec sleep 600", "wait": "0s"}));
    run["run_id"].as_str().unwrap().to_owned()
}

fn state(daemon: &TestDaemon, run: &str) -> Value {
    daemon.post(&format!("/v1/runs/{run}/wait"), json!({"timeout": "0s"}))["state"].clone()
}

#[test]
fn a_run_is_reached_by_its_own_id_only() {
    let daemon = TestDaemon::start();
    let (one, two) = (long_run(&daemon, "one"), long_run(&daemon, "two"));
    let last = one.chars().last().unwrap();
    let neighbour = if last == 'z' { '0' } else { 'z' };
    let guesses = [
        "run_00000000000000000000000000".to_owned(),
        "run_zzzzzzzzzzzzzzzzzzzzzzzzzz".to_owned(),
        format!("{}{neighbour}", &one[..one.len() - 1]),
        one.to_uppercase(),
        one[..one.len() - 1].to_owned(),
        format!("{one}0"),
        format!("{one}%00"),
        format!("{one}%0a"),
        format!("%20{one}"),
        format!("{one}%2F"),
        format!("..%2F{one}"),
        one.replace("run_", "sb_"),
        one.replace("run_", ""),
        "one".to_owned(),
        "%2e%2e".to_owned(),
        "*".to_owned(),
        "1".to_owned(),
    ];
    for guess in &guesses {
        for (method, action) in [("GET", "logs"), ("POST", "wait"), ("POST", "kill"), ("GET", "events")] {
            let body = (method == "POST").then(|| json!({}));
            let answer = daemon.http(method, &format!("/v1/runs/{guess}/{action}"), body.as_ref());
            assert!(matches!(answer.status, 400 | 404), "{guess} {action}: {}", answer.text());
            let answer = answer.json();
            let code = proper(&answer["error"])["code"].as_str().unwrap();
            assert!(
                ["RUN_NOT_FOUND", "JOB_NOT_FOUND", "INVALID_ARGUMENT"].contains(&code),
                "{guess} {action}: {code}"
            );
            assert!(!answer.to_string().contains("from here"));
        }
    }
    // Naming a sandbox beside a run of another one changes nothing about whose run it is.
    let mixed = daemon.http("POST", &format!("/v1/runs/{one}/kill"), Some(&json!({"sandbox": "two"})));
    refused(&mixed, 400, "INVALID_ARGUMENT", "a sandbox beside a run");
    let mixed = daemon.http("POST", &format!("/v1/runs/{one}/kill"), Some(&json!({"run_id": two})));
    refused(&mixed, 400, "INVALID_ARGUMENT", "two runs in one call");
    assert_eq!((state(&daemon, &one), state(&daemon, &two)), (json!("running"), json!("running")));

    daemon.post(&format!("/v1/runs/{one}/kill"), json!({"force": true}));
    assert_eq!((state(&daemon, &one), state(&daemon, &two)), (json!("killed"), json!("running")));
    daemon.post(&format!("/v1/runs/{two}/kill"), json!({"force": true}));
}

#[test]
fn an_id_is_never_used_again() {
    let daemon = TestDaemon::start();
    let old = long_run(&daemon, "box");
    let logs = |run: &str| daemon.get(&format!("/v1/runs/{run}/logs")).to_string();
    until("it has spoken", || logs(&old).contains("from here"));
    assert_eq!(daemon.http("DELETE", "/v1/sandboxes/box", None).status, 200);
    let new = long_run(&daemon, "box");
    assert_ne!(old, new);
    for body in [json!({}), json!({"force": true}), json!({"signal": "KILL"})] {
        let answer = daemon.http("POST", &format!("/v1/runs/{old}/kill"), Some(&body));
        refused(&answer, 409, "RUN_FINISHED", &body.to_string());
    }
    assert_eq!(state(&daemon, &new), "running", "what was asked for is gone; its successor is not meant");
    assert!(logs(&old).contains("from here"), "its record is still its own");
    daemon.post(&format!("/v1/runs/{new}/kill"), json!({"force": true}));
}

#[test]
fn a_name_has_one_spelling() {
    let daemon = TestDaemon::start();
    let post = |name: &str| {
        let path = format!("/v1/sandboxes/{name}/exec");
        daemon.http("POST", &path, Some(&json!({"command": "pwd"})))
    };
    let refused_names = [
        "..",
        "%2e%2e",
        "%252e%252e",
        ".",
        "%2e",
        "box%2F..%2Fother",
        "box%2f",
        "%2fbox",
        "box%5c",
        "box%5C..%5Cx",
        "box%00",
        "%00box",
        "box%0a",
        "box%0d%0aX-Evil:1",
        "box%20",
        "%20box",
        "box%3Fa",
        "box%23",
        "b%C3%B6x",
        "%EF%BC%8E%EF%BC%8E",
        "box%E2%80%AE",
        "box%1b%5B2J",
        "-box",
        "box*",
        "%ff",
        "box;id",
        "$(id)",
    ];
    for name in refused_names {
        let answer = post(name);
        assert!(matches!(answer.status, 400 | 404), "{name}: {} {}", answer.status, answer.text());
        proper(&answer.json()["error"]);
    }
    for path in [
        "/v1//sandboxes/box/exec",
        "/v1/sandboxes//box/exec",
        "/v1/sandboxes/box//exec",
        "//v1/sandboxes/box/exec",
        "/v1/sandboxes/../sandboxes/box/exec",
        "/V1/sandboxes/box/exec",
        "/v1/./sandboxes/box/exec",
        "/v1/sandboxes/box/exec/",
        "/v1\\sandboxes\\box\\exec",
        "/v1/sandboxes/box/%65xec%00",
    ] {
        let answer = daemon.http("POST", path, Some(&json!({"command": "pwd"})));
        assert!(matches!(answer.status, 400 | 404 | 405), "{path}: {} {}", answer.status, answer.text());
        proper(&answer.json()["error"]);
    }
    assert!(daemon.names().is_empty(), "{:?}", daemon.names());

    // The one encoding every client may use, and names that only look alike.
    for name in ["%62ox", "box", "Box", "box.", "box-1", "box-10"] {
        assert_eq!(post(name).status, 200, "{name}");
    }
    let mut names = daemon.names();
    names.sort();
    assert_eq!(names, ["Box", "box", "box-1", "box-10", "box."]);
    daemon.shell("box-1", "echo mine > note");
    for other in ["box", "Box", "box.", "box-10"] {
        assert_eq!(daemon.shell(other, "ls"), "", "{other}");
    }
}

#[test]
fn a_file_is_reached_from_its_own_sandbox_only() {
    let daemon = TestDaemon::start();
    let canary = daemon.home().write("canary", "CANARY of the host");
    let canary = canary.to_str().unwrap();
    daemon.shell("ws-1", "echo harmless > note.html");
    daemon.shell("ws-10", "echo CANARY of another > secret");
    let read = |sandbox: &str, path: &str| {
        let line = format!("GET /v1/sandboxes/{sandbox}/files/content?path={path}");
        unix_raw(&daemon.socket(), &line, &[], b"")
    };
    let encoded = canary.replace('/', "%2F");
    let paths = [
        canary.to_owned(),
        encoded.clone(),
        encoded.replace("%2F", "%252F"),
        "..".into(),
        "../ws-10/secret".into(),
        "%2e%2e%2fws-10%2fsecret".into(),
        "%252e%252e%252fsecret".into(),
        "..%5cws-10%5csecret".into(),
        "....//secret".into(),
        "/workspace/../../../etc/shadow".into(),
        "/workspace-10/secret".into(),
        "note.html%00.txt".into(),
        "note.html/".into(),
        "note.html/../note.html".into(),
        "%C0%AE%C0%AE/secret".into(),
        format!("/proc/1/root{encoded}"),
        format!("/proc/self/root{encoded}"),
        format!("/proc/self/cwd/../..{encoded}"),
        "/proc/1/environ".into(),
        "/etc/shadow".into(),
        format!("//..{canary}"),
        "~root/.ssh/id_rsa".into(),
        "file:///etc/passwd".into(),
        String::new(),
    ];
    for path in &paths {
        let answer = read("ws-1", path);
        assert!((400..500).contains(&answer.status), "{path}: {} {}", answer.status, answer.text());
        proper(&answer.json()["error"]);
        assert!(!answer.text().contains("CANARY of"), "{path}");
    }
    for sandbox in ["ws-1/../ws-10", "ws-1%2f..%2fws-10", "ws-1%2fws-10", "ws-1/ws-10", "ws-1%00"] {
        let answer = read(sandbox, "secret");
        assert!(matches!(answer.status, 400 | 404), "{sandbox}: {}", answer.text());
        proper(&answer.json()["error"]);
    }
    let page = read("ws-1", "note.html");
    assert_eq!((page.status, page.text().as_str()), (200, "harmless\n"));
    assert_eq!(page.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(page.header("content-disposition"), Some("attachment"));
    assert_eq!(page.header("content-type"), Some("application/octet-stream"), "a browser does not show it");
}
