//! Servers that send a secret back: whatever the way, the program behind the gate never has the value, so
//! that it has nothing to carry to another host. Beside each, the server had it, and the rest is unharmed.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use isle_egress::{Gate, ReflectedIn};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::echo::encodings;
use crate::world::{Kind, PLACEHOLDER, Secrets, World, connect, gate, get, inside, secret};
use crate::{BOTH, ONE, grants};

const VALUE: &str = "s3cr3t-Value+4711";

async fn start(spoken: &[&str]) -> (Arc<Gate>, u16, Arc<Secrets>) {
    let world = World::new();
    let port = world.server("api.test", spoken, Kind::Reflect).await;
    let secrets = Arc::new(Secrets::default());
    secrets.secrets.lock().unwrap().push(secret(VALUE, "api.test"));
    (gate(&world, &grants(port), &secrets), port, secrets)
}

fn bearer() -> String {
    format!("Authorization: Bearer {PLACEHOLDER}\r\n")
}

/// Whether the value is in bytes, in any usual encoding.
fn leaks(heard: &[u8]) -> bool {
    let encodings = encodings(VALUE).to_lowercase();
    let heard = String::from_utf8_lossy(heard).to_lowercase();
    encodings.split('\n').any(|form| heard.contains(&form[3..form.len() - 8]))
}

/// All of a response over HTTP/2.
async fn get_two(
    gate: &Arc<Gate>,
    port: u16,
    path: &str,
    with_secret: bool,
) -> (http::response::Parts, Vec<u8>, String) {
    let stream = inside(gate, "api.test", port, BOTH).await;
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let mut request = Request::builder().uri(format!("https://api.test:{port}{path}"));
    if with_secret {
        request = request.header("authorization", format!("Bearer {PLACEHOLDER}"));
    }
    let response = sender.send_request(request.body(Empty::<Bytes>::new()).unwrap()).await.unwrap();
    let (parts, body) = response.into_parts();
    let body = body.collect().await.unwrap();
    let trailers = format!("{:?}", body.trailers());
    (parts, body.to_bytes().to_vec(), trailers)
}

#[tokio::test]
async fn a_value_comes_back_in_no_part_of_a_response() {
    let (gate, port, secrets) = start(BOTH).await;
    let paths = [
        "/headers",
        "/location",
        "/name",
        "/reason",
        "/length",
        "/bytes",
        "/encodings",
        "/gzip",
        "/deflate",
        "/br",
        "/zstd",
        "/trailers",
        "/range",
        "/echo",
    ];
    for path in paths {
        secrets.reflections.lock().unwrap().clear();
        let heard = get(&gate, "api.test", port, path, &format!("{}TE: trailers\r\n", bearer())).await;
        assert!(!leaks(heard.as_bytes()), "{path}: {heard}");
        assert!(heard.starts_with("HTTP/1.1 200 ") || path == "/location", "{path}: {heard}");
        let told = secrets.reflections.lock().unwrap().clone();
        assert!(!told.is_empty() && told.iter().all(|one| one.secret == "KEY"), "{path}: {told:?}");
        if path == "/reason" {
            continue;
        }
        let (parts, body, trailers) = get_two(&gate, port, path, true).await;
        let heard = format!("{parts:?} {trailers}").into_bytes();
        assert!(
            !leaks(&heard) && !leaks(&body),
            "{path}: {parts:?} {} {trailers}",
            String::from_utf8_lossy(&body)
        );
        assert!(parts.headers.get("content-encoding").is_none(), "{path}: {parts:?}");
        if ["/length", "/bytes", "/gzip", "/deflate", "/br", "/zstd", "/range"].contains(&path) {
            assert_eq!(body, b"before ***************** after\n", "{path}");
        }
    }
    let used = secrets.used.lock().unwrap().clone();
    assert!(!used.is_empty() && used.iter().all(|one| one.place.to_string() == "authorization"), "{used:?}");
}

#[tokio::test]
async fn what_a_server_kept_comes_back_masked_without_a_secret_in_the_request() {
    let (gate, port, secrets) = start(BOTH).await;
    get(&gate, "api.test", port, "/echo", &bearer()).await;
    for path in ["/headers", "/bytes", "/gzip", "/echo"] {
        let heard = get(&gate, "api.test", port, path, "").await;
        assert!(!leaks(heard.as_bytes()), "{path}: {heard}");
        let (parts, body, _) = get_two(&gate, port, path, false).await;
        assert!(!leaks(format!("{parts:?}").as_bytes()) && !leaks(&body), "{path}");
    }
    // One byte after the other, in as many responses: the whole is sent instead, masked.
    let mut heard = Vec::new();
    for at in 0..VALUE.len() {
        let answer = get(&gate, "api.test", port, "/range", &format!("Range: bytes={at}-{at}\r\n")).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        heard.push(answer.split("\r\n\r\n").nth(1).unwrap_or_default().as_bytes()[0]);
    }
    assert!(!leaks(&heard), "{}", String::from_utf8_lossy(&heard));
    assert!(secrets.used.lock().unwrap().len() == 1, "only the first carried it");
}

#[tokio::test]
async fn the_same_host_without_encryption_is_looked_through_too() {
    let world = World::new();
    let secrets = Arc::new(Secrets::default());
    secrets.secrets.lock().unwrap().push(secret(VALUE, "api.test"));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let gate = gate(&world, &[format!("api.test:{port}/http"), format!("127.0.0.1:{port}")], &secrets);
    tokio::spawn(async move {
        while let Ok((mut server, _)) = listener.accept().await {
            let mut head = vec![0; 4096];
            let count = server.read(&mut head).await.unwrap();
            assert!(!String::from_utf8_lossy(&head[..count]).contains(VALUE));
            let chunks: String = VALUE.chars().map(|character| format!("1\r\n{character}\r\n")).collect();
            let answer = format!(
                "HTTP/1.1 200 {VALUE}\r\nX-Kept: {VALUE}\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}0\r\n\r\n"
            );
            server.write_all(answer.as_bytes()).await.ok();
        }
    });
    let (mut program, _served) = connect(&gate, "api.test", port);
    let head = format!("GET / HTTP/1.1\r\nHost: api.test:{port}\r\nX-Api-Key: {PLACEHOLDER}\r\n\r\n");
    program.write_all(head.as_bytes()).await.unwrap();
    let mut heard = String::new();
    program.read_to_string(&mut heard).await.unwrap();
    assert!(heard.starts_with("HTTP/1.1 200 ") && !leaks(heard.as_bytes()), "{heard}");
    assert!(heard.contains("X-Kept: *****************\r\n"), "{heard}");
    let stars = heard.split("\r\n\r\n").nth(1).unwrap().matches('*').count();
    assert_eq!(stars, VALUE.len(), "{heard}");
    assert!(secrets.used.lock().unwrap().is_empty() && secrets.strays.lock().unwrap().len() == 1);
}

#[tokio::test]
async fn messages_of_a_websocket_are_masked_whatever_their_frames() {
    let (gate, port, secrets) = start(ONE).await;
    let mut stream = inside(&gate, "api.test", port, ONE).await;
    let head = format!(
        "GET /socket HTTP/1.1\r\nHost: api.test:{port}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Extensions: permessage-deflate\r\n{}\r\n",
        bearer()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut heard = Vec::new();
    stream.read_to_end(&mut heard).await.ok();
    assert!(heard.starts_with(b"HTTP/1.1 101 ") && !leaks(&heard), "{}", String::from_utf8_lossy(&heard));
    let at = heard.windows(4).position(|part| part == b"\r\n\r\n").unwrap() + 4;
    // One message whole, one a byte a frame, and the reason of a close.
    let stars = "*".repeat(VALUE.len());
    let message = format!("before {stars} after\n");
    let mut expected = vec![0x81, u8::try_from(message.len()).unwrap()];
    expected.extend_from_slice(message.as_bytes());
    for place in 0..VALUE.len() {
        expected.extend_from_slice(&[
            if place == 0 {
                0x01
            } else if place == VALUE.len() - 1 {
                0x80
            } else {
                0
            },
            1,
            b'*',
        ]);
    }
    expected.extend_from_slice(&[0x88, u8::try_from(VALUE.len()).unwrap() + 2, 3, 232]);
    expected.extend_from_slice(stars.as_bytes());
    assert_eq!(heard[at..], expected);
    assert!(secrets.reflections.lock().unwrap().iter().all(|one| one.part == ReflectedIn::Message));
}

#[tokio::test]
async fn what_cannot_be_looked_through_is_not_passed_on() {
    let (gate, port, _) = start(BOTH).await;
    for path in ["/unknown", "/twice", "/grpc"] {
        for fields in [bearer(), String::new()] {
            let heard = get(&gate, "api.test", port, path, &fields).await;
            assert!(
                heard.starts_with("HTTP/1.1 403 ") && heard.contains("reason: unreadable_response\n"),
                "{heard}"
            );
            assert!(!leaks(heard.as_bytes()), "{heard}");
        }
    }
    // Far more than it says: it breaks off, and the next request is answered.
    let mut stream = inside(&gate, "api.test", port, ONE).await;
    let head = format!("GET /bomb HTTP/1.1\r\nHost: api.test:{port}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut count = 0;
    let mut buffer = vec![0; 1 << 16];
    while let Ok(read @ 1..) = stream.read(&mut buffer).await {
        count += read;
    }
    assert!(count < 64 << 20, "{count}");
    assert!(get(&gate, "api.test", port, "/length", "").await.starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn a_stream_that_waits_for_the_other_side_is_not_held_back() {
    let world = World::new();
    let secrets = Arc::new(Secrets::default());
    secrets.secrets.lock().unwrap().push(secret(VALUE, "api.test"));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let gate = gate(&world, &[format!("api.test:{port}/http"), format!("127.0.0.1:{port}")], &secrets);
    let (mut program, _served) = connect(&gate, "api.test", port);
    program.write_all(format!("GET / HTTP/1.1\r\nHost: api.test:{port}\r\n\r\n").as_bytes()).await.unwrap();
    let (mut server, _) = listener.accept().await.unwrap();
    // Ends with what a value begins with, and then says nothing for long.
    server.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nyes").await.unwrap();
    let mut heard = Vec::new();
    let waiting = tokio::time::timeout(Duration::from_secs(30), async {
        while !heard.ends_with(b"yes") {
            let mut byte = [0];
            program.read_exact(&mut byte).await.unwrap();
            heard.push(byte[0]);
        }
    });
    waiting.await.expect("it is passed on");
}
