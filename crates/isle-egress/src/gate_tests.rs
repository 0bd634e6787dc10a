//! The gate with real sockets on loopback, which the tests grant by address.

use std::net::{IpAddr, Ipv4Addr};

use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::*;
use crate::resolve::Table;
use crate::tls::tests::client_hello;

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
    let mut inside = Inside::new(socket.into()).unwrap();
    tokio::spawn(async move { gate.serve(&host, port, &mut inside).await })
}

fn connect(gate: &Arc<Gate>, host: &str, port: u16) -> (TcpStream, JoinHandle<Outcome>) {
    let (near, far) = pair();
    (near, serve(gate, host, port, far))
}

/// A connection that was cut is reset: nobody takes what came until then for all there is.
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
async fn what_is_granted_goes_through_and_is_counted() {
    let port = echo().await;
    let gate = gate(&[format!("api.test:{port}"), format!("127.0.0.1:{port}")]);
    let words = vec![7; 300_000];
    let (heard, outcome) = say(&gate, "API.test.", port, &words).await;
    assert_eq!((heard, outcome), (words, Outcome::Closed));
    let (_, _, count, _) = gate.grants().remove(0);
    let Count { dial_time, .. } = count;
    assert_eq!(
        count,
        Count { connections: 1, open: 0, sent: 300_000, received: 300_000, dials: 1, dial_time }
    );
    assert!(!dial_time.is_zero());
    assert_eq!(gate.net().entries[0].fate, Fate::Closed { sent: 300_000, received: 300_000 });
    let (_, outcome) = say(&gate, "127.0.0.1", port, b"x").await;
    assert_eq!(outcome, Outcome::Closed);
}

#[tokio::test]
async fn nothing_granted_means_nothing_goes() {
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
    assert_eq!(gate.net().denied, 13);
}

#[tokio::test]
async fn a_name_that_leads_inside_is_denied_unless_the_address_is_granted_too() {
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
async fn a_tls_grant_carries_tls_to_its_name_only() {
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
    // Who speaks HTTP there is told in HTTP.
    let (heard, outcome) = say(&gate, "api.test", port, b"GET / HTTP/1.1\r\nHost: api.test\r\n\r\n").await;
    assert_eq!(reason(&outcome), Some(Reason::NotTls));
    assert!(heard.starts_with(b"HTTP/1.1 403 "), "{heard:?}");
}

#[tokio::test]
async fn an_http_grant_carries_requests_to_its_name_only() {
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
async fn taking_a_grant_back_cuts_what_it_allowed_and_nothing_else() {
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
async fn a_connection_ends_with_its_grant_s_time_and_bytes() {
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
    assert!(heard.len() < 600, "{}", heard.len());
    assert_eq!(reason(&outcome), Some(Reason::Exhausted));
    let (_, outcome) = say(&gate, "other.test", port, b"x").await;
    assert_eq!(reason(&outcome), Some(Reason::Exhausted));
}

#[tokio::test]
async fn a_name_is_looked_up_by_what_is_granted() {
    let gate = gate(&["api.test:443,22".into(), "*.wide.example:80".into()]);
    assert_eq!(gate.look_up("API.test.").unwrap().1, [22, 443]);
    assert_eq!(gate.look_up("a.wide.example").unwrap().1, [80]);
    for name in ["wide.example", "example.com", "169.254.169.254", "secret-data.evil.example", "a b"] {
        assert!(gate.look_up(name).is_err(), "{name}");
    }
    assert_eq!(gate.denials_after(0).len(), 5);
}

#[tokio::test]
async fn an_upstream_that_is_not_there_is_said_to_be_so() {
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
async fn connections_of_one_sandbox_are_bounded_and_seats_come_back() {
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
async fn taking_back_the_address_a_name_leads_to_cuts_what_is_open() {
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
async fn a_second_request_on_a_connection_never_leaves() {
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
async fn another_protocol_is_spoken_once_the_server_has_agreed() {
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
async fn an_address_that_is_granted_for_one_connection_is_opened_once_and_whole() {
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
async fn a_head_that_comes_byte_by_byte_passes() {
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

/// A server that sends without end, or hears without end, until the other side goes.
async fn endless() -> u16 {
    let listener = TcpListener::bind((LOOPBACK, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut piece = vec![0; 1 << 18];
                match stream.read_u8().await {
                    Ok(b'r') => while stream.write_all(&piece).await.is_ok() {},
                    _ => while stream.read(&mut piece).await.is_ok_and(|count| count > 0) {},
                }
            });
        }
    });
    port
}

/// Whether bulk data is being carried now.
fn carries(gate: &Gate) -> bool {
    let state = gate.state();
    state.tallies.values().any(|tally| tally.threads.available_permits() < crate::bulk::THREADS_OF_ONE)
}

/// Sends or receives until bulk data is being carried by itself.
async fn until_carried(gate: &Gate, stream: &mut TcpStream, deed: u8) {
    let mut piece = vec![0; 1 << 18];
    stream.write_all(&[deed]).await.unwrap();
    while !carries(gate) {
        match deed {
            b'r' => stream.read(&mut piece).await.map(drop).unwrap(),
            _ => stream.write_all(&piece).await.unwrap(),
        }
    }
}

#[tokio::test]
async fn bulk_data_arrives_whole_both_ways_at_once_and_is_counted() {
    let port = echo().await;
    let gate = gate(&[format!("api.test:{port}"), format!("127.0.0.1:{port}")]);
    let (stream, served) = connect(&gate, "api.test", port);
    let (mut from, mut to) = stream.into_split();
    let size = 64 << 20;
    let byte = |at: usize| (at % 251) as u8;
    let sending = tokio::spawn(async move {
        for start in (0..size).step_by(1 << 20) {
            let piece: Vec<u8> = (start..start + (1 << 20)).map(byte).collect();
            to.write_all(&piece).await.unwrap();
        }
        to.shutdown().await.unwrap();
    });
    let (mut at, mut was_carried, mut buffer) = (0, false, vec![0; 1 << 20]);
    loop {
        let count = from.read(&mut buffer).await.unwrap();
        if count == 0 {
            break;
        }
        assert!(buffer[..count].iter().enumerate().all(|(index, got)| *got == byte(at + index)), "{at}");
        at += count;
        was_carried |= carries(&gate);
    }
    sending.await.unwrap();
    assert_eq!((at, served.await.unwrap(), was_carried), (size, Outcome::Closed, true));
    let count = gate.grants().remove(0).2;
    assert_eq!((count.sent, count.received), (size as u64, size as u64));
    assert!(!carries(&gate));
}

#[tokio::test]
async fn a_connection_that_falls_quiet_goes_on_without_its_thread_and_loses_nothing() {
    let port = echo().await;
    let gate = gate(&[format!("127.0.0.1:{port}")]);
    let (stream, served) = connect(&gate, "127.0.0.1", port);
    let (mut from, mut to) = stream.into_split();
    // Nobody reads: what is under way stays there.
    let (mut sent, piece) = (0, vec![7; 1 << 16]);
    let mut was_carried = false;
    while let Ok(count) = tokio::time::timeout(Duration::from_millis(300), to.write(&piece)).await {
        sent += count.unwrap();
        was_carried |= carries(&gate);
    }
    assert!(was_carried);
    while carries(&gate) {
        tokio::task::yield_now().await;
    }
    let ending = tokio::spawn(async move { to.shutdown().await });
    let mut heard = Vec::new();
    from.read_to_end(&mut heard).await.unwrap();
    ending.await.unwrap().unwrap();
    assert!(heard.len() == sent && heard.iter().all(|byte| *byte == 7), "{} {sent}", heard.len());
    assert_eq!(served.await.unwrap(), Outcome::Closed);
}

#[tokio::test]
async fn taking_a_grant_back_cuts_bulk_data_under_way() {
    let port = endless().await;
    for deed in [b'r', b's'] {
        let gate = gate(&[format!("127.0.0.1:{port}"), format!("api.test:{port}")]);
        let (mut stream, served) = connect(&gate, "api.test", port);
        until_carried(&gate, &mut stream, deed).await;
        assert!(gate.revoke(2));
        assert_eq!(reason(&served.await.unwrap()), Some(Reason::Revoked));
        assert_reset(stream).await;
    }
}

#[tokio::test]
async fn bulk_data_ends_with_the_bytes_of_its_grant() {
    let port = endless().await;
    let total = 20 << 20;
    for deed in [b'r', b's'] {
        let gate = gate(&[format!("127.0.0.1:{port}")]);
        let mut grant = Grant::parse(&format!("api.test:{port}")).unwrap();
        grant.limits.total_bytes = Some(total);
        gate.grant(grant);
        let (mut stream, served) = connect(&gate, "api.test", port);
        until_carried(&gate, &mut stream, deed).await;
        let piece = vec![0; 1 << 18];
        while deed == b's' && stream.write_all(&piece).await.is_ok() {}
        let (mut heard, mut sink) = (0, vec![0; 1 << 20]);
        while let Ok(count @ 1..) = stream.read(&mut sink).await {
            heard += count as u64;
        }
        assert_eq!(reason(&served.await.unwrap()), Some(Reason::Exhausted));
        let count = gate.grants().into_iter().find(|(id, ..)| *id == 2).map(|(_, _, count, _)| count);
        assert!(heard <= total, "{heard}");
        // What was counted and did not go is one portion.
        assert!(count.is_none_or(|count| count.sent + count.received <= total + 65_536), "{count:?}");
    }
}

#[tokio::test]
async fn a_socket_that_somebody_inside_makes_block_holds_up_nobody_and_can_be_cut() {
    let (port, echo) = (endless().await, echo().await);
    let grants =
        [format!("127.0.0.1:{port},{echo}"), format!("api.test:{port}"), format!("other.test:{echo}")];
    let gate = gate(&grants);
    for deed in [b'r', b's'] {
        let (id, ..) =
            gate.grants().into_iter().find(|(_, grant, ..)| grant.to_string().contains("api")).unwrap();
        let threads = Arc::clone(&gate.state().tallies[&id].threads);
        let (mut stream, far) = pair();
        let kept = far.try_clone().unwrap();
        let served = serve(&gate, "api.test", port, far);
        kept.set_nonblocking(false).unwrap();
        until_carried(&gate, &mut stream, deed).await;
        // Neither reads nor writes from now on: where that blocks, it blocks for ever.
        tokio::time::sleep(Duration::from_millis(200)).await;
        let (heard, _) = say(&gate, "other.test", echo, b"x").await;
        assert_eq!(heard, b"x");
        assert!(gate.revoke(id));
        assert_eq!(reason(&served.await.unwrap()), Some(Reason::Revoked));
        let over = async {
            while threads.available_permits() < crate::bulk::THREADS_OF_ONE {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        assert!(tokio::time::timeout(Duration::from_secs(20), over).await.is_ok());
        gate.grant(Grant::parse(&format!("api.test:{port}")).unwrap());
    }
}

#[tokio::test]
async fn a_byte_out_of_band_within_bulk_data_is_passed_over() {
    let port = echo().await;
    let gate = gate(&[format!("127.0.0.1:{port}")]);
    let (stream, served) = connect(&gate, "127.0.0.1", port);
    let (mut from, mut to) = stream.into_split();
    let half = vec![7; 16 << 20];
    let sending = tokio::spawn(async move {
        to.write_all(&half).await.unwrap();
        let urgent = |stream: &TcpStream| {
            rustix::net::send(stream, &[9], rustix::net::SendFlags::OOB).map_err(io::Error::from)
        };
        let stream = to.as_ref();
        stream.async_io(tokio::io::Interest::WRITABLE, || urgent(stream).map(drop)).await.unwrap();
        to.write_all(&half).await.unwrap();
        to.shutdown().await.unwrap();
    });
    let mut heard = Vec::new();
    from.read_to_end(&mut heard).await.unwrap();
    sending.await.unwrap();
    assert_eq!((heard.len(), served.await.unwrap()), (32 << 20, Outcome::Closed));
    assert!(heard.iter().all(|byte| *byte == 7));
}
