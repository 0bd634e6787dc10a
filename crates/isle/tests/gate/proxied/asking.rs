//! Asking through the proxy: what is denied there waits for a person who can be asked, goes on when it is
//! approved, and is told why when it is not. Nothing has to be granted before.

use serde_json::{Value, json};

use super::{LANGUAGES, pages, reaching};
use crate::harness::http::Events;
use crate::harness::{McpClient, Missing, TestDaemon, per_connection, require};
use crate::servers::{NAMES, make_process, needs};

/// A daemon that asks, with a sandbox to which no name was granted, and those addresses.
fn asking(addresses: &[&str]) -> Result<TestDaemon, Missing> {
    let config = format!("network_ask = \"10m\"\nnetwork_allow = {addresses:?}\n{NAMES}");
    let daemon = TestDaemon::start_configured(&config, &[]);
    make_process(&daemon, "plain")?;
    needs(&daemon, "curl")?;
    Ok(daemon)
}

fn fetch(port: u16, flags: &str) -> String {
    format!("curl -sS -m 100 -w ' %{{http_code}} %{{http_connect}}' {flags} http://web.test:{port}/page")
}

fn answer(daemon: &TestDaemon, asked: &Value, answer: &str, body: Value) {
    let id = asked["data"]["request"].as_str().unwrap_or_else(|| panic!("{asked}"));
    daemon.post(&format!("/v1/network/requests/{id}/{answer}"), body);
}

fn ended(daemon: &TestDaemon, run: &Value) -> Value {
    let path = format!("/v1/runs/{}/wait", run["run_id"].as_str().unwrap());
    daemon.post(&path, json!({ "timeout": "120s" }))
}

per_connection!(what_is_denied_at_the_proxy_waits_for_a_person_and_goes_on_when_it_is_approved);

fn what_is_denied_at_the_proxy_waits_for_a_person_and_goes_on_when_it_is_approved() {
    let (_directory, _server, port) = pages();
    let daemon = require!(asking(&[&reaching(port)[1]]));
    let mut events = Events::open(&daemon.socket(), "GET /v1/events?kind=network_requested", &[], "");
    for flags in LANGUAGES {
        let command = fetch(port, flags);
        let run = daemon.exec("plain", json!({ "command": command, "wait": "0s" }));
        let asked = events.next().unwrap().data;
        assert_eq!(asked["data"]["grant"], reaching(port)[0], "{asked}");
        answer(&daemon, &asked, "approve", json!({ "scope": "once" }));
        let ended = ended(&daemon, &run);
        assert!(ended["stdout"].as_str().unwrap().starts_with("the page\n 200"), "{flags}: {ended}");
        assert!(ended["violations"].is_null(), "{flags}: {ended}");
    }
    // On the command line; for the sandbox, so that nobody is asked again.
    let run = daemon.exec("plain", json!({ "command": fetch(port, "--proxytunnel"), "wait": "0s" }));
    let asked = events.next().unwrap().data;
    let listed = daemon.succeeds(&["grants", "list", "plain"]);
    assert!(listed.contains(&reaching(port)[0]) && listed.contains("pending"), "{listed}");
    daemon.succeeds(&["grants", "approve", asked["data"]["request"].as_str().unwrap()]);
    assert!(ended(&daemon, &run)["stdout"].as_str().unwrap().starts_with("the page\n"));
    assert!(daemon.shell("plain", &fetch(port, "")).starts_with("the page\n"));
}

per_connection!(what_a_person_denies_at_the_proxy_stays_denied_and_says_so);

fn what_a_person_denies_at_the_proxy_stays_denied_and_says_so() {
    let daemon = require!(asking(&[]));
    let port = 8080;
    // There is a proxy although nothing is granted. Nobody listens: denied at once.
    let run = daemon.exec("plain", json!({ "command": fetch(port, "") }));
    assert!(run["stdout"].as_str().unwrap().contains("reason: not_granted"), "{run}");
    let mut events = Events::open(&daemon.socket(), "GET /v1/events?kind=network_requested", &[], "");
    // The one above waits to be answered; it is asked for again, and not told anew.
    let other = fetch(port, "").replace("web.test", "other.test");
    let run = daemon.exec("plain", json!({ "command": other, "wait": "0s" }));
    let asked = events.next().unwrap().data;
    assert_eq!(asked["data"]["host"], "other.test", "{asked}");
    answer(&daemon, &asked, "deny", json!({}));
    let run = ended(&daemon, &run);
    let said = run["stdout"].as_str().unwrap();
    assert!(said.contains("reason: not_granted") && said.ends_with(" 403 000"), "{run}");
    assert!(run["violations"].to_string().contains("other.test"), "{run}");
    // Remembered: the next is not held, whatever the language.
    for flags in &LANGUAGES[1..] {
        let run = daemon.exec("plain", json!({ "command": other.replace("-sS", &format!("-sSi {flags}")) }));
        assert_eq!(run["state"], "failed", "{run}");
        assert!(run["violations"].to_string().contains("other.test"), "{run}");
    }
}

per_connection!(the_client_of_a_run_is_asked_for_what_is_denied_at_the_proxy);

fn the_client_of_a_run_is_asked_for_what_is_denied_at_the_proxy() {
    let (_directory, _server, port) = pages();
    let daemon = require!(asking(&[&reaching(port)[1]]));
    let (mut client, _) = McpClient::initialized_as(&daemon, "2025-11-25", &[], json!({ "elicitation": {} }));
    let exec = json!({ "name": "exec", "arguments": { "sandbox": "plain", "command": fetch(port, "--proxytunnel") } });
    for (choice, expected) in [("once", "the page\n 200 200"), ("deny", " 000 403")] {
        let call = client.ask("tools/call", exec.clone());
        let asked = client.next();
        assert_eq!(asked["method"], "elicitation/create", "{asked}");
        let text = asked["params"]["message"].as_str().unwrap();
        assert!(text.contains(&format!("web.test, port {port}")), "{asked}");
        let chosen = json!({ "action": "accept", "content": { "answer": choice } });
        client.send(&json!({ "jsonrpc": "2.0", "id": asked["id"], "result": chosen }));
        let result = client.answer(call)["result"]["structuredContent"].clone();
        assert_eq!(result["stdout"], expected, "{result}");
    }
}
