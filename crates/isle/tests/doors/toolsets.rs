//! Which tools an MCP client is shown, and what an operator tells models about them.

use serde_json::{Value, json};

use crate::harness::http::unix_raw;
use crate::harness::{TestDaemon, finish};
use crate::mcp::Client;

const REVISION: &str = "2025-11-25";

fn listed(client: &mut Client) -> Vec<Value> {
    client.request("tools/list", json!({}))["result"]["tools"].as_array().unwrap().clone()
}

fn names(tools: &[Value]) -> Vec<&str> {
    tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect()
}

/// One request of the sessionless revision over HTTP.
fn over_http(daemon: &TestDaemon, query: &str, method: &str, mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    });
    let name = params["name"].as_str().map(|name| format!("Mcp-Name: {name}"));
    let method_header = format!("Mcp-Method: {method}");
    let mut headers = vec![
        "Content-Type: application/json",
        "Accept: application/json, text/event-stream",
        "MCP-Protocol-Version: 2026-07-28",
        method_header.as_str(),
    ];
    headers.extend(name.as_deref());
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
    unix_raw(&daemon.socket(), &format!("POST /mcp{query}"), &headers, message.as_bytes()).json()
}

#[test]
fn a_client_is_shown_the_sets_of_tools_it_asks_for_and_no_others() {
    let daemon = TestDaemon::start();
    daemon.shell("default", "true");
    let (mut client, _) = Client::initialized_with(&daemon, REVISION, &["--toolsets", "contexts,core"]);
    let shown = listed(&mut client);
    let shown = names(&shown);
    assert!(shown.contains(&"exec") && shown.contains(&"list_contexts"), "{shown:?}");
    assert_eq!(client.call("list_contexts", json!({}))["structuredContent"]["contexts"], json!([]));
    drop(client);
    let (mut client, _) = Client::initialized_with(&daemon, REVISION, &["--toolsets", "contexts"]);
    assert!(!names(&listed(&mut client)).contains(&"exec"));
    let refused = client
        .request("tools/call", json!({"name": "exec", "arguments": {"sandbox": "new", "command": "true"}}));
    let words = refused["error"]["message"].as_str().unwrap();
    assert!(words.contains("--toolsets contexts,core"), "{refused}");
    assert_eq!(daemon.names(), ["default"], "a refused call has done nothing");
}

#[test]
fn a_client_over_http_chooses_its_sets_in_the_address() {
    let daemon = TestDaemon::start();
    daemon.shell("default", "true");
    let few = over_http(&daemon, "", "tools/list", json!({}))["result"]["tools"].clone();
    let all = over_http(&daemon, "?toolsets=all", "tools/list", json!({}))["result"]["tools"].clone();
    let (few, all) = (few.as_array().unwrap(), all.as_array().unwrap());
    assert!(all.len() > few.len() && names(all).contains(&"list_contexts"), "{} {}", few.len(), all.len());
    let call = json!({"name": "list_contexts", "arguments": {}});
    assert!(over_http(&daemon, "", "tools/call", call.clone())["error"].is_object());
    let answer = over_http(&daemon, "?toolsets=contexts", "tools/call", call);
    assert_eq!(answer["result"]["structuredContent"]["contexts"], json!([]), "{answer}");
    for wrong in ["?toolsets=cor", "?toolsets=", "?tools=core", "?toolsets=core&toolsets=files"] {
        let refused = over_http(&daemon, wrong, "tools/list", json!({}));
        assert_eq!(refused["error"]["code"], "INVALID_ARGUMENT", "{wrong}: {refused}");
        assert!(!refused["error"]["next_steps"].as_array().unwrap().is_empty(), "{refused}");
    }
}

#[test]
fn the_daemon_is_told_which_sets_are_shown_and_what_is_said_of_a_tool() {
    let mut daemon = TestDaemon::start();
    daemon.terminate();
    let write = |text: &str| drop(daemon.home().write("config/isle/config.toml", text));
    write(
        "toolsets = [\"core\", \"contexts\"]\n[tool_descriptions]\nstatus = \"Ours.\"\n\
         [tool_descriptions_append]\nexec = \"Ask first.\"\nstatus = \"And more.\"\n",
    );
    daemon.launch();
    let (mut client, _) = Client::initialized(&daemon, REVISION);
    let tools = listed(&mut client);
    let said = |name: &str| {
        tools.iter().find(|tool| tool["name"] == name).unwrap()["description"].as_str().unwrap().to_owned()
    };
    assert!(names(&tools).contains(&"list_contexts"));
    assert_eq!(said("status"), "Ours. And more.");
    assert!(said("exec").ends_with(" Ask first.") && said("exec").len() > 40, "{}", said("exec"));
    drop(client);
    daemon.terminate();
    for (text, word) in [
        ("toolsets = [\"core\", \"kitchen\"]\n", "kitchen"),
        ("toolsets = []\n", "toolsets"),
        ("[tool_descriptions]\nexecute = \"x\"\n", "execute"),
        ("[tool_descriptions_append]\nhealth = \"x\"\n", "health"),
    ] {
        daemon.home().write("config/isle/config.toml", text);
        let told = daemon.try_launch().unwrap_err();
        assert!(told.contains("CONFIG_INVALID") && told.contains(word), "{told}");
    }
    daemon.home().write("config/isle/config.toml", "");
    daemon.launch();
}

#[test]
fn an_unknown_set_of_tools_is_refused_before_the_session_begins() {
    let daemon = TestDaemon::start();
    let refused = finish(&mut daemon.isle(&["mcp", "--toolsets", "core,tools"]));
    let words = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && refused.stdout.is_empty());
    assert!(words.contains("INVALID_ARGUMENT") && words.contains("\"tools\""), "{words}");
}

#[test]
fn what_is_the_operators_is_asked_for_by_name_and_no_credential_goes_to_a_model() {
    let daemon = TestDaemon::start();
    let minting = ["create_token", "add_webhook", "port_url"];
    let (mut client, _) = Client::initialized_with(&daemon, REVISION, &["--toolsets", "all"]);
    let shown = listed(&mut client);
    let shown = names(&shown);
    assert!(shown.contains(&"net") && shown.contains(&"list_contexts"), "{shown:?}");
    for hidden in ["limits", "list_tokens", "revoke_token", "audit"].iter().chain(&minting) {
        assert!(!shown.contains(hidden), "{hidden}: {shown:?}");
        let call = json!({"name": hidden, "arguments": {"namespace": "evil"}});
        assert!(client.request("tools/call", call)["error"].is_object(), "{hidden}");
    }
    drop(client);
    let over = over_http(&daemon, "?toolsets=all", "tools/list", json!({}))["result"]["tools"].clone();
    assert!(!names(over.as_array().unwrap()).contains(&"limits"));
    // By its name it is shown, and still nothing that mints.
    let (mut client, _) = Client::initialized_with(&daemon, REVISION, &["--toolsets", "all,admin"]);
    let shown = listed(&mut client);
    let shown = names(&shown);
    assert!(shown.contains(&"limits") && shown.contains(&"exec"), "{shown:?}");
    for hidden in minting {
        assert!(!shown.contains(&hidden), "{hidden}");
        let call = json!({"name": hidden, "arguments": {"namespace": "evil"}});
        assert!(client.request("tools/call", call)["error"].is_object(), "{hidden}");
    }
    assert_eq!(daemon.get("/v1/tokens")["tokens"], json!([]));
}
