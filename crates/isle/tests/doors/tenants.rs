//! Tenants: each has a token and a namespace, uses whatever names it likes, and cannot tell what others
//! have from what never was. Whoever owns the socket is the operator and may choose.

use serde_json::{Value, json};

use super::mcp::Client;
use crate::harness::http::{self, Answer, unix_raw};
use crate::harness::{TestDaemon, finish, until, until_some};

pub(crate) const JSON: &str = "Content-Type: application/json";
pub(crate) const ACCEPT: &str = "Accept: application/json, text/event-stream";
/// An id that Isle could have given and never gave.
const NO_RUN: &str = "run_00000000000000000000000000";

/// Somebody with a token, over TCP.
pub(crate) struct Caller {
    pub(crate) address: String,
    pub(crate) token: String,
}

impl Caller {
    pub(crate) fn raw(&self, line: &str, headers: &[&str], body: &[u8]) -> Answer {
        let (host, bearer) =
            (format!("Host: {}", self.address), format!("Authorization: Bearer {}", self.token));
        let headers: Vec<&str> =
            [host.as_str(), &bearer].into_iter().chain(headers.iter().copied()).collect();
        http::tcp(&self.address, line, &headers, body)
    }

    pub(crate) fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Answer {
        let body = body.map(Value::to_string).unwrap_or_default();
        let kind: &[&str] = if method == "GET" { &[] } else { &[JSON] };
        self.raw(&format!("{method} {path}"), kind, body.as_bytes())
    }

    fn post(&self, path: &str, body: Value) -> Value {
        let answer = self.ask("POST", path, Some(&body));
        assert_eq!(answer.status, 200, "POST {path} {body}: {}", answer.text());
        answer.json()
    }

    pub(crate) fn get(&self, path: &str) -> Value {
        let answer = self.ask("GET", path, None);
        assert_eq!(answer.status, 200, "GET {path}: {}", answer.text());
        answer.json()
    }

    pub(crate) fn shell(&self, sandbox: &str, command: &str) -> Value {
        let run = self.post(&format!("/v1/sandboxes/{sandbox}/exec"), json!({ "command": command }));
        assert_eq!(run["state"], "completed", "{command}: {run}");
        run
    }

    fn names(&self) -> Vec<String> {
        let listed = self.get("/v1/sandboxes");
        let sandboxes = listed["sandboxes"].as_array().unwrap().clone();
        sandboxes.iter().map(|sandbox| sandbox["name"].as_str().unwrap().to_owned()).collect()
    }
}

/// A daemon that also listens on TCP, and where.
pub(crate) fn listening(settings: &[(&str, &str)]) -> (TestDaemon, String) {
    let all: Vec<(&str, &str)> = [("ISLE_LISTEN", "127.0.0.1:0")].iter().chain(settings).copied().collect();
    let daemon = TestDaemon::start_with(&all);
    let address = address_of(&daemon, 0);
    (daemon, address)
}

/// Where the daemon of the so-many-th start listens.
pub(crate) fn address_of(daemon: &TestDaemon, start: usize) -> String {
    until_some("the daemon says where it listens", || {
        let log = daemon.log();
        let said = log.match_indices("\"tcp\":\"").nth(start)?.0 + "\"tcp\":\"".len();
        Some(log[said..].split('"').next()?.to_owned())
    })
}

pub(crate) fn tenant(daemon: &TestDaemon, address: &str, namespace: &str) -> Caller {
    let token = daemon.succeeds(&["token", "create", "--namespace", namespace]);
    Caller { address: address.to_owned(), token: token.trim().to_owned() }
}

/// Two answers that say the same, but for the names that were asked for.
fn the_same(theirs: &Answer, nobodys: &Answer, name: &str, no_name: &str) {
    let reworded = theirs.text().replace(name, no_name);
    assert_eq!((theirs.status, reworded), (nobodys.status, nobodys.text()));
    assert!(theirs.status >= 400, "{}", theirs.text());
}

#[test]
fn two_tenants_use_the_same_names_and_see_nothing_of_each_other() {
    let (daemon, address) = listening(&[]);
    let (one, two) = (tenant(&daemon, &address, "one"), tenant(&daemon, &address, "two"));
    one.shell("web", "echo of one > note");
    two.shell("web", "echo of two > note; sleep 0.1");
    daemon.shell("web", "echo of the operator > note");
    one.shell("only-one", "true");
    assert_eq!(one.shell("web", "cat note")["stdout"], "of one\n");
    assert_eq!(two.shell("web", "cat note")["stdout"], "of two\n");
    assert_eq!(daemon.shell("web", "cat note"), "of the operator\n");

    one.post("/v1/sandboxes/web/env", json!({ "action": "set", "variables": { "WHOSE": "one" } }));
    assert_eq!(one.shell("web", "echo $WHOSE")["stdout"], "one\n");
    assert_eq!(two.shell("web", "echo $WHOSE")["stdout"], "\n");

    assert_eq!(one.names(), ["only-one", "web"]);
    assert_eq!(two.names(), ["web"]);
    assert!(!daemon.names().contains(&"only-one".to_owned()));
    let commands = |caller: &Caller| -> Vec<String> {
        let runs = caller.get("/v1/runs")["runs"].as_array().unwrap().clone();
        runs.iter().map(|run| run["command"].as_str().unwrap().to_owned()).collect()
    };
    assert!(commands(&one).contains(&"echo of one > note".to_owned()), "{:?}", commands(&one));
    assert!(
        commands(&two).iter().all(|command| !command.contains("of one") && !command.contains("operator"))
    );
    let audited = two.get("/v1/audit?limit=500").to_string();
    assert!(audited.contains("of two") && !audited.contains("of one") && !audited.contains("only-one"));
    assert!(!daemon.get("/v1/audit?limit=500").to_string().contains("of two"));
    assert_eq!(daemon.get("/v1/audit/verify")["intact"], true);
    let health = two.get("/v1/health");
    assert_eq!(health["sandboxes"], 1, "{health}");
}

#[test]
fn what_is_another_tenants_is_answered_as_what_never_was() {
    let (daemon, address) = listening(&[]);
    let (one, two) = (tenant(&daemon, &address, "one"), tenant(&daemon, &address, "two"));
    let job = json!({ "command": "sleep 300", "name": "server", "input": true });
    let live = one.post("/v1/sandboxes/web/jobs", job)["run_id"].as_str().unwrap().to_owned();
    let ended = one.shell("web", "echo secret")["run_id"].as_str().unwrap().to_owned();

    for run in [&live, &ended] {
        for (method, path, body) in [
            ("POST", "/v1/runs/RUN/wait", Some(json!({ "timeout": "1s" }))),
            ("GET", "/v1/runs/RUN/logs", None),
            ("POST", "/v1/runs/RUN/kill", Some(json!({}))),
            ("POST", "/v1/runs/RUN/input", Some(json!({ "text": "x" }))),
            ("GET", "/v1/runs/RUN/events", None),
            ("GET", "/v1/runs?before=RUN", None),
        ] {
            let asked = |id: &str| two.ask(method, &path.replace("RUN", id), body.as_ref());
            the_same(&asked(run), &asked(NO_RUN), run, NO_RUN);
        }
    }
    let asked = |job: &str| two.ask("POST", &format!("/v1/runs/{job}/kill"), Some(&json!({})));
    the_same(&asked("web:server"), &asked("web:nobody"), "server", "nobody");
    for (method, path, body) in [
        ("GET", "/v1/status?sandbox=NAME", None),
        ("GET", "/v1/sandboxes/NAME/files/read?path=x", None),
        ("GET", "/v1/sandboxes/NAME/files/content?path=x", None),
        ("GET", "/v1/sandboxes/NAME/files/tree?path=.", None),
        ("GET", "/v1/sandboxes/NAME/files/watch", None),
        ("GET", "/v1/sandboxes/NAME/contexts", None),
        ("POST", "/v1/sandboxes/NAME/env", Some(json!({ "action": "list" }))),
        ("POST", "/v1/sandboxes/NAME/reset", Some(json!({}))),
        ("DELETE", "/v1/sandboxes/NAME", None),
        ("DELETE", "/v1/sandboxes/NAME", Some(json!({ "wipe": true }))),
    ] {
        let asked = |name: &str| two.ask(method, &path.replace("NAME", name), body.as_ref());
        the_same(&asked("web"), &asked("nob"), "web", "nob");
    }
    // A terminal on the run of another: refused in the first answer.
    let viewed = |run: &str| {
        let mut command = daemon.isle(&["attach", run, "--json"]);
        let output =
            finish(command.env("ISLE_URL", format!("http://{address}")).env("ISLE_TOKEN", &two.token));
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).replace(run, NO_RUN)
    };
    assert_eq!(viewed(&live), viewed(NO_RUN));

    let state = one.ask("POST", &format!("/v1/runs/{live}/wait"), Some(&json!({ "timeout": "0s" }))).json();
    assert_eq!(state["state"], "running", "nobody ended it: {state}");
    assert_eq!(one.names(), ["web"]);
}

#[test]
fn an_mcp_session_of_one_tenant_is_none_for_another() {
    let (daemon, address) = listening(&[]);
    let (one, two) = (tenant(&daemon, &address, "one"), tenant(&daemon, &address, "two"));
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}});
    let answer = one.raw("POST /mcp", &[ACCEPT, JSON], hello.to_string().as_bytes());
    let id = answer.header("mcp-session-id").unwrap().to_owned();
    let session = format!("Mcp-Session-Id: {id}");
    let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"}).to_string();
    assert_eq!(one.raw("POST /mcp", &[ACCEPT, JSON, &session], ready.as_bytes()).status, 202);

    let call = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call",
        "params": {"name": "exec", "arguments": {"sandbox": "web", "command": "echo hello"}}});
    let call = call.to_string();
    let nobodys = format!("Mcp-Session-Id: {}", "0".repeat(id.len()));
    let asked = |session: &str| two.raw("POST /mcp", &[ACCEPT, JSON, session], call.as_bytes());
    let (theirs, never) = (asked(&session), asked(&nobodys));
    assert_eq!((theirs.status, theirs.text()), (404, never.text()));
    assert_eq!(never.status, 404);
    assert_eq!(two.raw("DELETE /mcp", &[&session], b"").status, 404);

    let answer = one.raw("POST /mcp", &[ACCEPT, JSON, &session], call.as_bytes());
    assert!(answer.status == 200 && answer.text().contains("hello"), "{}", answer.text());
    assert_eq!(one.names(), ["web"]);
    assert!(two.names().is_empty() && !daemon.names().contains(&"web".to_owned()));
}

#[test]
fn the_operator_chooses_a_namespace_and_nobody_else_does() {
    let (daemon, address) = listening(&[]);
    let (one, _two) = (tenant(&daemon, &address, "one"), tenant(&daemon, &address, "two"));
    one.shell("web", "true");
    // By flag, by variable, by header, over MCP, and over TCP with the operator's token.
    assert!(daemon.succeeds(&["ls", "--namespace", "one"]).contains("web"));
    assert!(!daemon.succeeds(&["ls"]).contains("web"));
    let output = finish(daemon.isle(&["exec", "web", "--", "pwd"]).env("ISLE_NAMESPACE", "one"));
    assert!(output.status.success(), "{output:?}");
    let header = |name: &str| {
        unix_raw(&daemon.socket(), "GET /v1/sandboxes", &[&format!("Isle-Namespace: {name}")], b"")
    };
    assert!(header("one").text().contains("\"web\"") && !header("two").text().contains("\"web\""));
    let (mut client, _) = Client::initialized_with(&daemon, "2025-11-25", &["--namespace", "one"]);
    let status = client.call("status", json!({})).to_string();
    assert!(status.contains("web"), "{status}");
    let token = std::fs::read_to_string(daemon.home().state_dir().join("token")).unwrap();
    let operator = Caller { address: address.clone(), token: token.trim().to_owned() };
    assert!(operator.raw("GET /v1/sandboxes", &["Isle-Namespace: one"], b"").text().contains("\"web\""));

    let unknown = header("three");
    assert_eq!((unknown.status, unknown.code().as_str()), (404, "NAMESPACE_NOT_FOUND"));
    assert!(unknown.text().contains("two"), "{}", unknown.text());
    assert_eq!(header("no good").code(), "INVALID_NAME");
    let output = finish(&mut daemon.isle(&["exec", "web", "--namespace", "three", "--", "true"]));
    assert!(String::from_utf8_lossy(&output.stderr).contains("NAMESPACE_NOT_FOUND"), "{output:?}");

    // A tenant is told the same of a namespace that is there and of one that is not.
    for name in ["two", "three", "default"] {
        let answer = one.raw("GET /v1/sandboxes", &[&format!("Isle-Namespace: {name}")], b"");
        assert_eq!((answer.status, answer.code().as_str()), (403, "FORBIDDEN"), "{name}");
    }
    assert_eq!(one.raw("GET /v1/sandboxes", &["Isle-Namespace: one"], b"").status, 200);
    let copy = json!({ "host_path": "/etc/hostname", "path": "x" });
    for (method, path, body) in [
        ("POST", "/v1/tokens", Some(json!({ "namespace": "two" }))),
        ("GET", "/v1/tokens", None),
        ("DELETE", "/v1/tokens/tok_00000000000000000000000000", None),
        ("GET", "/v1/audit/verify", None),
        ("POST", "/v1/shutdown", Some(json!({}))),
        ("POST", "/v1/sandboxes/web/files/copy_in", Some(copy.clone())),
        ("POST", "/v1/sandboxes/web/files/copy_out", Some(copy)),
    ] {
        let answer = one.ask(method, path, body.as_ref());
        assert_eq!((answer.status, answer.code().as_str()), (403, "FORBIDDEN"), "{path}: {}", answer.text());
    }
}

#[test]
fn a_tenant_grants_nothing_and_shows_no_port() {
    let (daemon, address) = listening(&[]);
    let one = tenant(&daemon, &address, "one");
    let made = one.ask("POST", "/v1/sandboxes/web/exec", Some(&json!({ "command": "true" })));
    assert_eq!(made.status, 200, "{}", made.text());
    let hosts = json!(["example.com:443", "127.0.0.1:80"]);
    for (path, body) in [
        ("/v1/sandboxes/web/grants", json!({ "hosts": hosts })),
        ("/v1/sandboxes/new/grants", json!({ "hosts": hosts })),
        ("/v1/sandboxes", json!({ "sandbox": "new", "allow": hosts })),
        ("/v1/runs", json!({ "command": "true", "allow": hosts })),
        ("/v1/sandboxes/web/ports", json!({ "port": 8000, "host_port": 0 })),
    ] {
        let answer = one.ask("POST", path, Some(&body));
        assert_eq!((answer.status, answer.code().as_str()), (403, "FORBIDDEN"), "{path}: {}", answer.text());
    }
    let listed = one.ask("GET", "/v1/sandboxes", None).text();
    assert!(!listed.contains("\"new\""), "{listed}");
    let grants = one.ask("GET", "/v1/sandboxes/web/grants", None);
    assert_eq!((grants.status, grants.json()["grants"].as_array().map(Vec::len)), (200, Some(0)));
}

#[test]
fn a_token_is_shown_once_kept_as_a_hash_and_worthless_when_revoked() {
    let (mut daemon, address) = listening(&[]);
    let one = tenant(&daemon, &address, "one");
    assert!(one.token.starts_with("isle_") && one.token.len() > 40, "{}", one.token);
    let listed: Value = serde_json::from_str(&daemon.succeeds(&["token", "list", "--json"])).unwrap();
    assert!(listed["tokens"][0].get("last_used_at").is_none(), "{listed}");
    assert_eq!(listed["namespaces"], json!(["default", "one"]));
    one.shell("web", "echo kept > note");
    let listed = daemon.get("/v1/tokens?namespace=one");
    assert!(listed["tokens"][0]["last_used_at"].is_string(), "{listed}");
    let id = listed["tokens"][0]["id"].as_str().unwrap().to_owned();
    assert_eq!(daemon.refused("GET", "/v1/tokens?namespace=two", None)["code"], "NAMESPACE_NOT_FOUND");

    // Neither state nor log nor audit has the token itself.
    for entry in std::fs::read_dir(daemon.home().state_dir()).unwrap().flatten() {
        if entry.file_type().unwrap().is_file() {
            let bytes = std::fs::read(entry.path()).unwrap();
            let found = bytes.windows(one.token.len()).any(|window| window == one.token.as_bytes());
            assert!(!found, "{}", entry.path().display());
        }
    }
    // A crash changes nothing about whose what is.
    daemon.kill();
    daemon.launch();
    let one = Caller { address: address_of(&daemon, 1), ..one };
    assert_eq!(one.shell("web", "cat note")["stdout"], "kept\n");

    daemon.succeeds(&["token", "revoke", &id]);
    let answer = one.ask("GET", "/v1/sandboxes", None);
    assert_eq!((answer.status, answer.code().as_str()), (401, "UNAUTHENTICATED"));
    assert_eq!(daemon.refused("DELETE", &format!("/v1/tokens/{id}"), None)["code"], "TOKEN_NOT_FOUND");
    assert!(daemon.succeeds(&["ls", "--namespace", "one"]).contains("web"), "its namespace stays");
    let output = finish(&mut daemon.isle(&["token", "create"]));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("INVALID_ARGUMENT") && said.contains("--namespace"), "{said}");
    let audited = daemon.get("/v1/audit?limit=500").to_string();
    assert!(audited.contains("create_token") && audited.contains("revoke_token"), "{audited}");
}

#[test]
fn workspaces_of_the_same_name_are_wiped_one_at_a_time() {
    let (daemon, address) = listening(&[]);
    let (one, two) = (tenant(&daemon, &address, "one"), tenant(&daemon, &address, "two"));
    for (caller, whose) in [(&one, "one"), (&two, "two")] {
        caller.shell("web", &format!("echo {whose} > note"));
    }
    assert_eq!(one.ask("DELETE", "/v1/sandboxes/web", None).status, 200);
    assert_eq!(two.shell("web", "cat note")["stdout"], "two\n");
    assert_eq!(two.ask("DELETE", "/v1/sandboxes/web", Some(&json!({ "wipe": true }))).status, 200);
    assert_eq!(one.shell("web", "cat note")["stdout"], "one\n", "its workspace stayed");
    assert_eq!(two.shell("web", "cat note || echo gone")["stdout"], "gone\n");
    // A named process tier keeps its places apart, too.
    if daemon.offers("process") {
        for (caller, whose) in [(&one, "one"), (&two, "two")] {
            let body = json!({ "sandbox": "plain", "tier": "process", "allow_downgrade": true });
            if !matches!(daemon.setting("ISLE_ALLOW_DOWNGRADE"), Some("true")) {
                // How weak a sandbox may be is the operator's to say.
                let answer = caller.ask("POST", "/v1/sandboxes", Some(&body));
                assert_eq!((answer.status, answer.code().as_str()), (403, "FORBIDDEN"));
            }
            let header = format!("Isle-Namespace: {whose}");
            let text = body.to_string();
            let answer = unix_raw(&daemon.socket(), "POST /v1/sandboxes", &[&header, JSON], text.as_bytes());
            assert_eq!(answer.status, 200, "{}", answer.text());
            caller.shell("plain", &format!("echo {whose} > note"));
        }
        assert_eq!(one.shell("plain", "cat note")["stdout"], "one\n");
        assert_eq!(two.shell("plain", "cat note")["stdout"], "two\n");
    }
}

#[test]
fn children_are_of_the_namespace_of_their_parents() {
    let (daemon, address) = listening(&[("ISLE_SPAWN_POLICIES", "'*@web' = { max_total = 2 }")]);
    let (one, two) = (tenant(&daemon, &address, "one"), tenant(&daemon, &address, "two"));
    for caller in [&one, &two] {
        caller.shell("web", "until isle-ctl ping; do :; done");
        let made = caller.shell("web", "isle-ctl spawn --name kid --memory 64M");
        assert_eq!(made["stdout"], "web/kid\n", "the same name for each: {made}");
    }
    one.post("/v1/sandboxes/web/children", json!({ "name": "second", "memory": "64M" }));
    let asked = |name: &str| two.ask("DELETE", &format!("/v1/children/web%2F{name}"), None);
    the_same(&asked("second"), &asked("nobody"), "second", "nobody");
    assert_eq!(two.get("/v1/sandboxes/web/children")["total"]["used"], 1, "each has a count of its own");
    let refused = one.ask("POST", "/v1/sandboxes/web/children/reset_count", Some(&json!({})));
    assert_eq!(refused.status, 403, "the operator's affair: {}", refused.text());
    assert_eq!(one.ask("DELETE", "/v1/sandboxes/web", None).status, 200);
    assert_eq!(one.names(), Vec::<String>::new());
    assert_eq!(two.names(), ["web", "web/kid"], "those of the other go on");
}

#[test]
fn a_tenant_is_not_told_where_the_daemon_lives_nor_what_others_do() {
    let (daemon, address) = listening(&[]);
    let (one, two) = (tenant(&daemon, &address, "one"), tenant(&daemon, &address, "two"));
    one.shell("box", "true");
    // A run is answered before its end is an event.
    until("the end of the run is told", || {
        let ends = one.get("/v1/events/history?kind=run_completed");
        ends["events"].as_array().is_some_and(|events| !events.is_empty())
    });
    let own = one.get("/v1/events/history")["newest"].as_u64().unwrap();
    for _ in 0..3 {
        two.shell("busy", "true");
        daemon.shell("busy", "true");
    }
    let history = one.get("/v1/events/history");
    assert_eq!(history["newest"].as_u64(), Some(own), "{history}");
    assert!(daemon.get("/v1/events/history")["newest"].as_u64().unwrap() > own);
    let version = one.get("/v1/version");
    let names: Vec<&String> = version.as_object().unwrap().keys().collect();
    assert_eq!(names, ["api", "version"], "{version}");
    let health = one.get("/v1/health");
    assert!(health.get("sweeper").is_none() && health["sandboxes"] == 1, "{health}");
    // Since when the daemon runs, what the host has and how others' rows hash is not theirs.
    assert!(health.get("uptime_seconds").is_none(), "{health}");
    let runtimes = one.get("/v1/runtimes");
    assert!(
        runtimes["facts"] == json!({}) && !runtimes["tiers"].as_array().unwrap().is_empty(),
        "{runtimes}"
    );
    let limits = one.ask("POST", "/v1/limits", Some(&json!({}))).text();
    assert!(!limits.contains("\"caps\""), "{limits}");
    let rows = one.get("/v1/audit?limit=100");
    let rows = rows["rows"].as_array().unwrap();
    assert!(!rows.is_empty() && rows.iter().all(|row| row.get("prev_hash").is_none()), "{rows:?}");
    // Nothing a tenant can read names the state directory or the process.
    let state_dir = daemon.home().state_dir().to_str().unwrap().to_owned();
    let pid = format!("\"pid\":{}", daemon.pid());
    for path in [
        "/v1/health",
        "/v1/version",
        "/v1/status",
        "/v1/status?sandbox=box",
        "/v1/inspect",
        "/v1/runtimes",
        "/v1/usage",
        "/v1/runs",
        "/v1/audit?limit=100",
        "/v1/events/history",
        "/v1/sandboxes",
        "/v1/sandboxes/box/net",
        "/v1/sandboxes/nobody/grants",
        "/v1/jobs",
        "/v1/syncs",
        "/v1/secrets",
        "/readyz",
        "/metrics",
        "/v1/stats",
    ] {
        let text = one.ask("GET", path, None).text();
        assert!(!text.contains(&state_dir) && !text.contains(&pid), "{path}: {text}");
    }
    // The operator is told.
    let operator = daemon.get("/v1/version");
    assert_eq!((&operator["pid"], &operator["state_dir"]), (&json!(daemon.pid()), &json!(state_dir)));
    let health = daemon.get("/v1/health");
    assert!(health["sweeper"]["passes"].is_u64() && health["uptime_seconds"].is_u64(), "{health}");
    assert!(!daemon.get("/v1/runtimes")["facts"].as_object().unwrap().is_empty());
    assert!(daemon.get("/v1/audit?limit=1")["rows"][0]["prev_hash"].is_string());
}
