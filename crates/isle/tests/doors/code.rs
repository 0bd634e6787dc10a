//! `run_code`: languages by name, by ending and by sign.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::contexts::needs;
use crate::harness::{TestDaemon, needs_root, require};

fn code(daemon: &TestDaemon, arguments: Value) -> Value {
    daemon.post("/v1/sandboxes/box/code", arguments)
}

#[test]
fn python_runs_by_name_by_sign_and_by_file() {
    let daemon = TestDaemon::start();
    require!(needs(&daemon, "python3"));
    let run = code(
        &daemon,
        json!({"code": "import sys\nprint(6*7, sys.argv[1:])", "language": "python", "args": ["a b", ""]}),
    );
    assert_eq!(run["stdout"], "42 ['a b', '']\n", "{run}");
    assert_eq!(code(&daemon, json!({"code": "print('detected')"}))["stdout"], "detected\n");
    daemon.shell("box", "printf 'import os; print(os.getcwd())' > main.py");
    assert_eq!(code(&daemon, json!({"path": "main.py"}))["stdout"], "/workspace\n");
    let failed = code(&daemon, json!({"code": "raise SystemExit(5)", "language": "python"}));
    assert_eq!((&failed["state"], &failed["exit_code"]), (&json!("failed"), &json!(5)));
    let read = code(&daemon, json!({"code": "print(input()[::-1])", "language": "py", "stdin": "abc\n"}));
    assert_eq!(read["stdout"], "cba\n");
}

#[test]
fn node_runs_by_name_by_sign_and_by_file() {
    let daemon = TestDaemon::start();
    require!(needs(&daemon, "node"));
    let run = code(
        &daemon,
        json!({"code": "console.log([1,2].map(x => x * 2).join(), process.argv.slice(-1)[0])", "args": ["z"]}),
    );
    assert_eq!(run["stdout"], "2,4 z\n", "{run}");
    daemon.shell("box", "echo 'console.log(1 + 1)' > a.js");
    assert_eq!(code(&daemon, json!({"path": "a.js"}))["stdout"], "2\n");
}

#[test]
fn shell_code_runs_and_can_be_restricted() {
    let daemon = TestDaemon::start();
    let run = code(&daemon, json!({"code": "#!/bin/sh\necho $1", "args": ["one"]}));
    assert_eq!(run["stdout"], "one\n", "{run}");
    daemon.shell("box", "echo 'echo from a file' > a.sh");
    assert_eq!(code(&daemon, json!({"path": "/workspace/a.sh"}))["stdout"], "from a file\n");
    let restricted =
        code(&daemon, json!({"code": "cd /; echo > x", "language": "shell", "restricted": true}));
    assert_eq!(restricted["state"], "failed", "{restricted}");
    assert!(restricted["stderr"].as_str().unwrap().contains("restricted"), "{restricted}");
}

#[test]
fn code_longer_than_an_argument_may_be_still_runs() {
    let daemon = TestDaemon::start();
    let long = format!("# {}\necho the end", "x".repeat(300_000));
    assert_eq!(code(&daemon, json!({"code": long, "language": "shell"}))["stdout"], "the end\n");
}

#[test]
fn a_missing_interpreter_is_named_and_is_no_exit_code_127() {
    let hidden = interpreters();
    if !hidden.is_empty() {
        require!(needs_root("hide the interpreters of this host"));
    }
    let daemon = TestDaemon::start_hiding(hidden, &[]);
    let path = "/v1/sandboxes/box/code";
    for language in ["node", "python"] {
        let error = daemon.refused("POST", path, Some(&json!({"code": "1", "language": language})));
        assert_eq!(error["code"], "RUNTIME_NOT_AVAILABLE");
        assert!(error["message"].as_str().unwrap().contains(language), "{error}");
    }
    assert_eq!(
        code(&daemon, json!({"code": "echo others work", "language": "shell"}))["stdout"],
        "others work\n"
    );
    let unknown = daemon.refused("POST", path, Some(&json!({"code": "x", "language": "cobol"})));
    assert_eq!(unknown["code"], "INVALID_ARGUMENT");
}

/// Interpreters of this host a sandbox would see.
fn interpreters() -> Vec<PathBuf> {
    let directories = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin"];
    let names = ["node", "nodejs", "python3", "python"];
    let paths = directories.iter().flat_map(|directory| names.map(|name| Path::new(directory).join(name)));
    paths.filter(|path| path.exists()).collect()
}

#[test]
fn what_cannot_be_run_is_refused_before_anything_happens() {
    let daemon = TestDaemon::start();
    let refused = |arguments: Value| {
        daemon.refused("POST", "/v1/sandboxes/box/code", Some(&arguments))["code"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    assert_eq!(refused(json!({})), "INVALID_ARGUMENT");
    assert_eq!(refused(json!({"code": "1", "path": "a.py"})), "INVALID_ARGUMENT");
    assert_eq!(refused(json!({"code": "1", "language": "python", "restricted": true})), "INVALID_ARGUMENT");
    daemon.shell("box", "true");
    assert_eq!(refused(json!({"path": "missing.py"})), "FILE_NOT_FOUND");
    assert_eq!(refused(json!({"path": "a.unknown"})), "INVALID_ARGUMENT");
    assert_eq!(refused(json!({"path": "../etc/a.py"})), "INVALID_PATH");
}
