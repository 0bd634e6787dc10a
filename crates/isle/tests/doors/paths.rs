//! Paths: one rule at every door, and no way out of the workspace by a relative one.

use serde_json::json;

use crate::harness::TestDaemon;
use crate::harness::http::unix_raw;

/// What a path is refused with at each door that takes one.
fn refusals(daemon: &TestDaemon, path: &str) -> Vec<String> {
    let quoted: String = path.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let code = |method: &str, url: &str, body: Option<serde_json::Value>| {
        daemon.refused(method, url, body.as_ref())["code"].as_str().unwrap().to_owned()
    };
    let read = code("GET", &format!("/v1/sandboxes/box/files/read?path={quoted}"), None);
    let write = code(
        "POST",
        "/v1/sandboxes/box/files/write",
        Some(json!({"files": [{"path": path, "content": "x"}]})),
    );
    let content = unix_raw(
        &daemon.socket(),
        &format!("PUT /v1/sandboxes/box/files/content?path={quoted}"),
        &["Content-Type: application/octet-stream"],
        b"x",
    );
    vec![read, write, content.code()]
}

#[test]
fn no_relative_path_leaves_the_workspace() {
    let daemon = TestDaemon::start();
    daemon.shell("box", "ln -s / root; ln -s ../tmp up; ln -s /etc/passwd secret; mkdir in; ln -s ../../tmp in/out; ln -s in fine");
    let deep = format!("{}etc/passwd", "in/../".repeat(3));
    for path in
        ["..", "../etc/passwd", "a/../../etc/passwd", &deep, "root/etc/passwd", "up/x", "secret", "in/out/x"]
    {
        for code in refusals(&daemon, path) {
            assert_eq!(code, "INVALID_PATH", "{path}");
        }
    }
    for path in ["", "a\0b"] {
        let body = json!({"files": [{"path": path, "content": "x"}]});
        let error = daemon.refused("POST", "/v1/sandboxes/box/files/write", Some(&body));
        assert_eq!(error["code"], "INVALID_PATH", "{path:?}");
    }
    assert_eq!(daemon.shell("box", "ls -A /tmp"), "", "nothing was written anywhere");
    // A link that stays inside is as good as a directory.
    let body = json!({"files": [{"path": "fine/x", "content": "inside"}]});
    daemon.post("/v1/sandboxes/box/files/write", body);
    assert_eq!(daemon.shell("box", "cat in/x"), "inside");
}

#[test]
fn what_is_not_a_file_is_refused_with_its_kind() {
    let daemon = TestDaemon::start();
    daemon.shell("box", "mkdir directory; mkfifo pipe; echo x > file");
    for code in refusals(&daemon, "directory") {
        assert_eq!(code, "IS_DIRECTORY");
    }
    for code in refusals(&daemon, "pipe") {
        assert_eq!(code, "NOT_REGULAR", "and nobody waits for its other end");
    }
    for code in refusals(&daemon, "file/below") {
        assert_eq!(code, "NOT_DIRECTORY");
    }
    let device = daemon.refused("GET", "/v1/sandboxes/box/files/read?path=/dev/zero", None);
    assert_eq!(device["code"], "NOT_REGULAR");
    let missing = daemon.refused("GET", "/v1/sandboxes/box/files/read?path=nothing", None);
    assert_eq!(missing["code"], "FILE_NOT_FOUND");
    let listed = daemon.refused("GET", "/v1/sandboxes/box/files/list?path=file", None);
    assert_eq!(listed["code"], "NOT_DIRECTORY");
    let denied = daemon.refused("GET", "/v1/sandboxes/box/files/read?path=/root/x", None);
    assert_eq!(denied["code"], "PERMISSION_DENIED");
    let removed =
        daemon.refused("POST", "/v1/sandboxes/box/files/remove", Some(&json!({"path": "directory"})));
    assert_eq!(removed["code"], "IS_DIRECTORY");
    assert_eq!(daemon.shell("box", "ls"), "directory\nfile\npipe\n");
}

#[test]
fn a_sandbox_sees_its_own_files_and_none_of_the_hosts() {
    let daemon = TestDaemon::start();
    let secret = daemon.home().write("secret.txt", "of the host");
    let run = daemon.exec("box", json!({"argv": ["cat", secret.to_str().unwrap()], "user": "root"}));
    assert_eq!(run["state"], "failed", "{run}");
    let error = daemon.refused(
        "GET",
        &format!("/v1/sandboxes/box/files/read?path={}&user=root", secret.display()),
        None,
    );
    assert_eq!(error["code"], "FILE_NOT_FOUND");
    // Through a link of a process of the sandbox nothing else is reached either.
    daemon.shell("box", &format!("ln -s {} link; ln -s /proc/1/root r", secret.display()));
    let through = daemon.refused(
        "GET",
        &format!("/v1/sandboxes/box/files/read?path=/proc/1/root{}&user=root", secret.display()),
        None,
    );
    assert_ne!(through["code"], "INTERNAL");
    daemon.shell("other", "echo private > /workspace/mine");
    let foreign = daemon.refused("GET", "/v1/sandboxes/box/files/read?path=mine", None);
    assert_eq!(foreign["code"], "FILE_NOT_FOUND");
}
