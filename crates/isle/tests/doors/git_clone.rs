//! Repositories cloned inside a sandbox, with and without a token.

use serde_json::{Value, json};

use crate::harness::{TestDaemon, until};
use crate::mcp::Client;

const TOKEN: &str = "s3cr3t-t0ken-of-a-test";

/// A server of the dumb protocol that wants a name and a password, and notes who came.
const SERVER: &str = r#"
import base64, http.server, os, sys
os.chdir("/workspace/served")
wanted = "Basic " + base64.b64encode(b"git:" + sys.argv[1].encode()).decode()
class Handler(http.server.SimpleHTTPRequestHandler):
    def do_GET(self):
        if self.headers.get("Authorization") != wanted:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="test"')
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        super().do_GET()
    def log_message(self, *arguments):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 8123), Handler)
open("/workspace/ready", "w").close()
server.serve_forever()
"#;

fn prepare(daemon: &TestDaemon) {
    daemon.shell(
        "box",
        "export GIT_CONFIG_GLOBAL=/dev/null GIT_AUTHOR_NAME=A GIT_AUTHOR_EMAIL=a@x GIT_COMMITTER_NAME=A GIT_COMMITTER_EMAIL=a@x; \
         git init -q -b main made && cd made && echo 1 > a && mkdir d && echo 2 > d/b && git add . && git commit -qm first && \
         echo 3 > a && git commit -qam second && git branch other HEAD~1 && cd .. && \
         git clone -q --bare made served/repo.git && git -C served/repo.git update-server-info",
    );
}

fn clone(daemon: &TestDaemon, body: Value) -> Value {
    daemon.post("/v1/sandboxes/box/files/git_clone", body)
}

#[test]
fn a_repository_is_cloned_shallow_by_branch_and_into_a_place_of_choice() {
    let daemon = TestDaemon::start();
    prepare(&daemon);
    let url = "file:///workspace/served/repo.git";
    let cloned = clone(&daemon, json!({"url": url}));
    assert_eq!(
        (&cloned["path"], &cloned["files"], &cloned["branch"]),
        (&json!("/workspace/repo"), &json!(2), &json!("main"))
    );
    assert_eq!((&cloned["commit"]["subject"], &cloned["commit"]["author"]), (&json!("second"), &json!("A")));
    assert_eq!(daemon.shell("box", "cat repo/a; git -C repo rev-list --count HEAD"), "3\n1\n");
    let cloned = clone(&daemon, json!({"url": url, "branch": "other", "depth": 0, "path": "deep/er"}));
    assert_eq!(
        (&cloned["commit"]["subject"], &cloned["branch"]),
        (&json!("first"), &json!("other")),
        "{cloned}"
    );
    assert_eq!(cloned["commit"]["id"].as_str().unwrap().len(), 40);
    daemon.shell("box", "git init -q --bare empty.git");
    let empty = clone(&daemon, json!({"url": "/workspace/empty.git"}));
    assert_eq!((&empty["files"], &empty["commit"]), (&json!(0), &Value::Null), "{empty}");
    let before = daemon.shell("box", "ls -A | sort | tr '\\n' ' '");
    for (bad, code) in [
        (json!({"url": url}), "FILE_EXISTS"),
        (json!({"url": url, "path": "made/a"}), "FILE_EXISTS"),
        (json!({"url": url, "path": "x", "branch": "missing"}), "CLONE_FAILED"),
        (json!({"url": "file:///workspace/nothing.git"}), "CLONE_FAILED"),
        (json!({"url": "https://127.0.0.1:1/x.git"}), "CLONE_FAILED"),
        (json!({"url": "--upload-pack=touch /workspace/owned"}), "INVALID_ARGUMENT"),
        (json!({"url": "ext::sh -c 'touch /workspace/owned'"}), "INVALID_ARGUMENT"),
        (json!({"url": url, "path": "x", "branch": "--upload-pack=touch owned"}), "INVALID_ARGUMENT"),
        (json!({"url": "https://me:secret@host/x.git"}), "INVALID_ARGUMENT"),
        (json!({"url": "http://host/x.git", "token": "t"}), "INVALID_ARGUMENT"),
        (json!({"url": url, "path": "../x"}), "INVALID_PATH"),
    ] {
        let error = daemon.refused("POST", "/v1/sandboxes/box/files/git_clone", Some(&bad));
        assert_eq!(error["code"], code, "{bad}: {error}");
        assert_eq!(daemon.shell("box", "ls -A | sort | tr '\\n' ' '"), before, "{bad}");
    }
}

#[test]
fn a_token_reaches_the_server_and_is_found_nowhere_else() {
    let daemon = TestDaemon::start_with(&[("ISLE_LOG_MCP", "true"), ("ISLE_LOG_HTTP", "true")]);
    prepare(&daemon);
    let run = daemon.exec("box", json!({"argv": ["python3", "-c", SERVER, TOKEN], "wait": "0s"}));
    until("the server listens", || daemon.exec("box", json!({"command": "test -e ready"}))["exit_code"] == 0);
    let url = "http://127.0.0.1:8123/repo.git";
    // The dumb protocol has no shallow clones.
    for bad in [json!({"url": url, "depth": 0}), json!({"url": url, "depth": 0, "token": "wrong"})] {
        let error = daemon.refused("POST", "/v1/sandboxes/box/files/git_clone", Some(&bad));
        assert_eq!(error["code"], "CLONE_FAILED", "{error}");
        assert!(error["message"].as_str().unwrap().contains("token"), "{error}");
    }
    let (mut client, _) = Client::initialized_with(&daemon, "2025-11-25", &["--toolsets", "files"]);
    let cloned = client.call("git_clone", json!({"sandbox": "box", "url": url, "depth": 0, "token": TOKEN}));
    assert_eq!(cloned["structuredContent"]["commit"]["subject"], "second", "{cloned}");
    assert!(!cloned.to_string().contains(TOKEN));
    daemon.post(&format!("/v1/runs/{}/kill", run["run_id"].as_str().unwrap()), json!({"force": true}));
    // The server was told the token on its own command line; nobody else was.
    let history = daemon.get("/v1/runs?sandbox=box&limit=100");
    for run in history["runs"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|run| !run["command"].as_str().unwrap().contains("http.server"))
    {
        assert!(!run.to_string().contains(TOKEN), "{run}");
        let logs = daemon.get(&format!("/v1/runs/{}/logs", run["run_id"].as_str().unwrap()));
        assert!(!logs.to_string().contains(TOKEN), "{logs}");
    }
    let audit = daemon.get("/v1/audit?limit=500").to_string();
    let cloning = audit.matches(TOKEN).count();
    assert!(cloning <= audit.matches("http.server").count(), "the audit knows it only from the server");
    assert_eq!(
        daemon.shell(
            "box",
            &format!(
                "grep -rlF \"$(printf %s {} | rev)\" /workspace /home /tmp 2>/dev/null | wc -l",
                TOKEN.chars().rev().collect::<String>()
            )
        ),
        "0\n"
    );
    let log = daemon.log();
    let told: Vec<&str> =
        log.lines().filter(|line| line.contains(TOKEN) && !line.contains("http.server")).collect();
    assert!(told.is_empty(), "{told:?}");
}
