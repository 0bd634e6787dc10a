//! Who gets in, and who does not.

use crate::support::Server;

/// Everything a caller without a token must not reach.
fn guarded() -> Vec<&'static str> {
    vec![
        "GET /readyz",
        "GET /openapi.json",
        "GET /v1/version",
        "GET /v1/sandboxes",
        "POST /v1/sandboxes/a/exec",
        "POST /v1/sandboxes/a/exec/stream",
        "GET /v1/sandboxes/a/files/content?path=x",
        "PUT /v1/sandboxes/a/files/content?path=x",
        "GET /v1/runs/run_00000000000000000000000000/events",
        "GET /v1/session",
        "GET /v1/mcp-stdio",
        "POST /v1/shutdown",
        "POST /mcp",
        "GET /mcp",
        "DELETE /mcp",
        "GET /no-such-route",
    ]
}

#[tokio::test]
async fn on_tcp_only_liveness_is_open() {
    let server = Server::start().await;
    assert_eq!(server.tcp("GET /healthz", &[], b"").await.status, 200);
    for line in guarded() {
        let answer = server.tcp(line, &[], b"").await;
        assert_eq!(answer.status, 401, "{line}");
        assert_eq!(answer.code(), "UNAUTHENTICATED", "{line}");
        assert_eq!(answer.header("www-authenticate"), Some("Bearer realm=\"isle\""), "{line}");
    }
}

#[tokio::test]
async fn the_token_opens_as_bearer_and_as_api_key_and_nothing_like_it_does() {
    let server = Server::start().await;
    let token = server.token.reveal();
    for header in [
        format!("Authorization: Bearer {token}"),
        format!("authorization: bearer {token}"),
        format!("X-API-Key: {token}"),
    ] {
        assert_eq!(server.tcp("GET /v1/version", &[&header], b"").await.status, 200, "{header}");
    }
    let almost = &token[..token.len() - 1];
    for header in [
        format!("Authorization: Bearer {almost}"),
        format!("Authorization: Bearer {token}x"),
        format!("Authorization: Basic {token}"),
        "Authorization: Bearer ".to_owned(),
        "X-API-Key: ".to_owned(),
    ] {
        assert_eq!(server.tcp("GET /v1/version", &[&header], b"").await.status, 401, "{header}");
    }
    // The token in the address would end up in logs; it is not looked for there.
    assert_eq!(server.tcp(&format!("GET /v1/version?token={token}"), &[], b"").await.status, 401);
}

#[tokio::test]
async fn a_request_that_names_another_server_is_refused_even_with_the_token() {
    let server = Server::start().await;
    let bearer = server.bearer();
    let port = server.address.port();
    for host in ["localhost", "127.0.0.1", "[::1]", "LOCALHOST"] {
        let host = format!("Host: {host}:{port}");
        assert_eq!(server.tcp("GET /v1/version", &[&bearer, &host], b"").await.status, 200, "{host}");
    }
    for host in [
        format!("evil.example:{port}"),
        "127.0.0.1".to_owned(),
        "127.0.0.1:1".to_owned(),
        format!("localhost.evil.example:{port}"),
        format!("localhost:{port}@evil.example"),
        String::new(),
    ] {
        let host = format!("Host: {host}");
        for line in ["GET /v1/version", "GET /healthz", "POST /mcp", "GET /v1/session"] {
            assert_eq!(server.tcp(line, &[&bearer, &host], b"").await.status, 403, "{line} {host}");
        }
    }
    let (ours, evil) = (format!("Host: localhost:{port}"), "Host: evil.example");
    assert!(matches!(server.tcp("GET /v1/version", &[&bearer, &ours, evil], b"").await.status, 400 | 403));
}

#[tokio::test]
async fn a_foreign_page_is_refused_everywhere() {
    let server = Server::start().await;
    let bearer = server.bearer();
    let same = format!("Origin: http://localhost:{}", server.address.port());
    assert_eq!(server.tcp("GET /v1/version", &[&bearer, &same], b"").await.status, 200);
    for origin in ["http://evil.example", "null", "http://localhost:1", "https://localhost", "file://"] {
        let origin = format!("Origin: {origin}");
        for line in ["GET /v1/version", "POST /mcp", "GET /v1/session", "OPTIONS /v1/version"] {
            let answer = server.tcp(line, &[&bearer, &origin], b"").await;
            assert_eq!(answer.status, 403, "{line} {origin}");
            assert_eq!(answer.header("access-control-allow-origin"), None);
        }
    }
}

#[tokio::test]
async fn cors_is_off_unless_configured() {
    let page = "Origin: https://app.example";
    let ask = "Access-Control-Request-Method: POST";
    let server = Server::start().await;
    assert_eq!(server.tcp("OPTIONS /mcp", &[page, ask], b"").await.status, 403);

    let server = Server::start_with(|config| config.cors_origins = vec!["https://app.example".into()]).await;
    let answer = server.tcp("OPTIONS /mcp", &[page, ask], b"").await;
    assert_eq!(answer.status, 204);
    assert_eq!(answer.header("access-control-allow-origin"), Some("https://app.example"));
    assert!(answer.header("access-control-allow-headers").unwrap().contains("mcp-session-id"));
    let answer = server.tcp("GET /v1/version", &[page, &server.bearer()], b"").await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("access-control-allow-origin"), Some("https://app.example"));
    assert!(answer.header("access-control-expose-headers").unwrap().contains("mcp-session-id"));
    // Asking first does not replace the token.
    assert_eq!(server.tcp("GET /v1/version", &[page], b"").await.status, 401);
}

#[tokio::test]
async fn a_configured_name_may_be_used_for_the_server() {
    let server = Server::start_with(|config| config.allowed_hosts = vec!["box.example".into()]).await;
    let (own, bearer) = (server.address.port(), server.bearer());
    let allowed = ["box.example".into(), "BOX.example:443".into(), format!("box.example:{own}")];
    for host in allowed {
        let origin = format!("Origin: https://{host}");
        let host = format!("Host: {host}");
        assert_eq!(server.tcp("GET /v1/version", &[&bearer, &host], b"").await.status, 200, "{host}");
        assert_eq!(
            server.tcp("GET /v1/version", &[&bearer, &host, &origin], b"").await.status,
            200,
            "{host}"
        );
    }
    for host in ["box.example:81", "box.example.evil", "evil.box.example", "box.example:", "box.example@evil"]
    {
        let host = format!("Host: {host}");
        assert_eq!(server.tcp("GET /v1/version", &[&bearer, &host], b"").await.status, 403, "{host}");
    }
}

#[tokio::test]
async fn a_configured_name_with_a_port_is_that_port_only() {
    let server = Server::start_with(|config| config.allowed_hosts = vec!["box.example:8443".into()]).await;
    let bearer = server.bearer();
    let ask = async |host: &str| {
        server.tcp("GET /v1/version", &[&bearer, &format!("Host: {host}")], b"").await.status
    };
    assert_eq!(ask("box.example:8443").await, 200);
    assert_eq!(ask("box.example").await, 403);
    assert_eq!(ask(&format!("box.example:{}", server.address.port())).await, 403);
}

#[tokio::test]
async fn a_token_that_is_given_twice_is_no_token() {
    let server = Server::start().await;
    let bearer = server.bearer();
    let wrong = "Authorization: Bearer nonsense";
    assert_eq!(server.tcp("GET /v1/version", &[&bearer], b"").await.status, 200);
    for headers in [[bearer.as_str(), wrong], [wrong, bearer.as_str()], [bearer.as_str(), bearer.as_str()]] {
        assert_eq!(server.tcp("GET /v1/version", &headers, b"").await.status, 401);
    }
}

#[tokio::test]
async fn the_unix_socket_knows_its_owner_without_a_token() {
    let server = Server::start().await;
    let version = server.unix("GET /v1/version", &[], b"").await.json();
    assert_eq!(version["version"], "9.9.9");
    assert_eq!(version["pid"], std::process::id());
    assert_eq!(version["api"], 1);
    assert!(version["started_at"].as_str().unwrap().ends_with('Z'));
}

#[tokio::test]
async fn the_daemon_is_ended_through_its_socket_only() {
    let server = Server::start().await;
    let bearer = server.bearer();
    assert_eq!(server.tcp("POST /v1/shutdown", &[&bearer], b"").await.status, 403);
    let upgrade = ["Connection: Upgrade", "Upgrade: isle-mcp", &bearer];
    let mut pipe = upgrade.to_vec();
    pipe.push("Connection: close");
    assert_eq!(server.tcp("GET /v1/mcp-stdio", &pipe, b"").await.status, 403);
    assert_eq!(server.unix("POST /v1/shutdown", &[], b"").await.status, 415);
    let json = ["Content-Type: application/json"];
    assert_eq!(server.unix("POST /v1/shutdown", &json, b"").await.status, 202);
    server.ended.await.unwrap().unwrap();
    assert!(!server.socket.exists());
}

#[tokio::test]
async fn a_head_that_is_too_large_is_refused() {
    let server = Server::start().await;
    let large = format!("X-Large: {}", "x".repeat(200 * 1024));
    assert_eq!(server.tcp("GET /healthz", &[&large], b"").await.status, 431);
}
