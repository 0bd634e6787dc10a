//! Hostile programs on an intercepted connection: floods of frames, resets and headers. Each affects its own
//! connection only; another program is served meanwhile, and the memory of the process stays flat.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use isle_egress::Gate;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

/// Nothing takes this long, unless the gate hangs.
pub(crate) const HANGS: Duration = Duration::from_secs(60);
/// What the process may grow by: buffers of a few connections, and far below what a flood sends.
pub(crate) const GROWTH: u64 = 96 << 20;
/// How much each flood sends, at most.
pub(crate) const FLOOD: usize = 24 << 20;

pub(crate) fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// Grants of some requests of the server, so that its connections are opened.
pub(crate) fn limited(port: u16) -> [String; 2] {
    [format!("https://api.test:{port}/v1/*"), format!("127.0.0.1:{port}")]
}

/// Another program is served.
pub(crate) async fn serves_others(gate: &Arc<Gate>, port: u16, after: &str) {
    let heard = tokio::time::timeout(HANGS, get(gate, "api.test", port, "/v1/well", "")).await;
    let heard = heard.unwrap_or_else(|_| panic!("{after}: a neighbour waits"));
    assert!(heard.starts_with("HTTP/1.1 200 "), "{after}: {heard}");
}

pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PUSH_PROMISE: u8 = 5;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The beginning of a connection of HTTP/2.
pub(crate) fn preface() -> Vec<u8> {
    [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), frame(SETTINGS, 0, 0, &[])].concat()
}

/// A request without any index: method, scheme, path, authority, and more fields.
pub(crate) fn request(path: &str, authority: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let text = |text: &str| [vec![u8::try_from(text.len()).unwrap()], text.as_bytes().to_vec()].concat();
    let mut block = vec![0x82, 0x87];
    block.extend([vec![0x04], text(path), vec![0x01], text(authority)].concat());
    for (name, value) in more {
        block.extend([vec![0x00], text(name), text(value)].concat());
    }
    block
}

/// The kinds of frames that were heard until the end, or until nothing came for a while.
pub(crate) async fn frames(stream: &mut (impl AsyncReadExt + Unpin)) -> Vec<u8> {
    let mut kinds = Vec::new();
    let mut head = [0; 9];
    while let Ok(Ok(_)) = tokio::time::timeout(Duration::from_secs(10), stream.read_exact(&mut head)).await {
        kinds.push(head[3]);
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        if stream.read_exact(&mut payload).await.is_err() || head[3] == GOAWAY {
            break;
        }
    }
    kinds
}

/// What a program sends over and over again, over a connection that has one request open.
pub(crate) fn floods(authority: &str) -> Vec<(&'static str, Vec<u8>, bool)> {
    let bomb = {
        // One entry of nearly 4 KiB in the table, and then references to it.
        let value = "v".repeat(120);
        let mut block = request("/v1/a", authority, &[]);
        block.extend([&[0x40, 1, b'n', 120][..], value.as_bytes()].concat());
        block.extend(vec![0xbe; 15_000]);
        block
    };
    vec![
        ("settings", frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 100]), false),
        ("table sizes", frame(SETTINGS, 0, 0, &[0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 16, 0]), false),
        ("pings", frame(PING, 0, 0, &[7; 8]), false),
        ("unknown frames", frame(0x5a, 0, 0, &[7; 64]), false),
        ("priorities", frame(PRIORITY, 0, 3, &[0, 0, 0, 1, 7]), false),
        ("windows of one byte", frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]), true),
        ("windows of nothing", frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 0]), true),
        ("empty data", frame(0, 0, 1, &[]), true),
        ("continuations", frame(CONTINUATION, 0, 101, &vec![0; 16_000]), true),
        ("resets of what is not open", frame(RST_STREAM, 0, 9, &[0, 0, 0, 8]), true),
        ("a bomb of references", frame(HEADERS, END_HEADERS | END_STREAM, 103, &bomb), true),
        ("a request that no one names", frame(HEADERS, END_HEADERS | END_STREAM, 0, &[0x82]), true),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_frames_costs_its_own_connection() {
    let world = World::new();
    let port = world.server("api.test", BOTH, Kind::Tell).await;
    let gate = gate(&world, &limited(port), &Arc::new(Secrets::default()));
    let authority = format!("api.test:{port}");
    serves_others(&gate, port, "nothing").await;
    for (what, piece, ends) in floods(&authority) {
        let before = resident();
        let mut stream = inside(&gate, "api.test", port, BOTH).await;
        let open = frame(HEADERS, END_HEADERS, 1, &request("/v1/a", &authority, &[]));
        let mut opening = [preface(), open].concat();
        if what == "continuations" {
            opening.extend(frame(HEADERS, 0, 101, &request("/v1/b", &authority, &[])));
        }
        stream.write_all(&opening).await.unwrap();
        // Without listening: what is answered has to be kept by nobody.
        let portion = piece.repeat((64 * 1024 / piece.len()).max(1));
        let sending = async {
            let mut sent = 0;
            while sent < FLOOD && stream.write_all(&portion).await.is_ok() {
                sent += portion.len();
            }
            sent
        };
        let sent = tokio::time::timeout(Duration::from_secs(15), sending).await;
        serves_others(&gate, port, what).await;
        let grown = resident().saturating_sub(before);
        println!("{what}: sent {sent:?}, grew by {} KiB", grown >> 10);
        assert!(grown < GROWTH, "{what}: grew by {grown}");
        if ends {
            assert_ne!(sent, Ok(FLOOD), "{what}: it was listened to, to the end");
        }
        drop(stream);
    }
}

/// Requests that are opened together before all of them are cancelled.
pub(crate) const AT_ONCE: u32 = 50;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_are_cancelled_end_their_connection() {
    let world = World::new();
    // The server never answers: every request is open until it is cancelled.
    let reached = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&reached);
    let silent = world.raw_server("api.test", &["h2"], move |mut stream| {
        let counted = Arc::clone(&counted);
        Box::pin(async move {
            let mut preface = [0; 24];
            stream.read_exact(&mut preface).await.ok();
            stream.write_all(&frame(SETTINGS, 0, 0, &[])).await.ok();
            let mut head = [0; 9];
            while stream.read_exact(&mut head).await.is_ok() {
                let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
                stream.read_exact(&mut payload).await.ok();
                counted.fetch_add(usize::from(head[3] == HEADERS), Ordering::Relaxed);
            }
        })
    });
    let (silent, well) = (silent.await, world.server("api.test", BOTH, Kind::Tell).await);
    let gate = gate(&world, &[limited(silent), limited(well)].concat(), &Arc::new(Secrets::default()));
    let authority = format!("api.test:{silent}");
    let before = resident();
    // At once, so that they are cancelled before they are taken up; and after they have reached the server.
    for patient in [false, true] {
        let begun = reached.load(Ordering::Relaxed);
        let (mut from, mut to) = tokio::io::split(inside(&gate, "api.test", silent, BOTH).await);
        let (authority, reached) = (authority.clone(), Arc::clone(&reached));
        let flooding = tokio::spawn(async move {
            to.write_all(&preface()).await.ok();
            for round in 0..100_000 / AT_ONCE {
                let ids = || (0..AT_ONCE).map(|number| 2 * (round * AT_ONCE + number) + 1);
                let open =
                    |id| frame(HEADERS, END_HEADERS | END_STREAM, id, &request("/v1/a", &authority, &[]));
                let reset = |id| frame(RST_STREAM, 0, id, &[0, 0, 0, 8]);
                let opened = to.write_all(&ids().flat_map(open).collect::<Vec<u8>>()).await;
                let all = begun + ((round + 1) * AT_ONCE) as usize;
                let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
                while patient && reached.load(Ordering::Relaxed) < all {
                    if opened.is_err() || tokio::time::Instant::now() > deadline {
                        return round * AT_ONCE;
                    }
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                if to.write_all(&ids().flat_map(reset).collect::<Vec<u8>>()).await.is_err() {
                    return round * AT_ONCE;
                }
                if patient && round * AT_ONCE > 2000 {
                    break;
                }
            }
            100_000
        });
        let kinds = tokio::time::timeout(HANGS, frames(&mut from)).await.expect("it ends");
        assert!(kinds.contains(&GOAWAY), "patient: {patient}: {kinds:?}");
        serves_others(&gate, well, "resets").await;
        drop(from);
        let opened = tokio::time::timeout(HANGS, flooding).await.expect("it ends").unwrap();
        assert!(opened < 100_000, "patient: {patient}: all of them were taken");
    }
    let grown = resident().saturating_sub(before);
    assert!(grown < GROWTH, "grew by {grown}");
}

#[tokio::test]
async fn headers_of_http_2_are_held_to_the_grant_as_well() {
    let world = World::new();
    let port = world.server("api.test", BOTH, Kind::Tell).await;
    let gate = gate(&world, &limited(port), &Arc::new(Secrets::default()));
    let stream = inside(&gate, "api.test", port, BOTH).await;
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    for (path, field, reason) in [
        ("/v1/a", None, None),
        ("/v1/a", Some("x-request-id"), None),
        ("/v1/a", Some("x-http-method-override"), Some("override_header")),
        ("/v1/a", Some("x-original-url"), Some("override_header")),
        ("/v1/a", Some("x_rewrite_url"), Some("override_header")),
        ("/v1/a", Some("forwarded"), Some("override_header")),
        ("/v1/a", Some("x-forwarded-host"), Some("override_header")),
        ("/v1/.%09./admin", None, Some("ambiguous_path")),
        ("/v1/%c0%ae%c0%ae/admin", None, Some("ambiguous_path")),
        ("/v1/%u002e%u002e/admin", None, Some("ambiguous_path")),
        ("/v1/a%0d%0ab", None, Some("ambiguous_path")),
        ("/v1/..;/admin", None, Some("ambiguous_path")),
        ("/v2", None, Some("request_not_granted")),
    ] {
        let mut request = Request::builder().uri(format!("https://api.test:{port}{path}"));
        if let Some(field) = field {
            request = request.header(field, "/admin");
        }
        let response = sender.send_request(body(request)).await.unwrap();
        let denied = response.headers().get("x-isle-denied").map(|value| value.to_str().unwrap());
        assert_eq!(denied, reason, "{path} {field:?}");
        response.into_body().collect().await.unwrap();
    }
}

#[tokio::test]
async fn what_follows_an_ambiguous_request_is_not_read() {
    let world = World::new();
    let port = world.server("api.test", ONE, Kind::Tell).await;
    let gate = gate(&world, &limited(port), &Arc::new(Secrets::default()));
    let head = |more: &str| format!("POST /v1/a HTTP/1.1\r\nHost: api.test:{port}\r\n{more}\r\n");
    let later = format!("GET /v1/later HTTP/1.1\r\nHost: api.test:{port}\r\nConnection: close\r\n\r\n");
    let chunks = "2\r\nhi\r\n0\r\n\r\n";
    for (more, rest) in [
        ("Transfer-Encoding: identity, chunked\r\n", chunks),
        ("Transfer-Encoding: chunked, chunked\r\n", chunks),
        ("Transfer-Encoding: gzip, chunked\r\n", chunks),
        ("Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n", chunks),
        ("Content-Length: 2\r\nTransfer-Encoding: chunked\r\n", chunks),
        ("Transfer-Encoding: chunked\r\nContent-Length: 2\r\n", chunks),
        ("Content-Length: 2\r\nContent-Length: 2\r\n", "hi"),
        ("X: y\nContent-Length: 2\r\n", "hi"),
    ] {
        for before in
            ["", "Connection: Upgrade\r\nUpgrade: h2c\r\n", "Connection: Upgrade\r\nUpgrade: websocket\r\n"]
        {
            // Behind a request that asks for another protocol and does not get it.
            let first = if before.is_empty() {
                String::new()
            } else {
                format!("GET /v1/first HTTP/1.1\r\nHost: api.test:{port}\r\n{before}\r\n")
            };
            let heard = say(&gate, "api.test", port, &format!("{first}{}{rest}{later}", head(more))).await;
            let served = heard.matches("HTTP/1.1 200 ").count();
            assert_eq!(served, usize::from(!first.is_empty()), "{more:?} {before:?}: {heard}");
            assert!(heard.contains("reason: ambiguous_request\n"), "{more:?} {before:?}: {heard}");
            assert!(!heard.contains("/v1/later"), "{more:?}: {heard}");
        }
    }
    // Chunks as they are meant, with another request behind them.
    let well = format!("{}{chunks}{later}", head("Transfer-Encoding: chunked\r\n"));
    let heard = say(&gate, "api.test", port, &well).await;
    assert_eq!(heard.matches("HTTP/1.1 200 ").count(), 2, "{heard}");
    assert!(heard.contains("body: 2 hi") && heard.contains("/v1/later"), "{heard}");
}
