//! A request that is not granted of a host that is: put to a person as a name is, by HTTP, on the command
//! line and by MCP clients, and what is approved is that request and no other.

use serde_json::{Value, json};

use crate::asking::{approve, grants, id, request_of, requests, wait};
use crate::events::told;
use crate::harness::http::Events;
use crate::harness::{TestDaemon, per_connection};
use crate::mcp::Client;
use crate::network;
use crate::opened::Server;

/// A request, and the status it is answered with.
fn curl(server: &Server, options: &str, path: &str) -> String {
    format!("curl -sS -m 100 -o /dev/null -w '%{{http_code}}' {options} '{}'", server.url(path))
}

fn status(daemon: &TestDaemon, command: &str) -> String {
    daemon.exec("box", json!({ "command": command }))["stdout"].as_str().unwrap_or_default().to_owned()
}

per_connection!(a_denied_request_of_a_granted_host_becomes_one_that_a_person_answers);

fn a_denied_request_of_a_granted_host_becomes_one_that_a_person_answers() {
    let server = Server::start();
    let daemon = server.daemon();
    server.allow(&daemon, "box", &["/v1/* GET"]);
    let post = |version: &str| curl(&server, &format!("{version} -X POST"), "/v1/items?id=1");
    assert_eq!(status(&daemon, &curl(&server, "", "/v1/items")), "200", "the control");
    assert_eq!(status(&daemon, &post("--http1.1")), "403");
    assert_eq!(status(&daemon, &post("--http2")), "403");
    let request = request_of(&daemon, "web.test");
    let grant = format!("https://web.test:{}/v1/items POST", server.port);
    assert_eq!(requests(&daemon).len(), 1, "one for the same: {:?}", requests(&daemon));
    assert_eq!(
        (&request["grant"], &request["only"], &request["ports"], &request["protocols"]),
        (&json!(grant), &json!("POST /v1/items"), &json!([server.port]), &json!(["tls"])),
        "{request}"
    );
    assert_eq!((&request["reason"], &request["times"]), (&json!("request_not_granted"), &json!(2)));
    let shown = daemon.succeeds(&["grants", "list", "box"]);
    assert!(shown.contains(&id(&request)) && shown.contains(&grant), "{shown}");
    // Other hosts, and other requests of this one, are not what was asked for.
    daemon.succeeds(&["allow", "box", "other.test:443"]);
    daemon.succeeds(&["allow", "box", &format!("{} DELETE", server.url("/v1/items"))]);
    assert_eq!(request_of(&daemon, "web.test")["state"], "pending");

    let said = daemon.succeeds(&["grants", "approve", &id(&request), "--scope", "once"]);
    let what = format!("web.test, port {} (tls), for POST /v1/items only", server.port);
    assert_eq!(said, format!("granted to one request of box: {what}, for 60s\n"));
    assert_eq!(status(&daemon, &curl(&server, "-X POST", "/v1/items/1")), "403", "another path");
    assert_eq!(status(&daemon, &curl(&server, "-X PUT", "/v1/items")), "403", "another method");
    assert_eq!(status(&daemon, &curl(&server, "", "/v1/items")), "200", "granted anyway");
    assert_eq!(status(&daemon, &post("")), "200");
    assert_eq!(status(&daemon, &post("")), "403", "it was for once");
    assert!(grants(&daemon, "box").iter().all(|one| one["source"] != "once"), "used up");

    let find = |only: &str| requests(&daemon).into_iter().find(|one| one["only"] == only).unwrap_or_default();
    let granted = approve(&daemon, &find("POST /v1/items"), json!({ "scope": "sandbox" }));
    assert_eq!((&granted["grant"], &granted["only"]), (&json!(grant), &json!("POST /v1/items")), "{granted}");
    for version in ["--http1.1", "--http2", "--http2"] {
        assert_eq!(status(&daemon, &post(version)), "200", "{version}");
    }
    let shown: Vec<Value> = grants(&daemon, "box").into_iter().filter(|one| one["grant"] == grant).collect();
    assert_eq!(shown.len(), 1, "{shown:?}");
    // Denied is remembered; granted without being asked about it is over.
    daemon.succeeds(&["grants", "deny", &id(&find("PUT /v1/items"))]);
    assert_eq!(status(&daemon, &curl(&server, "-X PUT", "/v1/items")), "403");
    assert_eq!(find("PUT /v1/items")["state"], "denied");
    assert_eq!(find("POST /v1/items/1")["state"], "pending");
    daemon.succeeds(&["allow", "box", &format!("{} POST", server.url("/v1/items/*"))]);
    assert!(find("POST /v1/items/1").is_null(), "{:?}", requests(&daemon));
    let answered = told(&daemon, "kind=network_answered");
    assert_eq!(answered.len(), 3, "{answered:?}");
    assert_eq!(answered[0]["data"]["only"], "POST /v1/items", "{answered:?}");
    let audit = daemon.get("/v1/audit?limit=100").to_string();
    assert!(audit.contains("approve_request") && audit.contains(&grant), "{audit}");
    let posted = server.seen().iter().filter(|seen| seen["method"] == "POST").count();
    assert_eq!(posted, 4, "what was denied never reached the server");
}

per_connection!(a_denied_request_waits_for_the_person_of_an_mcp_client);

fn a_denied_request_waits_for_the_person_of_an_mcp_client() {
    let server = Server::start();
    let daemon = server.daemon_with("network_ask = \"10m\"\n");
    server.allow(&daemon, "box", &["/v1/* GET"]);
    let (mut client, _) = Client::initialized_as(&daemon, "2025-11-25", &[], json!({ "elicitation": {} }));
    let mut exec = |path: &str, answer: &str| {
        let command = curl(&server, "-X POST", path);
        let arguments = json!({ "sandbox": "box", "command": command });
        let call = client.ask("tools/call", json!({ "name": "exec", "arguments": arguments }));
        let asked = client.next();
        assert_eq!(asked["method"], "elicitation/create", "{asked}");
        let text = asked["params"]["message"].as_str().unwrap();
        let what = format!("web.test, port {} (tls), for POST {path} only", server.port);
        assert!(text.contains("box") && text.contains(&what), "{text}");
        let content = json!({ "action": "accept", "content": { "answer": answer } });
        client.send(&json!({ "jsonrpc": "2.0", "id": asked["id"], "result": content }));
        client.answer(call)["result"]["structuredContent"].clone()
    };
    let result = exec("/v1/one", "once");
    assert_eq!(result["stdout"], "200", "{result}");
    assert!(result["violations"].is_null(), "{result}");
    // Asked again: it was for once.
    let result = exec("/v1/one", "run");
    assert_eq!(result["stdout"], "200", "{result}");
    let result = exec("/v1/two", "deny");
    assert_eq!(result["stdout"], "403", "{result}");
    assert!(result["violations"].to_string().contains("request_not_granted"), "{result}");
    let source = |one: &Value| ["once", "run"].iter().any(|source| one["source"] == *source);
    assert!(!grants(&daemon, "box").iter().any(source), "they ended: {:?}", grants(&daemon, "box"));
}

per_connection!(a_denied_request_without_encryption_waits_for_whoever_listens);

fn a_denied_request_without_encryption_waits_for_whoever_listens() {
    let server = network::Server::http();
    let port = server.port;
    let config = format!(
        "network_ask = \"10m\"\nnetwork_allow = [\"127.0.0.1:{port}\"]\n[network_hosts]\n\"web.test\" = \"127.0.0.1\"\n"
    );
    let daemon = TestDaemon::start_configured(&config, &[]);
    daemon.succeeds(&["allow", "box", &format!("http://web.test:{port}/open GET")]);
    let fetch = |path: &str| format!("curl -sS -m 100 http://web.test:{port}{path}");
    assert_eq!(daemon.shell("box", &fetch("/open")), "you asked for /open", "the control");
    let mut events = Events::open(&daemon.socket(), "GET /v1/events?kind=network_requested", &[], "");
    let run = daemon.exec("box", json!({ "command": fetch("/closed?x"), "wait": "0s" }));
    let event = events.next().unwrap().data;
    assert_eq!(event["data"]["grant"], format!("http://web.test:{port}/closed GET"), "{event}");
    assert_eq!(server.connections(), 1, "nobody was dialed for it");
    approve(&daemon, &event["data"], json!({ "scope": "namespace" }));
    assert_eq!(wait(&daemon, &run)["stdout"], "you asked for /closed?x");
    let shared = daemon.get("/v1/grants").to_string();
    assert!(shared.contains("/closed GET"), "{shared}");
    // Its host is taken back while one waits: over, and told in HTTP.
    let run = daemon.exec("box", json!({ "command": fetch("/third"), "wait": "0s" }));
    events.next().unwrap();
    daemon.succeeds(&["revoke", "box", &format!("http://web.test:{port}/open GET")]);
    daemon.succeeds(&["revoke", "--all", &format!("http://web.test:{port}/closed GET")]);
    let ended = wait(&daemon, &run);
    assert!(ended["stdout"].as_str().unwrap().contains("reason: grant_ended"), "{ended}");
}

per_connection!(a_request_that_cannot_be_said_exactly_is_never_asked_for);

fn a_request_that_cannot_be_said_exactly_is_never_asked_for() {
    let server = Server::start();
    let daemon = server.daemon();
    server.allow(&daemon, "box", &["/v1/* GET"]);
    for (options, path) in [
        ("", "/v2/*"),
        ("", "/v1/../admin"),
        ("", "/v1/%2e%2e/admin"),
        ("", "/v2//admin"),
        ("-X post", "/v1/a"),
        ("-X TRACE", "/v1/a"),
        ("-X A-B", "/v1/a"),
    ] {
        let command = curl(&server, &format!("-g --path-as-is {options}"), path);
        assert_eq!(status(&daemon, &command), "403", "{options} {path}");
    }
    let long = format!("/v2/{}", "a".repeat(1100));
    assert_eq!(status(&daemon, &curl(&server, "", &long)), "403");
    assert!(requests(&daemon).is_empty(), "{:?}", requests(&daemon));
    assert!(server.seen().is_empty(), "{:?}", server.seen());
    // The control: one that can.
    assert_eq!(status(&daemon, &curl(&server, "", "/v2/a")), "403");
    assert_eq!(requests(&daemon).len(), 1);
}
