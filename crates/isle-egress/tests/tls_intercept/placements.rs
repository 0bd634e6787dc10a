//! Where in a request a secret goes: only where it may be placed. Anywhere else its placeholder denies the
//! request, and the answer says what would allow it. Beside each denial, what is allowed goes through.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use isle_egress::{Gate, Reason};

use crate::world::{Kind, PLACEHOLDER, Secrets, World, gate, get, placed, say, secret};
use crate::{ONE, grants};

const VALUE: &str = "s3cr3t-Value+4711";

async fn start(places: Option<&[&str]>) -> (World, Arc<Gate>, u16) {
    let world = World::new();
    let port = world.server("api.test", ONE, Kind::Tell).await;
    let secrets = Arc::new(Secrets::default());
    let swap = places.map_or_else(|| secret(VALUE, "api.test"), |places| placed(VALUE, "api.test", places));
    secrets.secrets.lock().unwrap().push(swap);
    let gate = gate(&world, &grants(port), &secrets);
    (world, gate, port)
}

/// A request with a placeholder in its path, its fields or its method.
async fn ask(gate: &Arc<Gate>, port: u16, line: &str, field: &str) -> String {
    let (line, field) = (line.replace('§', PLACEHOLDER), field.replace('§', PLACEHOLDER));
    let field = if field.is_empty() { field } else { format!("{field}\r\n") };
    let head = format!("{line} HTTP/1.1\r\nHost: api.test:{port}\r\nConnection: close\r\n{field}\r\n");
    say(gate, "api.test", port, &head).await
}

fn basic(text: &str) -> String {
    format!("Authorization: Basic {}", STANDARD.encode(text.replace('§', PLACEHOLDER)))
}

#[tokio::test]
async fn by_default_a_secret_goes_into_credentials_only() {
    let (world, gate, port) = start(None).await;
    for field in [
        "Authorization: Bearer §",
        "authorization: token §",
        "Authorization: §",
        "Authorization: Token token=\"§\"",
        "X-API-Key: §",
        "api-key: §",
        "x-goog-api-key: §",
        "private-token: §",
        "dd-api-key: §",
        "x-auth-token: §",
    ] {
        let heard = ask(&gate, port, "GET /", field).await;
        assert!(heard.starts_with("HTTP/1.1 200 "), "{field}: {heard}");
        let expected = field.split_once(": ").unwrap().1.replace('§', VALUE);
        assert!(world.last().contains(&expected), "{field}: {}", world.last());
    }
    let heard = say(
        &gate,
        "api.test",
        port,
        &format!("GET / HTTP/1.1\r\nHost: api.test:{port}\r\nConnection: close\r\n{}\r\n\r\n", basic("me:§")),
    )
    .await;
    assert!(heard.starts_with("HTTP/1.1 200 "), "{heard}");
    assert!(world.last().contains(&STANDARD.encode(format!("me:{VALUE}"))), "{}", world.last());

    let before = world.last();
    let user = basic("§:x");
    let part = basic("me:x§");
    let digest = "Authorization: Digest username=\"§\", realm=\"a\"";
    for (line, field, remedy) in [
        ("GET /", "X-Request-Id: §", Some("header:x-request-id")),
        ("GET /", "Origin: https://§", Some("header:origin")),
        ("GET /", "Referer: https://api.test/§", Some("header:referer")),
        ("GET /", "User-Agent: §", Some("header:user-agent")),
        ("GET /", "Cookie: a=§", Some("header:cookie")),
        ("GET /", "X-Forwarded-For: §", Some("header:x-forwarded-for")),
        ("GET /", "Proxy-Authorization: Bearer §", None),
        ("GET /", "X-API-Key: §,§", Some("header:x-api-key")),
        ("GET /", digest, Some("header:authorization")),
        ("GET /", user.as_str(), Some("basic-user")),
        ("GET /", part.as_str(), Some("header:authorization")),
        ("GET /?x=§", "", Some("query:x")),
        ("GET /?§", "", None),
        ("GET /§", "", None),
        ("TRACE /", "Authorization: Bearer §", None),
        ("TRACK /", "Authorization: Bearer §", None),
        ("DEBUG /", "X-API-Key: §", None),
        ("PROPFIND /", "X-API-Key: §", Some("method:PROPFIND")),
        ("POST /", "X-HTTP-Method-Override: TRACE\r\nX-API-Key: §", None),
    ] {
        let heard = ask(&gate, port, line, field).await;
        assert!(heard.starts_with("HTTP/1.1 403 ") && !heard.contains(VALUE), "{line} {field}: {heard}");
        match remedy {
            Some(remedy) => assert!(
                heard.contains(&format!("--place authorization --place api-key --place {remedy}`")),
                "{heard}"
            ),
            None => assert!(heard.contains("isle secret list"), "{line} {field}: {heard}"),
        }
    }
    assert_eq!(world.last(), before, "none of them was sent");
    let reasons: Vec<Reason> = gate.denials_after(0).iter().map(|denial| denial.reason).collect();
    assert!(
        reasons.contains(&Reason::SecretMisplaced) && reasons.contains(&Reason::SecretMethod),
        "{reasons:?}"
    );
    // Without a placeholder all of that is a request like any other.
    for (line, field) in [("GET /?x=1", "X-Request-Id: 1"), ("TRACE /", ""), ("PROPFIND /", "")] {
        let heard = ask(&gate, port, line, field).await;
        assert!(!heard.starts_with("HTTP/1.1 403 "), "{line}: {heard}");
    }
}

#[tokio::test]
async fn a_secret_goes_where_it_is_named_and_nowhere_else() {
    let (world, gate, port) =
        start(Some(&["query:key", "header:cookie", "basic-user", "method:PROPFIND"])).await;
    for (line, field, seen) in [
        ("GET /a?b=1&key=§&c", "", "GET /a?b=1&key=s3cr3t-Value%2B4711&c\n"),
        ("GET /?key=§", "", "GET /?key=s3cr3t-Value%2B4711\n"),
        ("GET /", "Cookie: a=1; s=§; b=2", "cookie: a=1; s=s3cr3t-Value+4711; b=2\n"),
        ("PROPFIND /", "Cookie: §", "PROPFIND /"),
    ] {
        let heard = ask(&gate, port, line, field).await;
        assert!(heard.starts_with("HTTP/1.1 200 ") && !heard.contains(VALUE), "{line}: {heard}");
        assert!(world.last().contains(seen), "{line}: {}", world.last());
    }
    let head =
        format!("GET / HTTP/1.1\r\nHost: api.test:{port}\r\nConnection: close\r\n{}\r\n\r\n", basic("§:"));
    assert!(say(&gate, "api.test", port, &head).await.starts_with("HTTP/1.1 200 "));
    assert!(world.last().contains(&STANDARD.encode(format!("{VALUE}:"))), "{}", world.last());
    for (line, field) in [
        ("GET /", "Authorization: Bearer §"),
        ("GET /", "X-API-Key: §"),
        ("GET /?key=a§", ""),
        ("GET /?Key=§", ""),
        ("GET /?key=§&other=§", ""),
        ("MKCOL /?key=§", ""),
    ] {
        assert!(ask(&gate, port, line, field).await.starts_with("HTTP/1.1 403 "), "{line} {field}");
    }
}

#[tokio::test]
async fn a_placeholder_in_a_body_and_to_another_host_passes_as_it_is() {
    let (world, gate, port) = start(None).await;
    let head = format!(
        "POST / HTTP/1.1\r\nHost: api.test:{port}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{PLACEHOLDER}",
        PLACEHOLDER.len()
    );
    assert!(say(&gate, "api.test", port, &head).await.starts_with("HTTP/1.1 200 "));
    assert!(world.last().contains(&format!("body: {} {PLACEHOLDER}", PLACEHOLDER.len())), "{}", world.last());
    // Nothing that could not be looked through is asked for.
    let fields = "Range: bytes=1-2\r\nIf-Range: x\r\nAccept-Encoding: zstd, gzip;q=0.5, exi, br\r\nTE: gzip, trailers\r\nAccept-Charset: utf-7\r\nSec-WebSocket-Extensions: permessage-deflate\r\nX-Kept: 1\r\n";
    get(&gate, "api.test", port, "/", fields).await;
    let seen = world.last();
    assert!(
        seen.contains("accept-encoding: gzip;q=0.5, br\n")
            && seen.contains("te: trailers\n")
            && seen.contains("x-kept: 1\n"),
        "{seen}"
    );
    assert!(!seen.contains("range:") && !seen.contains("charset") && !seen.contains("extensions"), "{seen}");
}
