//! Bulk data through the gate, moved with splice(2).

use super::*;
use crate::relay::splice::THREADS_OF_ONE;

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
    state.tallies.values().any(|counters| counters.threads.available_permits() < THREADS_OF_ONE)
}

/// Sends or receives until bulk data is being carried by itself, or cut already.
async fn until_carried(gate: &Gate, stream: &mut TcpStream, deed: u8) {
    let mut piece = vec![0; 1 << 18];
    stream.write_all(&[deed]).await.unwrap();
    while !carries(gate) {
        let done = match deed {
            b'r' => stream.read(&mut piece).await.map(drop),
            _ => stream.write_all(&piece).await,
        };
        if done.is_err() {
            return;
        }
    }
}

#[tokio::test]
async fn bulk_data_is_spliced_both_ways_and_counted() {
    let port = echo().await;
    let gate = gate(&[format!("api.test:{port}"), format!("127.0.0.1:{port}")]);
    let (stream, served) = connect(&gate, "api.test", port);
    let (mut from, mut to) = stream.into_split();
    let size = 64 << 20;
    let byte = |at: usize| u8::try_from(at % 251).unwrap();
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
async fn a_reader_that_pauses_loses_no_bulk_data() {
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
    let ending = tokio::spawn(async move { to.shutdown().await });
    let mut heard = Vec::new();
    from.read_to_end(&mut heard).await.unwrap();
    ending.await.unwrap().unwrap();
    assert!(heard.len() == sent && heard.iter().all(|byte| *byte == 7), "{} {sent}", heard.len());
    assert_eq!(served.await.unwrap(), Outcome::Closed);
}

#[tokio::test]
async fn revoking_a_grant_cuts_bulk_data() {
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
async fn bulk_data_ends_with_the_byte_limit() {
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
        assert!(heard <= total, "{heard}");
    }
}

#[tokio::test]
async fn a_socket_made_blocking_inside_delays_only_itself_and_can_be_cut() {
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
            while threads.available_permits() < THREADS_OF_ONE {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        assert!(tokio::time::timeout(Duration::from_secs(20), over).await.is_ok());
        gate.grant(Grant::parse(&format!("api.test:{port}")).unwrap());
    }
}

#[tokio::test]
async fn an_out_of_band_byte_in_bulk_data_is_skipped() {
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
