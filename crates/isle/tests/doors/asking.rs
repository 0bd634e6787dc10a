//! What is denied is on record from the first question on, becomes a request, and is answered by a person:
//! by HTTP and on the command line. Who can be asked is waited for, and nobody else.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::events::told;
use crate::harness::http::Events;
use crate::harness::{TestDaemon, Watchdog, finish, per_connection, until};
use crate::network::Server;
use crate::tenants::{listening, tenant};

/// Names that only the daemon under test knows.
pub(crate) const HOSTS: &str =
    "[network_hosts]\n\"web.test\" = \"127.0.0.1\"\n\"other.test\" = \"127.0.0.1\"\n";

/// A daemon that asks, and waits longer than any test.
pub(crate) fn asking() -> TestDaemon {
    TestDaemon::start_configured(&format!("network_ask = \"10m\"\n{HOSTS}"), &[])
}

/// Looks a name up: two questions, one for each family of addresses.
pub(crate) fn look_up(name: &str) -> String {
    format!("getent hosts {name} > /dev/null && echo found")
}

pub(crate) fn requests(daemon: &TestDaemon) -> Vec<Value> {
    daemon.get("/v1/network/requests")["requests"].as_array().unwrap().clone()
}

/// The request of a name.
pub(crate) fn request_of(daemon: &TestDaemon, host: &str) -> Value {
    requests(daemon).into_iter().find(|one| one["host"] == host).unwrap_or_default()
}

pub(crate) fn id(request: &Value) -> String {
    request["request"].as_str().unwrap_or_else(|| panic!("{request}")).to_owned()
}

pub(crate) fn approve(daemon: &TestDaemon, request: &Value, answer: Value) -> Value {
    daemon.post(&format!("/v1/network/requests/{}/approve", id(request)), answer)
}

pub(crate) fn grants(daemon: &TestDaemon, sandbox: &str) -> Vec<Value> {
    daemon.get(&format!("/v1/sandboxes/{sandbox}/grants"))["grants"].as_array().unwrap().clone()
}

pub(crate) fn wait(daemon: &TestDaemon, run: &Value) -> Value {
    daemon.post(&format!("/v1/runs/{}/wait", run["run_id"].as_str().unwrap()), json!({ "timeout": "120s" }))
}

per_connection!(a_denial_is_recorded_where_nothing_was_ever_granted);

fn a_denial_is_recorded_where_nothing_was_ever_granted() {
    let daemon = TestDaemon::start();
    let run = daemon.exec("box", json!({ "command": "curl -sS -m 20 https://example.net/" }));
    assert_eq!(run["exit_code"], 6, "{run}");
    assert_eq!(run["violations"][0]["what"], "network: example.net", "{run}");
    let remedy = run["violations"][0]["remedy"].as_str().unwrap();
    assert!(remedy.contains("`isle allow box example.net` would grant it"), "{run}");
    let net = daemon.get("/v1/sandboxes/box/net");
    assert_eq!(
        (&net["log"][0]["target"], &net["log"][0]["outcome"]),
        (&json!("example.net"), &json!("denied"))
    );
    let events = told(&daemon, "kind=network_denied");
    assert_eq!((events.len(), &events[0]["data"]["target"]), (1, &json!("example.net")), "{events:?}");
    // In a sandbox for one command.
    let once = daemon.post("/v1/runs", json!({ "command": look_up("one.test") }));
    assert_eq!(once["violations"][0]["what"], "network: one.test", "{once}");
    let said = daemon.succeeds(&["net", "box"]);
    assert!(said.contains("example.net") && said.contains("1 denied") || said.contains("2 denied"), "{said}");
    // After a restart, too.
    let mut daemon = daemon;
    daemon.kill();
    daemon.launch();
    let run = daemon.exec("box", json!({ "command": look_up("again.test") }));
    assert_eq!(run["violations"][0]["what"], "network: again.test", "{run}");
}

per_connection!(a_denied_name_becomes_one_request_that_a_person_answers);

fn a_denied_name_becomes_one_request_that_a_person_answers() {
    let daemon = TestDaemon::start_configured(HOSTS, &[]);
    for _ in 0..2 {
        let run = daemon.exec("box", json!({ "command": look_up("WEB.test.") }));
        assert_eq!(run["state"], "failed", "{run}");
    }
    let listed = requests(&daemon);
    assert_eq!(listed.len(), 1, "{listed:?}");
    let request = &listed[0];
    assert_eq!(
        (&request["grant"], &request["host"], &request["ports"], &request["protocols"]),
        (&json!("web.test:80,443"), &json!("web.test"), &json!([80, 443]), &json!(["http", "tls"])),
        "{request}"
    );
    assert_eq!((&request["state"], &request["times"]), (&json!("pending"), &json!(4)), "{request}");
    assert_eq!(
        (&request["sandbox"], &request["reason"]),
        (&json!("box"), &json!("not_granted")),
        "{request}"
    );
    let shown = daemon.succeeds(&["grants", "list", "box"]);
    assert!(shown.contains(&id(request)) && shown.contains("pending"), "{shown}");
    assert_eq!(daemon.succeeds(&["grants", "box"]), shown, "the short form");

    // Denied: remembered, and not asked for again.
    let said = daemon.succeeds(&["grants", "deny", &id(request)]);
    assert!(said.contains("denied") && said.contains("web.test"), "{said}");
    daemon.exec("box", json!({ "command": look_up("web.test") }));
    let denied = requests(&daemon);
    assert_eq!((denied.len(), &denied[0]["state"]), (1, &json!("denied")), "{denied:?}");
    assert_eq!(told(&daemon, "kind=network_requested").len(), 1);

    // Somebody thinks better of it.
    let said = daemon.succeeds(&["grants", "approve", &id(request), "--scope", "sandbox", "--for", "1h"]);
    assert_eq!(said, "granted to box: web.test, port 80 (http) and 443 (tls), for 3600s\n");
    assert_eq!(daemon.shell("box", &look_up("web.test")), "found\n");
    let granted = grants(&daemon, "box");
    assert_eq!((&granted[0]["grant"], &granted[0]["source"]), (&json!("web.test:80,443"), &json!("sandbox")));
    assert!(granted[0]["seconds_left"].as_u64().unwrap() <= 3600, "{granted:?}");
    assert!(requests(&daemon).is_empty());
    let path = format!("/v1/network/requests/{}/approve", id(request));
    assert_eq!(daemon.refused("POST", &path, Some(&json!({})))["code"], "REQUEST_NOT_FOUND");
    let answered = told(&daemon, "kind=network_answered");
    let answers: Vec<&Value> = answered.iter().map(|event| &event["data"]["answer"]).collect();
    assert_eq!(answers, ["denied", "approved"], "{answered:?}");
    assert_eq!(answered[1]["data"]["scope"], "sandbox", "{answered:?}");
    let audit = daemon.get("/v1/audit?limit=50").to_string();
    assert!(audit.contains("approve_request") && audit.contains("deny_request"), "{audit}");
    daemon.succeeds(&["grants", "revoke", "box", "web.test"]);
    assert!(grants(&daemon, "box").is_empty());

    // A sandbox for one command is gone with it: there is nobody left to grant it to, but the namespace.
    daemon.post("/v1/runs", json!({ "command": look_up("other.test") }));
    let path = format!("/v1/network/requests/{}/approve", id(&request_of(&daemon, "other.test")));
    let refused = |body: Value| daemon.refused("POST", &path, Some(&body))["next_steps"].to_string();
    until("its sandbox is gone", || refused(json!({})).contains("the scope namespace"));
    assert!(refused(json!({ "scope": "once" })).contains("the scope namespace"));
    daemon.post(&path, json!({ "scope": "namespace" }));
    assert_eq!(daemon.post("/v1/runs", json!({ "command": look_up("other.test") }))["stdout"], "found\n");
}

per_connection!(a_run_waits_for_whoever_can_be_asked_and_for_nobody_else);

fn a_run_waits_for_whoever_can_be_asked_and_for_nobody_else() {
    let daemon = asking();
    // Nobody listens: denied at once. Programs that wait ask a second and a third time.
    let run = daemon.exec("box", json!({ "command": look_up("other.test") }));
    assert_eq!(run["state"], "failed", "{run}");
    assert_eq!(request_of(&daemon, "other.test")["times"], 2, "{:?}", requests(&daemon));

    let mut watch = daemon.isle(&["grants", "watch"]).stdout(Stdio::piped()).spawn().unwrap();
    let _dog = Watchdog::over(&watch);
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    // What waits already is shown first, and then it is being listened.
    let first = lines.next().unwrap().unwrap();
    assert!(first.contains("box requests other.test"), "{first}");
    let run = daemon.exec("box", json!({ "command": look_up("web.test"), "wait": "0s" }));
    let line = lines.next().unwrap().unwrap();
    assert!(line.contains("box requests web.test"), "{line}");
    let request = request_of(&daemon, "web.test");
    assert!(line.starts_with(&id(&request)), "{line}");
    assert_eq!(request["run_id"], run["run_id"], "{request}");
    let granted = approve(&daemon, &request, json!({ "scope": "run" }));
    assert_eq!(
        (&granted["scope"], &granted["grant"]),
        (&json!("run"), &json!("web.test:80,443")),
        "{granted}"
    );
    let ended = wait(&daemon, &run);
    assert_eq!(ended["stdout"], "found\n", "{ended}");
    assert!(ended["violations"].is_null(), "{ended}");
    assert!(grants(&daemon, "box").is_empty(), "it ended with the run");
    let line = lines.next().unwrap().unwrap();
    assert!(line.contains("was granted"), "{line}");

    // Granted by somebody who does not care for requests.
    let run = daemon.exec("box", json!({ "command": look_up("third.test"), "wait": "0s" }));
    let line = lines.next().unwrap().unwrap();
    assert!(line.contains("box requests third.test"), "{line}");
    daemon.succeeds(&["allow", "box", "third.test:443"]);
    assert_eq!(wait(&daemon, &run)["stdout"], "found\n");
    assert!(request_of(&daemon, "third.test").is_null(), "there is nothing left to ask for");

    // Denied while it waits.
    let run = daemon.post("/v1/runs", json!({ "command": look_up("web.test"), "wait": "0s" }));
    lines.next().unwrap().unwrap();
    let request = request_of(&daemon, "web.test");
    let error = daemon.refused(
        "POST",
        &format!("/v1/network/requests/{}/approve", id(&request)),
        Some(&json!({ "scope": "sandbox" })),
    );
    assert_eq!(error["code"], "INVALID_ARGUMENT", "it is gone after its command: {error}");
    daemon.post(&format!("/v1/network/requests/{}/deny", id(&request)), json!({}));
    let ended = wait(&daemon, &run);
    assert_eq!(
        (&ended["state"], &ended["violations"][0]["what"]),
        (&json!("failed"), &json!("network: web.test"))
    );
    watch.kill().unwrap();
    watch.wait().unwrap();
}

per_connection!(an_approval_for_once_lets_one_connection_through);

fn an_approval_for_once_lets_one_connection_through() {
    let server = Server::http();
    let port = server.port;
    let config = format!("network_ask = \"10m\"\nnetwork_allow = [\"127.0.0.1:{port}\"]\n{HOSTS}");
    let daemon = TestDaemon::start_configured(&config, &[]);
    let name = format!("web.test:{port}");
    daemon.post("/v1/sandboxes/box/grants", json!({ "hosts": [name] }));
    let address = daemon.shell("box", "getent hosts web.test | head -n 1 | cut -d ' ' -f 1");
    daemon.succeeds(&["revoke", "box", &name]);
    let mut events = Events::open(&daemon.socket(), "GET /v1/events?kind=network_requested", &[], "");
    // The name was known; what is denied now is the connection, and its port is known too.
    let fetch = format!("curl -sSf -m 100 --resolve {name}:{} http://{name}/once", address.trim());
    let start = || daemon.exec("box", json!({ "command": fetch, "wait": "0s" }));
    let run = start();
    let event = events.next().unwrap();
    assert_eq!(event.data["data"]["grant"], name, "{event:?}");
    let granted = approve(&daemon, &event.data["data"], json!({ "scope": "once" }));
    assert_eq!((&granted["ports"], &granted["connections"]), (&json!([port]), &json!(1)), "{granted}");
    assert_eq!(wait(&daemon, &run)["stdout"], "you asked for /once");
    until("it is used up", || grants(&daemon, "box").iter().all(|grant| grant["source"] == "config"));
    let run = start();
    let event = events.next().unwrap();
    daemon.post(&format!("/v1/network/requests/{}/deny", id(&event.data["data"])), json!({}));
    let ended = wait(&daemon, &run);
    assert_eq!(ended["state"], "failed", "{ended}");
    assert_eq!(server.connections(), 1, "only the one");
}

per_connection!(only_the_operator_answers);

fn only_the_operator_answers() {
    let (daemon, address) = listening(&[]);
    let one = tenant(&daemon, &address, "one");
    one.ask("POST", "/v1/sandboxes/box/exec", Some(&json!({ "command": look_up("web.test") })));
    let listed = daemon.get("/v1/network/requests?all=true");
    let request = &listed["requests"][0];
    assert_eq!((&request["namespace"], &request["sandbox"]), (&json!("one"), &json!("box")), "{listed}");
    assert!(requests(&daemon).is_empty(), "not of this namespace");
    for (method, path, body) in [
        ("GET", "/v1/network/requests".to_owned(), None),
        ("POST", format!("/v1/network/requests/{}/approve", id(request)), Some(json!({}))),
        ("POST", format!("/v1/network/requests/{}/deny", id(request)), Some(json!({}))),
        ("POST", "/v1/grants".to_owned(), Some(json!({ "hosts": ["web.test"] }))),
        ("POST", "/v1/grants/revoke".to_owned(), Some(json!({ "hosts": ["web.test"] }))),
    ] {
        assert_eq!(one.ask(method, &path, body.as_ref()).code(), "FORBIDDEN", "{path}");
    }
    let granted = approve(&daemon, request, json!({ "scope": "namespace" }));
    assert_eq!(granted["namespace"], "one", "{granted}");
    let found = one.ask("GET", "/v1/grants", None).json();
    assert_eq!(found["grants"][0]["grant"], "web.test:80,443", "{found}");
    let ran = one.ask("POST", "/v1/sandboxes/another/exec", Some(&json!({ "command": look_up("web.test") })));
    assert_eq!(ran.json()["stdout"], "found\n", "{}", ran.text());
    let ran = daemon.exec("box", json!({ "command": look_up("web.test") }));
    assert_eq!(ran["state"], "failed", "another namespace: {ran}");
}

per_connection!(requests_of_one_sandbox_are_bounded);

fn requests_of_one_sandbox_are_bounded() {
    let daemon = TestDaemon::start();
    let many = "for n in $(seq 60); do getent hosts n$n.test; done; true";
    daemon.exec("box", json!({ "command": many }));
    assert_eq!(requests(&daemon).len(), 32);
    let run = daemon.exec("box", json!({ "command": look_up("last.test") }));
    assert_eq!(run["violations"][0]["what"], "network: last.test", "denied and recorded all the same: {run}");
}

per_connection!(a_namespace_is_granted_something_for_all_its_sandboxes);

fn a_namespace_is_granted_something_for_all_its_sandboxes() {
    let server = Server::echo();
    let port = server.port;
    let config = format!("network_allow = [\"127.0.0.1:{port}\"]\n{HOSTS}");
    let mut daemon = TestDaemon::start_configured(&config, &[]);
    daemon.post("/v1/tokens", json!({ "namespace": "other" }));
    daemon.shell("old", "true");
    let name = format!("web.test:{port}");
    let said = daemon.succeeds(&["allow", "--all", &name]);
    assert!(said.contains(&name) && said.contains("namespace"), "{said}");
    let hold = format!(
        "exec 3<>/dev/tcp/web.test/{port}; echo hello >&3; read -r line <&3; echo $line > open\n\
         if read -r line <&3; then echo $line; else echo cut; fi"
    );
    let run = daemon.exec("old", json!({ "argv": ["bash", "-c", hold], "wait": "0s" }));
    until("it is connected", || daemon.shell("old", "cat open 2>/dev/null || true") == "hello\n");
    assert_eq!(daemon.shell("new", &look_up("web.test")), "found\n");
    let granted = grants(&daemon, "new");
    assert!(granted.iter().any(|one| one["grant"] == name && one["source"] == "namespace"), "{granted:?}");
    let denied = finish(&mut daemon.isle(&[
        "exec",
        "box",
        "--namespace",
        "other",
        "--",
        "getent",
        "hosts",
        "web.test",
    ]));
    assert_eq!(denied.status.code(), Some(2), "{denied:?}");
    let listed = daemon.succeeds(&["grants", "list"]);
    assert!(listed.contains(&name), "{listed}");
    daemon.succeeds(&["revoke", "--all", &name]);
    let ended = wait(&daemon, &run);
    assert_eq!(ended["stdout"], "cut\n", "{ended}");
    let error = daemon.refused("POST", "/v1/grants/revoke", Some(&json!({ "hosts": [name] })));
    assert_eq!(error["code"], "GRANT_NOT_FOUND", "{error}");
    // It stays when the daemon does not.
    daemon.post("/v1/grants", json!({ "hosts": ["other.test"], "lifetime": "1h" }));
    daemon.kill();
    daemon.launch();
    assert_eq!(daemon.shell("old", &look_up("other.test")), "found\n");
    assert_eq!(daemon.post("/v1/runs", json!({ "command": look_up("other.test") }))["stdout"], "found\n");
}

per_connection!(a_profile_and_the_making_of_a_sandbox_grant);

fn a_profile_and_the_making_of_a_sandbox_grant() {
    let config = format!("{HOSTS}\n[profiles.web]\nallow = [\"web.test\", \"*.wide.test:8080\"]\n");
    let mut daemon = TestDaemon::start_configured(&config, &[]);
    daemon.succeeds(&["create", "web", "--profile", "web"]);
    daemon.succeeds(&["create", "other", "--allow", "other.test", "--allow", "more.test:22"]);
    daemon.shell("plain", "true");
    for restarted in [false, true] {
        assert_eq!(daemon.shell("web", &look_up("web.test")), "found\n", "{restarted}");
        let denied = daemon.exec("web", json!({ "command": look_up("other.test") }));
        assert_eq!(denied["state"], "failed", "{denied}");
        let granted = grants(&daemon, "web");
        assert!(granted.iter().all(|one| one["source"] == "profile"), "{granted:?}");
        assert_eq!(daemon.shell("other", &look_up("other.test")), "found\n");
        assert_eq!(grants(&daemon, "other").len(), 2);
        assert!(grants(&daemon, "plain").is_empty());
        daemon.kill();
        daemon.launch();
    }
    let once = daemon.post("/v1/runs", json!({ "command": look_up("web.test"), "profile": "web" }));
    assert_eq!(once["stdout"], "found\n", "{once}");
    // What a profile grants is not taken back from a sandbox.
    let error =
        daemon.refused("POST", "/v1/sandboxes/web/grants/revoke", Some(&json!({ "hosts": ["web.test"] })));
    assert_eq!(error["code"], "GRANT_NOT_FOUND", "{error}");
    let wrong = json!({ "sandbox": "wrong", "allow": ["*"] });
    assert_eq!(daemon.refused("POST", "/v1/sandboxes", Some(&wrong))["code"], "INVALID_ARGUMENT");
    assert!(!daemon.names().contains(&"wrong".to_owned()), "it was made all the same");
}
