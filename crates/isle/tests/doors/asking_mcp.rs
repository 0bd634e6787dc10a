//! MCP clients whose person can be asked: by a request during the call in the revisions that have those,
//! by a result that is answered with a second call in the one that has not; over standard streams and HTTP.

use serde_json::{Value, json};

use crate::asking::{asking, look_up, request_of, requests};
use crate::events::told;
use crate::harness::http::{Events, unix_raw};
use crate::harness::{TestDaemon, per_connection};
use crate::mcp::Client;
use crate::tenants::{ACCEPT, JSON};

fn exec(name: &str) -> Value {
    json!({ "name": "exec", "arguments": { "sandbox": "box", "command": look_up(name) } })
}

fn accept(answer: &str) -> Value {
    json!({ "action": "accept", "content": { "answer": answer } })
}

/// Takes the question that came instead of an answer.
fn question(client: &mut Client) -> Value {
    let message = client.next();
    assert_eq!(message["method"], "elicitation/create", "{message}");
    message
}

/// What the form of a question offers.
fn offered(question: &Value) -> Vec<String> {
    let choice = &question["requestedSchema"]["properties"]["answer"];
    assert_eq!(choice["default"], "deny", "{question}");
    let words = choice["enum"].as_array().cloned().unwrap_or_else(|| {
        choice["oneOf"].as_array().unwrap().iter().map(|one| one["const"].clone()).collect()
    });
    words.iter().map(|word| word.as_str().unwrap().to_owned()).collect()
}

per_connection!(a_client_that_can_be_asked_is_asked_during_the_call);

fn a_client_that_can_be_asked_is_asked_during_the_call() {
    let daemon = asking();
    for (version, name, other) in
        [("2025-06-18", "one.test", "two.test"), ("2025-11-25", "three.test", "four.test")]
    {
        let (mut client, _) = Client::initialized_as(&daemon, version, &[], json!({ "elicitation": {} }));
        let call = client.ask("tools/call", exec(name));
        let asked = question(&mut client);
        let text = asked["params"]["message"].as_str().unwrap();
        assert!(
            text.contains("box") && text.contains(&format!("{name}, port 80 (http) and 443 (tls)")),
            "{text}"
        );
        assert_eq!(offered(&asked["params"]), ["deny", "once", "run", "sandbox"], "{asked}");
        client.send(&json!({ "jsonrpc": "2.0", "id": asked["id"], "result": accept("sandbox") }));
        let result = client.answer(call)["result"].clone();
        assert_eq!(result["structuredContent"]["stdout"], "found\n", "{result}");
        assert_eq!(daemon.shell("box", &look_up(name)), "found\n", "it stays");

        // Declined: denied, remembered, and nobody is asked again.
        let call = client.ask("tools/call", exec(other));
        let asked = question(&mut client);
        client.send(&json!({ "jsonrpc": "2.0", "id": asked["id"], "result": { "action": "decline" } }));
        let result = client.answer(call)["result"].clone();
        assert_eq!(result["structuredContent"]["state"], "failed", "{result}");
        assert_eq!(request_of(&daemon, other)["state"], "denied");
        let result = client.call("exec", exec(other)["arguments"].clone());
        assert_eq!(result["structuredContent"]["state"], "failed", "{result}");
        assert!(client.notices.iter().all(|notice| notice["method"] != "elicitation/create"));
    }
    let answered = told(&daemon, "kind=network_answered");
    assert_eq!(answered.len(), 4, "{answered:?}");
    let audit = daemon.get("/v1/audit?limit=100").to_string();
    assert!(audit.contains("mcp:test"), "answered as the client's: {audit}");
}

per_connection!(a_client_that_cannot_be_asked_is_not_waited_for);

fn a_client_that_cannot_be_asked_is_not_waited_for() {
    let daemon = asking();
    for capabilities in [json!({}), json!({ "elicitation": { "url": {} } })] {
        let (mut client, _) = Client::initialized_as(&daemon, "2025-11-25", &[], capabilities);
        let result = client.call("exec", exec("web.test")["arguments"].clone());
        assert_eq!(result["structuredContent"]["state"], "failed", "{result}");
        assert!(client.notices.is_empty(), "{:?}", client.notices);
    }
    // Who waits is asked for a second and third time by the program.
    assert_eq!(request_of(&daemon, "web.test")["times"], 4, "{:?}", requests(&daemon));
}

/// A request of the sessionless revision of a client that can be asked.
fn modern(mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": { "elicitation": { "form": {} } },
        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
    });
    params
}

/// The same call with the answer to what came as a result.
fn answered(mut call: Value, result: &Value, answer: Value) -> Value {
    call["requestState"] = result["requestState"].clone();
    call["inputResponses"] = json!({ "network": answer });
    call
}

/// One exchange in which a client of the sessionless revision is asked, whatever it is carried by.
fn asked_by_results(daemon: &TestDaemon, prefix: &str, mut request: impl FnMut(Value) -> Value) {
    let name = |number: u32| format!("{prefix}{number}.test");
    let call = exec(&name(1));
    let asked = request(modern(call.clone()))["result"].clone();
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    let form = &asked["inputRequests"]["network"]["params"];
    assert!(form["message"].as_str().unwrap().contains(&name(1)), "{asked}");
    assert_eq!(offered(form), ["deny", "once", "run", "sandbox"], "{asked}");
    // Another call cannot take its place, nor can one who guesses.
    let stolen = request(modern(answered(exec(&name(2)), &asked, accept("sandbox"))));
    assert!(stolen["error"].is_object(), "{stolen}");
    let guessed = json!({ "requestState": "ask_00000000000000000000000000" });
    let guessed = request(modern(answered(call.clone(), &guessed, accept("sandbox"))));
    assert!(guessed["error"].is_object(), "{guessed}");
    // Who brings no answer is asked again.
    let mut empty = answered(call.clone(), &asked, Value::Null);
    empty["inputResponses"] = json!({});
    let asked = request(modern(empty))["result"].clone();
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    let result = request(modern(answered(call, &asked, accept("run"))))["result"].clone();
    assert_eq!(result["structuredContent"]["stdout"], "found\n", "{result}");
    // The command ran once.
    let history = daemon.get("/v1/runs?limit=100").to_string();
    assert_eq!(history.matches(&look_up(&name(1))).count(), 1, "{history}");

    let call = exec(&name(3));
    let asked = request(modern(call.clone()))["result"].clone();
    let result = request(modern(answered(call, &asked, json!({ "action": "cancel" }))))["result"].clone();
    assert_eq!(result["structuredContent"]["state"], "failed", "{result}");
    assert_eq!(request_of(daemon, &name(3))["state"], "denied");
}

per_connection!(a_client_of_the_sessionless_revision_is_asked_by_a_result);

fn a_client_of_the_sessionless_revision_is_asked_by_a_result() {
    let daemon = asking();
    let mut client = Client::start(&daemon);
    asked_by_results(&daemon, "pipe", |params| client.request("tools/call", params));
    asked_by_results(&daemon, "http", |params| {
        let message = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
        let headers =
            [JSON, ACCEPT, "MCP-Protocol-Version: 2026-07-28", "Mcp-Method: tools/call", "Mcp-Name: exec"];
        unix_raw(&daemon.socket(), "POST /mcp", &headers, message.to_string().as_bytes()).json()
    });
}

per_connection!(a_client_over_http_is_asked_on_the_stream_of_its_call);

fn a_client_over_http_is_asked_on_the_stream_of_its_call() {
    let daemon = asking();
    let post = |session: &[&str], message: &Value| {
        let headers: Vec<&str> = [JSON, ACCEPT].iter().chain(session).copied().collect();
        unix_raw(&daemon.socket(), "POST /mcp", &headers, message.to_string().as_bytes())
    };
    let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": { "elicitation": { "form": {} } },
        "clientInfo": { "name": "test", "version": "1" } } });
    let opened = post(&[], &hello);
    let session = format!("Mcp-Session-Id: {}", opened.header("mcp-session-id").unwrap());
    post(&[&session], &json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
    let call = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": exec("web.test") });
    let headers = [JSON, ACCEPT, session.as_str()];
    let mut stream = Events::open(&daemon.socket(), "POST /mcp", &headers, &call.to_string());
    let asked = stream.data().unwrap();
    assert_eq!(asked["method"], "elicitation/create", "{asked}");
    let answer = json!({ "jsonrpc": "2.0", "id": asked["id"], "result": accept("run") });
    assert_eq!(post(&[&session], &answer).status, 202);
    let result = stream.data().unwrap();
    assert_eq!(result["result"]["structuredContent"]["stdout"], "found\n", "{result}");
}
