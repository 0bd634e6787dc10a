//! The gate with real sockets on loopback, which the tests grant by address.

use std::io;
use std::net::{IpAddr, Ipv4Addr};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::*;
use crate::accounting::grant_counters::TrafficCount;
use crate::accounting::metered_stream::Meter;
use crate::dial::resolver::Table;
use crate::gate::serve::MOST_OPEN;
use crate::policy::grant::Grant;
use crate::relay::sandbox_stream::SandboxStream;
use crate::tls::client_hello::tests::client_hello;

#[path = "byte_limit_tests.rs"]
mod byte_limit;
#[path = "splice_tests.rs"]
mod splice;

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// A server that answers each connection with what it heard until the other side's end.
async fn echo() -> u16 {
    let listener = TcpListener::bind((LOOPBACK, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut from, mut to) = stream.split();
                tokio::io::copy(&mut from, &mut to).await.ok();
                to.shutdown().await.ok();
            });
        }
    });
    port
}

fn gate(grants: &[String]) -> Arc<Gate> {
    let table = ["api.test", "other.test"].map(|name| (Name::parse(name).unwrap(), vec![LOOPBACK]));
    let gate = Gate::new(Arc::new(Resolver::new(Table::from(table))));
    for text in grants {
        gate.grant(Grant::parse(text).unwrap());
    }
    Arc::new(gate)
}

/// A program's socket, and the one that is handed over for it.
fn pair() -> (TcpStream, std::net::TcpStream) {
    let listener = std::net::TcpListener::bind((LOOPBACK, 0)).unwrap();
    let near = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (far, _) = listener.accept().unwrap();
    near.set_nonblocking(true).unwrap();
    far.set_nonblocking(true).unwrap();
    (TcpStream::from_std(near).unwrap(), far)
}

fn serve(gate: &Arc<Gate>, host: &str, port: u16, socket: std::net::TcpStream) -> JoinHandle<Outcome> {
    let (gate, host) = (Arc::clone(gate), host.to_owned());
    let mut inside = SandboxStream::new(socket.into()).unwrap();
    tokio::spawn(async move { gate.serve(&host, port, &mut inside).await })
}

fn connect(gate: &Arc<Gate>, host: &str, port: u16) -> (TcpStream, JoinHandle<Outcome>) {
    let (near, far) = pair();
    (near, serve(gate, host, port, far))
}

/// A cut connection is reset, so that the program does not mistake a part for the whole.
async fn assert_reset(mut stream: TcpStream) {
    let mut sink = vec![0; 1 << 20];
    let error = loop {
        match stream.read(&mut sink).await {
            Ok(0) => panic!("it ended as if that was all"),
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
}

async fn say(gate: &Arc<Gate>, host: &str, port: u16, words: &[u8]) -> (Vec<u8>, Outcome) {
    let (mut stream, served) = connect(gate, host, port);
    stream.write_all(words).await.ok();
    stream.shutdown().await.ok();
    let mut heard = Vec::new();
    stream.read_to_end(&mut heard).await.ok();
    (heard, served.await.unwrap())
}

fn reason(outcome: &Outcome) -> Option<Reason> {
    match outcome {
        Outcome::Denied(denial) => Some(denial.reason),
        Outcome::Closed | Outcome::Failed(_) => None,
    }
}

#[tokio::test]
async fn a_granted_connection_is_relayed_and_counted() {
    let port = echo().await;
    let gate = gate(&[format!("api.test:{port}"), format!("127.0.0.1:{port}")]);
    let words = vec![7; 300_000];
    let (heard, outcome) = say(&gate, "API.test.", port, &words).await;
    assert_eq!((heard, outcome), (words, Outcome::Closed));
    let (_, _, count, _) = gate.grants().remove(0);
    let TrafficCount { dial_time, .. } = count;
    assert_eq!(
        count,
        TrafficCount { connections: 1, open: 0, sent: 300_000, received: 300_000, dials: 1, dial_time }
    );
    assert!(!dial_time.is_zero());
    assert_eq!(gate.log().entries[0].result, ConnectionResult::Closed { sent: 300_000, received: 300_000 });
    let (_, outcome) = say(&gate, "127.0.0.1", port, b"x").await;
    assert_eq!(outcome, Outcome::Closed);
}

#[tokio::test]
async fn without_grants_everything_is_denied() {
    let port = echo().await;
    let gate = gate(&[]);
    for host in ["api.test", "127.0.0.1", "localhost", "::1", "0.0.0.0", "::ffff:127.0.0.1"] {
        let (heard, outcome) = say(&gate, host, port, b"x").await;
        assert_eq!((heard.len(), reason(&outcome)), (0, Some(Reason::NotGranted)), "{host}");
    }
    for host in ["2130706433", "0x7f.1", "127.1", "user@api.test", "api.test\0.evil", "[::1%lo]", ""] {
        let (_, outcome) = say(&gate, host, port, b"x").await;
        assert_eq!(reason(&outcome), Some(Reason::Malformed), "{host:?}");
    }
    assert_eq!(gate.log().denied, 13);
}

#[tokio::test]
async fn a_name_with_a_private_address_needs_a_grant_of_the_address() {
    let port = echo().await;
    let gate = gate(&[format!("api.test:{port}")]);
    let (_, outcome) = say(&gate, "api.test", port, b"x").await;
    assert_eq!(reason(&outcome), Some(Reason::ForbiddenAddress));
    let Outcome::Denied(denial) = outcome else { panic!() };
    assert!(denial.remedy().contains("127.0.0.1"), "{denial}");
    gate.grant(Grant::parse(&format!("127.0.0.1:{port}")).unwrap());
    let (heard, _) = say(&gate, "api.test", port, b"x").await;
    assert_eq!(heard, b"x");
}

#[tokio::test]
async fn a_tls_grant_allows_tls_to_its_name_only() {
    let port = echo().await;
    let gate = gate(&[format!("api.test:{port}/tls"), format!("127.0.0.1:{port}")]);
    let hello = client_hello("api.test");
    let (heard, outcome) = say(&gate, "api.test", port, &hello).await;
    assert_eq!((heard, outcome), (hello, Outcome::Closed));
    for (words, expected) in [
        (client_hello("other.test"), Reason::WrongServerName),
        (client_hello("127.0.0.1"), Reason::WrongServerName),
        (b"SSH-2.0-client\r\n".to_vec(), Reason::NotTls),
        (Vec::new(), Reason::NotTls),
        (client_hello("api.test")[..40].to_vec(), Reason::NotTls),
    ] {
        let (heard, outcome) = say(&gate, "api.test", port, &words).await;
        assert_eq!((heard.len(), reason(&outcome)), (0, Some(expected)));
    }
    // A program that uses HTTP gets an HTTP response.
    let (heard, outcome) = say(&gate, "api.test", port, b"GET / HTTP/1.1\r\nHost: api.test\r\n\r\n").await;
    assert_eq!(reason(&outcome), Some(Reason::NotTls));
    assert!(heard.starts_with(b"HTTP/1.1 403 "), "{heard:?}");
}

#[tokio::test]
async fn an_http_grant_allows_requests_to_its_name_only() {
    let port = echo().await;
    let gate = gate(&[format!("api.test:{port}/http"), format!("127.0.0.1:{port}")]);
    let (heard, _) =
        say(&gate, "api.test", port, b"POST / HTTP/1.1\r\nHost: api.test\r\nContent-Length: 2\r\n\r\nhi")
            .await;
    let heard = String::from_utf8(heard).unwrap();
    assert!(heard.ends_with("Connection: close\r\n\r\nhi"), "{heard}");
    let (heard, outcome) = say(&gate, "api.test", port, b"GET / HTTP/1.1\r\nHost: other.test\r\n\r\n").await;
    let heard = String::from_utf8(heard).unwrap();
    assert_eq!(reason(&outcome), Some(Reason::WrongHostHeader));
    assert!(heard.starts_with("HTTP/1.1 403 ") && heard.contains("remedy: "), "{heard}");
}

#[tokio::test]
async fn revoking_a_grant_cuts_its_connections_only() {
    let port = echo().await;
    let gate = gate(&[format!("127.0.0.1:{port}"), format!("api.test:{port}"), format!("other.test:{port}")]);
    let (mut cut, served) = connect(&gate, "api.test", port);
    let (mut kept, _other) = connect(&gate, "other.test", port);
    let mut byte = [0];
    for stream in [&mut cut, &mut kept] {
        stream.write_all(b"a").await.unwrap();
        stream.read_exact(&mut byte).await.unwrap();
    }
    assert!(gate.revoke(2));
    assert!(!gate.revoke(2));
    assert_eq!(reason(&served.await.unwrap()), Some(Reason::Revoked));
    assert_reset(cut).await;
    kept.write_all(b"b").await.unwrap();
    kept.read_exact(&mut byte).await.unwrap();
    let (_, outcome) = say(&gate, "api.test", port, b"x").await;
    assert_eq!(reason(&outcome), Some(Reason::NotGranted));
}

#[tokio::test]
async fn a_connection_ends_with_the_lifetime_and_bytes_of_its_grant() {
    let port = echo().await;
    let gate = gate(&[format!("127.0.0.1:{port}")]);
    let mut grant = Grant::parse(&format!("api.test:{port}")).unwrap();
    grant.limits.lifetime = Some(Duration::from_millis(300));
    gate.grant(grant);
    let (_open, served) = connect(&gate, "api.test", port);
    assert_eq!(reason(&served.await.unwrap()), Some(Reason::Revoked));
    let mut grant = Grant::parse(&format!("other.test:{port}")).unwrap();
    grant.limits.total_bytes = Some(1000);
    gate.grant(grant);
    let (heard, outcome) = say(&gate, "other.test", port, &[1; 600]).await;
    assert!(heard.len() <= 400, "{}", heard.len());
    assert_eq!(reason(&outcome), Some(Reason::Exhausted));
    let (_, outcome) = say(&gate, "other.test", port, b"x").await;
    assert_eq!(reason(&outcome), Some(Reason::Exhausted));
}

#[tokio::test]
async fn a_lookup_returns_the_granted_ports() {
    let gate = gate(&["api.test:443,22".into(), "*.wide.example:80".into()]);
    assert_eq!(gate.look_up("API.test.", None).unwrap().1, [22, 443]);
    assert_eq!(gate.look_up("a.wide.example", None).unwrap().1, [80]);
    for name in ["wide.example", "example.com", "169.254.169.254", "secret-data.evil.example", "a b"] {
        assert!(gate.look_up(name, None).is_err(), "{name}");
    }
    assert_eq!(gate.denials_after(0).len(), 5);
}

#[tokio::test]
async fn an_unreachable_server_is_reported() {
    let port = {
        let listener = TcpListener::bind((LOOPBACK, 0)).await.unwrap();
        listener.local_addr().unwrap().port()
    };
    let gate = gate(&[format!("api.test:{port}/http"), format!("127.0.0.1:{port}")]);
    let (heard, outcome) = say(&gate, "api.test", port, b"GET / HTTP/1.1\r\nHost: api.test\r\n\r\n").await;
    assert!(matches!(outcome, Outcome::Failed(_)), "{outcome:?}");
    assert!(heard.starts_with(b"HTTP/1.1 502 "), "{heard:?}");
}

#[tokio::test]
async fn connections_of_one_sandbox_are_limited_and_slots_are_released() {
    let port = echo().await;
    let gate = gate(&[format!("127.0.0.1:{port}")]);
    gate.state().open = MOST_OPEN;
    let (_, outcome) = say(&gate, "127.0.0.1", port, b"x").await;
    assert_eq!(reason(&outcome), Some(Reason::TooMany));
    gate.state().open = 0;
    let (_, outcome) = say(&gate, "127.0.0.1", port, b"x").await;
    assert_eq!((outcome, gate.state().open), (Outcome::Closed, 0));
}

#[tokio::test]
async fn revoking_the_address_of_a_name_cuts_its_connections() {
    let port = echo().await;
    let gate = gate(&[format!("127.0.0.1:{port}"), format!("api.test:{port}")]);
    let (mut stream, served) = connect(&gate, "api.test", port);
    let mut byte = [0];
    stream.write_all(b"a").await.unwrap();
    stream.read_exact(&mut byte).await.unwrap();
    assert!(gate.revoke(1));
    assert_eq!(reason(&served.await.unwrap()), Some(Reason::Revoked));
    assert_reset(stream).await;
}

#[tokio::test]
async fn a_connection_that_is_dropped_is_not_counted_as_open() {
    let port = echo().await;
    let gate = gate(&[format!("127.0.0.1:{port}")]);
    let (mut stream, served) = connect(&gate, "127.0.0.1", port);
    stream.write_all(b"a").await.unwrap();
    stream.read_exact(&mut [0]).await.unwrap();
    assert_eq!(gate.grants().remove(0).2.open, 1);
    served.abort();
    assert!(served.await.unwrap_err().is_cancelled());
    assert_eq!((gate.grants().remove(0).2.open, gate.state().open), (0, 0));
}

#[tokio::test]
async fn a_second_request_on_a_connection_is_never_sent() {
    let port = echo().await;
    let gate = gate(&[format!("api.test:{port}/http"), format!("127.0.0.1:{port}")]);
    let later = "GET /later HTTP/1.1\r\nHost: other.test\r\n\r\n";
    for (fields, body) in [
        ("", ""),
        ("Content-Length: 2\r\n", "hi"),
        ("Transfer-Encoding: chunked\r\n", "2\r\nhi\r\n0\r\n\r\n"),
        ("Connection: Upgrade\r\nUpgrade: websocket\r\n", ""),
    ] {
        let head = format!("POST / HTTP/1.1\r\nHost: api.test\r\n{fields}\r\n{body}");
        // The server answers with what it hears, and closes only when it hears the end.
        for pieces in [vec![format!("{head}{later}")], vec![head.clone(), later.to_owned()]] {
            let (mut stream, served) = connect(&gate, "api.test", port);
            for piece in pieces {
                stream.write_all(piece.as_bytes()).await.unwrap();
                tokio::task::yield_now().await;
            }
            stream.shutdown().await.unwrap();
            let mut heard = String::new();
            stream.read_to_string(&mut heard).await.unwrap();
            assert_eq!(served.await.unwrap(), Outcome::Closed, "{fields}");
            assert!(heard.ends_with(&format!("\r\n\r\n{body}")) && !heard.contains("later"), "{heard:?}");
        }
    }
}

#[tokio::test]
async fn a_protocol_upgrade_needs_the_agreement_of_the_server() {
    let listener = TcpListener::bind((LOOPBACK, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = vec![0; 4096];
        let mut length = 0;
        while !head[..length].ends_with(b"\r\n\r\n") {
            length += stream.read(&mut head[length..]).await.unwrap();
        }
        stream.write_all(b"HTTP/1.1 101 Switching Protocols\r\n\r\n").await.unwrap();
        let (mut from, mut to) = stream.split();
        tokio::io::copy(&mut from, &mut to).await.ok();
    });
    let gate = gate(&[format!("api.test:{port}/http"), format!("127.0.0.1:{port}")]);
    let (mut stream, _served) = connect(&gate, "api.test", port);
    let request =
        "GET / HTTP/1.1\r\nHost: api.test\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = vec![0; b"HTTP/1.1 101 Switching Protocols\r\n\r\n".len()];
    stream.read_exact(&mut answer).await.unwrap();
    stream.write_all(b"frames").await.unwrap();
    let mut frames = [0; 6];
    stream.read_exact(&mut frames).await.unwrap();
    assert_eq!(&frames, b"frames");
}

#[tokio::test]
async fn an_address_granted_for_one_connection_is_used_once() {
    let port = echo().await;
    let gate = gate(&[format!("api.test:{port}")]);
    let mut once = Grant::parse(&format!("127.0.0.1:{port}")).unwrap();
    once.limits.connections = Some(1);
    once.limits.lifetime = Some(Duration::from_millis(300));
    gate.grant(once);
    let (mut stream, served) = connect(&gate, "api.test", port);
    let mut byte = [0];
    stream.write_all(b"a").await.unwrap();
    stream.read_exact(&mut byte).await.unwrap();
    let (_, outcome) = say(&gate, "api.test", port, b"x").await;
    assert_eq!(reason(&outcome), Some(Reason::ForbiddenAddress));
    // What was allowed is allowed to its end, also after the time in which it could be begun.
    tokio::time::sleep(Duration::from_millis(400)).await;
    stream.write_all(b"b").await.unwrap();
    stream.read_exact(&mut byte).await.unwrap();
    stream.shutdown().await.unwrap();
    assert_eq!(served.await.unwrap(), Outcome::Closed);
    let (_, outcome) = say(&gate, "api.test", port, b"x").await;
    assert_eq!(reason(&outcome), Some(Reason::ForbiddenAddress));
    // The same by the address alone.
    let mut once = Grant::parse(&format!("127.0.0.1:{port}")).unwrap();
    once.limits.connections = Some(1);
    gate.grant(once);
    let (heard, _) = say(&gate, "127.0.0.1", port, b"x").await;
    assert_eq!(heard, b"x");
    let (_, outcome) = say(&gate, "127.0.0.1", port, b"x").await;
    assert_eq!(reason(&outcome), Some(Reason::NotGranted));
}

#[tokio::test]
async fn a_head_received_byte_by_byte_is_accepted() {
    let port = echo().await;
    let gate = gate(&[format!("api.test:{port}/http"), format!("127.0.0.1:{port}")]);
    let (mut stream, served) = connect(&gate, "api.test", port);
    for byte in b"GET /slow HTTP/1.1\r\nHost: api.test\r\n\r\n" {
        stream.write_all(&[*byte]).await.unwrap();
        tokio::task::yield_now().await;
    }
    stream.shutdown().await.unwrap();
    let mut heard = String::new();
    stream.read_to_string(&mut heard).await.unwrap();
    assert!(heard.starts_with("GET /slow ") && heard.ends_with("close\r\n\r\n"), "{heard}");
    assert_eq!(served.await.unwrap(), Outcome::Closed);
}
