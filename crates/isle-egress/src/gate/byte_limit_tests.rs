//! The byte limit of a grant is exact, in both directions and over concurrent connections.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncRead, AsyncWrite};

use super::*;
use crate::accounting::grant_counters::{Direction, GrantCounters};
use crate::accounting::metered_stream::Metered;

/// The first byte sent to the server: whether it sends or receives.
const RECEIVE: u8 = b'r';
const SEND: u8 = b's';

/// A server that sends or hears without end, as the first byte says; gives all that it heard.
async fn tireless() -> (u16, Arc<AtomicU64>) {
    let listener = TcpListener::bind((LOOPBACK, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let all = Arc::new(AtomicU64::new(0));
    let heard = Arc::clone(&all);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let heard = Arc::clone(&heard);
            tokio::spawn(async move {
                let Ok(deed) = stream.read_u8().await else { return };
                heard.fetch_add(1, Ordering::SeqCst);
                match deed {
                    RECEIVE => speak(stream).await,
                    _ => hear(stream, &heard).await,
                }
            });
        }
    });
    (port, all)
}

/// Sends until nothing goes any more.
async fn speak(mut to: impl AsyncWrite + Unpin) {
    let piece = vec![0; 1 << 16];
    while let Ok(1..) = to.write(&piece).await {}
}

/// Hears until nothing comes any more.
async fn hear(mut from: impl AsyncRead + Unpin, heard: &AtomicU64) {
    let mut piece = vec![0; 1 << 16];
    while let Ok(count @ 1..) = from.read(&mut piece).await {
        heard.fetch_add(count as u64, Ordering::SeqCst);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_byte_limit_is_exact_over_concurrent_connections() {
    // Less than one portion, and so much that the kernel moves it.
    for total in [1_000, 9_000_001] {
        for deeds in [vec![RECEIVE; 6], vec![SEND; 6], vec![RECEIVE, SEND, RECEIVE, SEND]] {
            let (port, at_server) = tireless().await;
            let gate = gate(&[format!("127.0.0.1:{port}")]);
            let mut grant = Grant::parse(&format!("api.test:{port}")).unwrap();
            grant.limits.total_bytes = Some(total);
            let id = gate.grant(grant);
            let counters = Arc::clone(&gate.state().tallies[&id]);
            let at_program = Arc::new(AtomicU64::new(0));
            let mut programs = Vec::new();
            for deed in &deeds {
                let (mut stream, served) = connect(&gate, "api.test", port);
                let (deed, heard) = (*deed, Arc::clone(&at_program));
                programs.push(tokio::spawn(async move {
                    stream.write_all(&[deed]).await.ok();
                    let (from, to) = stream.into_split();
                    let sending = async {
                        match deed {
                            SEND => speak(to).await,
                            _ => drop(to),
                        }
                    };
                    tokio::join!(hear(from, &heard), sending);
                    served.await.unwrap()
                }));
            }
            let mut ends = Vec::new();
            for program in programs {
                ends.push(reason(&program.await.unwrap()));
            }
            assert!(ends.contains(&Some(Reason::Exhausted)), "{ends:?}");
            let count = counters.count();
            assert_eq!(count.sent + count.received, total, "{count:?}");
            let moved = [&at_server, &at_program].map(|heard| heard.load(Ordering::SeqCst));
            assert!(moved[0] <= count.sent && moved[1] <= count.received, "{moved:?} {count:?}");
        }
    }
}

#[tokio::test]
async fn the_last_bytes_of_a_grant_are_sent_and_no_more() {
    let port = echo().await;
    let gate = gate(&[format!("127.0.0.1:{port}")]);
    let mut grant = Grant::parse(&format!("api.test:{port}")).unwrap();
    grant.limits.total_bytes = Some(1000);
    let id = gate.grant(grant);
    let counters = Arc::clone(&gate.state().tallies[&id]);
    let (heard, outcome) = say(&gate, "api.test", port, &[1; 500]).await;
    assert_eq!((heard.len(), outcome), (500, Outcome::Closed));
    assert_eq!((counters.count().sent, counters.count().received), (500, 500));
    let (heard, outcome) = say(&gate, "api.test", port, b"x").await;
    assert_eq!((heard.len(), reason(&outcome)), (0, Some(Reason::Exhausted)));
    assert_eq!((counters.count().sent, counters.count().received), (500, 500));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn intercepted_connections_share_the_byte_limit_exactly() {
    for total in [1_000, 3_000_001] {
        let (port, at_server) = tireless().await;
        let counters = Arc::new(GrantCounters::new(Some(total), None, Arc::default()));
        let received = Arc::new(AtomicU64::new(0));
        let mut programs = Vec::new();
        for deed in [RECEIVE, SEND, RECEIVE, SEND] {
            let meter = Meter::new(Arc::clone(&counters));
            let stream = TcpStream::connect((LOOPBACK, port)).await.unwrap();
            let mut stream = Metered::new(stream, Arc::clone(&meter));
            let received = Arc::clone(&received);
            programs.push(tokio::spawn(async move {
                if stream.write_all(&[deed]).await.is_ok() {
                    match deed {
                        RECEIVE => hear(&mut stream, &received).await,
                        _ => speak(&mut stream).await,
                    }
                }
                meter.exhausted().await;
                meter.moved()
            }));
        }
        let (mut sent, mut heard) = (0, 0);
        for program in programs {
            let moved = program.await.unwrap();
            (sent, heard) = (sent + moved.sent, heard + moved.received);
        }
        assert_eq!(sent + heard, total);
        assert_eq!((counters.count().sent, counters.count().received), (sent, heard));
        assert_eq!(received.load(Ordering::SeqCst), heard);
        // All that went arrives.
        while at_server.load(Ordering::SeqCst) < sent {
            tokio::task::yield_now().await;
        }
        assert_eq!(at_server.load(Ordering::SeqCst), sent);
        assert_eq!(counters.claim(Direction::Sent, 1), 0);
    }
}
