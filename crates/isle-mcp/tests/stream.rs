//! MCP over a byte stream, spoken line by line as a client does, to an engine without backends.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use isle_core::values::Namespace;
use isle_engine::{CallerRole, Engine, EngineConfig};
use isle_mcp::{McpHandler, McpOptions, McpPeer, StreamError, serve_stream};
use isle_store::Store;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

struct Client {
    lines: Lines<BufReader<ReadHalf<DuplexStream>>>,
    writer: WriteHalf<DuplexStream>,
    server: JoinHandle<Result<(), StreamError>>,
    shutdown: CancellationToken,
    _state: tempfile::TempDir,
}

impl Client {
    async fn connect() -> Self {
        let state = tempfile::tempdir().unwrap();
        let store = Store::open(&state.path().join("state")).unwrap();
        let engine = Engine::start(EngineConfig::default(), store, Vec::new()).await.unwrap();
        let handler = McpHandler::new(engine, McpOptions::default());
        let (ours, theirs) = tokio::io::duplex(1 << 20);
        let shutdown = CancellationToken::new();
        let ends = shutdown.clone();
        let peer =
            McpPeer { actor: "uid:7".into(), namespace: Namespace::default(), role: CallerRole::Operator };
        let server = tokio::spawn(async move { serve_stream(&handler, theirs, peer, ends).await });
        let (reader, writer) = tokio::io::split(ours);
        Self { lines: BufReader::new(reader).lines(), writer, server, shutdown, _state: state }
    }

    /// A client of the revisions that begin with a handshake.
    async fn initialized() -> (Self, Value) {
        let mut client = Self::connect().await;
        let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
        let answer = client.request("initialize", hello).await;
        client.send(json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
        (client, answer["result"].clone())
    }

    async fn send(&mut self, message: Value) {
        self.writer.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    async fn request(&mut self, method: &str, params: Value) -> Value {
        self.send(json!({"jsonrpc": "2.0", "id": method, "method": method, "params": params})).await;
        let line = self.lines.next_line().await.unwrap().unwrap();
        let answer: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(answer["id"], method);
        answer
    }

    async fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.request("tools/call", json!({"name": tool, "arguments": arguments})).await
    }
}

/// What every request of the sessionless revision carries.
fn modern() -> Value {
    json!({"_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"}
    }})
}

#[tokio::test]
async fn only_tools_are_announced_and_what_is_not_announced_is_not_there() {
    let (mut client, info) = Client::initialized().await;
    assert_eq!(info["protocolVersion"], "2025-11-25");
    assert_eq!(info["capabilities"], json!({"tools": {}}));
    assert_eq!(info["serverInfo"]["name"], "isle");
    assert!(info["instructions"].as_str().unwrap().contains("sandbox"));
    for method in ["prompts/list", "resources/list", "resources/templates/list"] {
        assert_eq!(client.request(method, json!({})).await["error"]["code"], -32601, "{method}");
    }
    let complete =
        json!({"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "a", "value": ""}});
    assert_eq!(client.request("completion/complete", complete).await["error"]["code"], -32601);
    assert_eq!(client.request("ping", json!({})).await["result"], json!({}));
}

#[tokio::test]
async fn every_tool_has_schemas_a_title_and_honest_annotations() {
    let (mut client, _) = Client::initialized().await;
    let list = client.request("tools/list", json!({})).await;
    let tools = list["result"]["tools"].as_array().unwrap();
    assert!(tools.iter().any(|tool| tool["name"] == "exec"));
    for tool in tools {
        let name = tool["name"].as_str().unwrap();
        assert!(
            name.len() <= 30 && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'),
            "{name}"
        );
        assert_eq!(tool["inputSchema"]["type"], "object", "{name}");
        assert_eq!(tool["inputSchema"]["additionalProperties"], false, "{name}");
        assert_eq!(tool["outputSchema"]["type"], "object", "{name}");
        assert_eq!(tool["annotations"]["openWorldHint"], false, "{name}");
        assert!(!tool["title"].as_str().unwrap().is_empty(), "{name}");
        let text = tool.to_string();
        assert!(!text.contains("\"$ref\"") && !text.contains("\"format\""), "{name}");
    }
    let hint = |tool: &str, hint: &str| {
        tools.iter().find(|listed| listed["name"] == tool).map(|listed| listed["annotations"][hint].clone())
    };
    assert_eq!(hint("destroy", "destructiveHint"), Some(json!(true)));
    assert_eq!(hint("status", "readOnlyHint"), Some(json!(true)));
    assert_eq!(hint("exec", "readOnlyHint"), Some(json!(false)));
}

/// Every client puts the list into every conversation. Four bytes of JSON are about one token.
#[tokio::test]
async fn the_whole_list_costs_less_than_three_thousand_tokens() {
    let (mut client, _) = Client::initialized().await;
    let bytes = client.request("tools/list", json!({})).await["result"]["tools"].to_string().len();
    assert!(bytes < 12_000, "the list has {bytes} bytes");
}

#[tokio::test]
async fn the_newest_revision_needs_no_handshake() {
    let mut client = Client::connect().await;
    let found = client.request("server/discover", modern()).await;
    let versions = found["result"]["supportedVersions"].as_array().unwrap();
    assert!(versions.contains(&json!("2026-07-28")) && versions.contains(&json!("2025-11-25")));
    let list = client.request("tools/list", modern()).await;
    assert!(!list["result"]["tools"].as_array().unwrap().is_empty());
    assert_eq!(client.request("tools/list", json!({})).await["error"]["code"], -32602);
}

#[tokio::test]
async fn bad_arguments_are_a_tool_error_a_model_can_read() {
    let (mut client, _) = Client::initialized().await;
    let answer = client.call("exec", json!({"command": "true", "colour": "red"})).await;
    let result = &answer["result"];
    assert_eq!(result["isError"], true);
    let text = result["content"][0]["text"].as_str().unwrap();
    assert!(
        text.starts_with("INVALID_ARGUMENT: ") && text.contains("colour") && text.contains("\nNext: "),
        "{text}"
    );
    assert_eq!(result["_meta"]["isle/error"]["code"], "INVALID_ARGUMENT");
    assert!(result.get("structuredContent").is_none());
}

#[tokio::test]
async fn an_unknown_tool_is_a_protocol_error() {
    let (mut client, _) = Client::initialized().await;
    let answer = client.call("launch_missiles", json!({})).await;
    assert_eq!(answer["error"]["code"], -32602);
    assert!(answer["error"]["data"]["tools"].as_array().unwrap().contains(&json!("exec")));
}

#[tokio::test]
async fn a_result_is_complete_in_both_forms() {
    let (mut client, _) = Client::initialized().await;
    let result = client.call("history", json!({})).await["result"].clone();
    assert_eq!(result["isError"], false);
    let text: Value = serde_json::from_str(result["content"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!(text, result["structuredContent"]);
}

#[tokio::test]
async fn lines_that_are_not_json_are_passed_over() {
    let (mut client, _) = Client::initialized().await;
    client.writer.write_all(b"hello\n\n7\n").await.unwrap();
    assert_eq!(client.request("ping", json!({})).await["result"], json!({}));
}

#[tokio::test]
async fn a_message_that_cannot_be_read_is_answered() {
    let (mut client, _) = Client::initialized().await;
    client.writer.write_all(b"{\"x\n").await.unwrap();
    let answer: Value = serde_json::from_str(&client.lines.next_line().await.unwrap().unwrap()).unwrap();
    assert_eq!(answer["error"]["code"], -32700, "{answer}");
    assert_eq!(client.request("ping", json!({})).await["result"], json!({}));
}

#[tokio::test]
async fn the_session_ends_with_its_stream() {
    let (client, _) = Client::initialized().await;
    let Client { lines, writer, server, _state, .. } = client;
    drop((lines, writer));
    server.await.unwrap().unwrap();
}

#[tokio::test]
async fn the_session_ends_with_the_daemon() {
    let (client, _) = Client::initialized().await;
    client.shutdown.cancel();
    client.server.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_client_that_leaves_before_it_speaks_is_no_error() {
    let client = Client::connect().await;
    let Client { lines, writer, server, _state, .. } = client;
    drop((lines, writer));
    server.await.unwrap().unwrap();
}
