//! Connections that become something else: MCP sessions and WebSockets.

use crate::support::{Server, connect};
use futures::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpStream, UnixStream};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::{Message, client::IntoClientRequest};

#[tokio::test]
async fn the_pipe_of_isle_mcp_is_an_mcp_session() {
    let server = Server::start().await;
    let mut stream = BufReader::new(connect(&server.socket).await);
    // The first line may come right behind the request, before the answer to it.
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}});
    let request =
        "GET /v1/mcp-stdio HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: isle-mcp\r\n\r\n";
    stream.write_all(format!("{request}{hello}\n").as_bytes()).await.unwrap();
    let mut line = String::new();
    stream.read_line(&mut line).await.unwrap();
    assert!(line.starts_with("HTTP/1.1 101 "), "{line}");
    while line != "\r\n" {
        line.clear();
        stream.read_line(&mut line).await.unwrap();
    }
    line.clear();
    stream.read_line(&mut line).await.unwrap();
    let answer: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(answer["result"]["protocolVersion"], "2025-06-18");
    // The daemon does not wait for idle sessions when it goes down.
    server.shutdown.cancel();
    server.ended.await.unwrap().unwrap();
}

#[tokio::test]
async fn the_pipe_asks_for_an_upgrade() {
    let server = Server::start().await;
    let answer = server.unix("GET /v1/mcp-stdio", &[], b"").await;
    assert_eq!(answer.status, 426);
    assert_eq!(answer.header("upgrade"), Some("isle-mcp"));
}

const ACCEPT: &str = "Accept: application/json, text/event-stream";
const JSON: &str = "Content-Type: application/json";

#[tokio::test]
async fn mcp_over_http_serves_the_revisions_with_sessions() {
    let server = Server::start().await;
    let bearer = server.bearer();
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}});
    let answer = server.tcp("POST /mcp", &[&bearer, ACCEPT, JSON], hello.to_string().as_bytes()).await;
    assert_eq!(answer.status, 200);
    let session = format!("Mcp-Session-Id: {}", answer.header("mcp-session-id").unwrap());
    let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"}).to_string();
    assert_eq!(
        server.tcp("POST /mcp", &[&bearer, ACCEPT, JSON, &session], ready.as_bytes()).await.status,
        202
    );
    let list = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"}).to_string();
    let answer = server.tcp("POST /mcp", &[&bearer, ACCEPT, JSON, &session], list.as_bytes()).await;
    assert!(String::from_utf8_lossy(&answer.body).contains("\"name\":\"exec\""));
    assert_eq!(server.tcp("DELETE /mcp", &[&bearer, &session], b"").await.status, 202);
    assert_eq!(
        server.tcp("POST /mcp", &[&bearer, ACCEPT, JSON, &session], list.as_bytes()).await.status,
        404
    );
    assert_eq!(server.tcp("POST /mcp", &[&bearer, JSON], list.as_bytes()).await.status, 406);
}

#[tokio::test]
async fn mcp_over_http_serves_the_revision_without() {
    let server = Server::start().await;
    let bearer = server.bearer();
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"}
    });
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
        "name": "exec", "arguments": {"command": "true", "colour": 1}, "_meta": meta}});
    let version = "MCP-Protocol-Version: 2026-07-28";
    let headers = [&bearer, ACCEPT, JSON, version, "Mcp-Method: tools/call", "Mcp-Name: exec"];
    let answer = server.tcp("POST /mcp", &headers, call.to_string().as_bytes()).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.json()["result"]["isError"], true);
    let headers = [&bearer, ACCEPT, JSON, version, "Mcp-Method: tools/call", "Mcp-Name: status"];
    let answer = server.tcp("POST /mcp", &headers, call.to_string().as_bytes()).await;
    assert_eq!((answer.status, answer.json()["error"]["code"].clone()), (400, json!(-32020)));
}

async fn session(server: &Server) -> WebSocketStream<UnixStream> {
    let stream = connect(&server.socket).await;
    tokio_tungstenite::client_async("ws://localhost/v1/session", stream).await.unwrap().0
}

/// The text of the next message that is one.
async fn next_text(socket: &mut WebSocketStream<UnixStream>) -> Option<Value> {
    loop {
        match socket.next().await? {
            Ok(Message::Text(text)) => return Some(serde_json::from_str(&text).unwrap()),
            Ok(Message::Close(_)) | Err(_) => return None,
            Ok(_) => {}
        }
    }
}

#[tokio::test]
async fn a_first_message_that_makes_no_sense_is_answered_and_ends_the_socket() {
    let server = Server::start().await;
    for (first, code) in [
        ("nonsense", "INVALID_ARGUMENT"),
        (r#"{"target": {"sandbox": "a"}, "command": "a"}"#, "INVALID_ARGUMENT"),
        (r#"{"attach": {"run": "a:web", "argv": ["a"]}}"#, "INVALID_ARGUMENT"),
        (r#"{"attach": {"run": "a:web"}}"#, "JOB_NOT_FOUND"),
        (r#"{"start": {"target": {"sandbox": "a"}}}"#, "INVALID_ARGUMENT"),
        (r#"{"start": {"target": {"sandbox": "a"}, "command": "a", "argv": ["a"]}}"#, "INVALID_ARGUMENT"),
        (r#"{"start": {"target": {"sandbox": "a"}, "command": "a", "command": "b"}}"#, "INVALID_ARGUMENT"),
        (r#"{"start": {"target": {"sandbox": "a"}, "command": "a", "cwd": "b"}}"#, "INVALID_PATH"),
        (r#"{"start": {"target": {"sandbox": "a"}, "command": "a"}}"#, "BACKEND_UNAVAILABLE"),
        (r#"{"start": {"target": {"one_shot": {}}, "argv": ["a"]}}"#, "BACKEND_UNAVAILABLE"),
    ] {
        let mut socket = session(&server).await;
        socket.send(Message::text(first)).await.unwrap();
        let answer = next_text(&mut socket).await.unwrap();
        assert_eq!(answer["event"], "error", "{first}");
        assert_eq!(answer["error"]["code"], code, "{first}");
        assert!(next_text(&mut socket).await.is_none(), "{first}");
    }
}

#[tokio::test]
async fn what_happens_is_told_over_a_websocket_as_in_a_stream() {
    let server = Server::start().await;
    let follow = async |query: &str| {
        let stream = connect(&server.socket).await;
        let address = format!("ws://localhost/v1/events{query}");
        tokio_tungstenite::client_async(address, stream).await.map(|(socket, _)| socket)
    };
    let forbid = async || {
        let body = json!({"command": "forbidden"}).to_string();
        let answer = server.unix("POST /v1/sandboxes/box/exec", &[JSON], body.as_bytes()).await;
        assert_eq!(answer.code(), "POLICY_DENIED");
    };
    let mut socket = follow("").await.unwrap();
    forbid().await;
    let first = next_text(&mut socket).await.unwrap();
    assert_eq!(
        (&first["event"], &first["data"]["sandbox"]),
        (&json!("run_denied"), &json!("box")),
        "{first}"
    );
    forbid().await;
    let second = next_text(&mut socket).await.unwrap();
    // Whoever comes back goes on after the last it saw.
    let mut again = follow(&format!("?after={}&kind=run_denied", first["id"])).await.unwrap();
    assert_eq!(next_text(&mut again).await.unwrap(), second);
    assert!(follow("?colour=1").await.is_err(), "what is no argument is refused before there is a socket");
    server.shutdown.cancel();
    assert!(next_text(&mut again).await.is_none(), "it ends with the daemon");
}

#[tokio::test]
async fn a_websocket_over_tcp_needs_the_token_too() {
    let server = Server::start().await;
    let open = async |token: Option<&str>| {
        let mut request = format!("ws://{}/v1/session", server.address).into_client_request().unwrap();
        if let Some(token) = token {
            request.headers_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
        }
        let stream = TcpStream::connect(server.address).await.unwrap();
        tokio_tungstenite::client_async(request, stream).await.is_ok()
    };
    assert!(!open(None).await);
    assert!(!open(Some("wrong")).await);
    assert!(open(Some(server.token.reveal())).await);
}

#[tokio::test]
async fn a_session_without_a_websocket_says_what_it_is() {
    let server = Server::start().await;
    let answer = server.unix("GET /v1/session", &[], b"").await;
    assert!((400..500).contains(&answer.status));
    assert_eq!(answer.code(), "INVALID_ARGUMENT");
}

#[tokio::test]
async fn a_session_hears_that_the_daemon_goes_down() {
    let server = Server::start().await;
    let mut socket = session(&server).await;
    server.shutdown.cancel();
    assert_eq!(next_text(&mut socket).await.unwrap()["error"]["code"], "DAEMON_UNAVAILABLE");
    server.ended.await.unwrap().unwrap();
}
