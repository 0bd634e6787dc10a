//! The protocol over a real pair of sockets.
#![expect(clippy::unwrap_used, reason = "a test ends at the first surprise")]

use isle_wire::{
    Frame, FrameError, Hello, MAX_FRAME, Mux, Request, Side, read_frame, write_frame, write_message,
};
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;

fn pair() -> ((Mux, isle_wire::Incoming), (Mux, isle_wire::Incoming)) {
    let (near, far) = UnixStream::pair().unwrap();
    let (host, host_incoming, driver) = Mux::new(near, Side::Host);
    tokio::spawn(driver);
    let (agent, agent_incoming, driver) = Mux::new(far, Side::Agent);
    tokio::spawn(driver);
    ((host, host_incoming), (agent, agent_incoming))
}

#[tokio::test]
async fn a_request_arrives_and_is_answered_on_its_own_stream() {
    let ((host, _a), (_agent, mut incoming)) = pair();
    let mut stream = host.open().await.unwrap();
    write_message(&mut stream, &Request::Hello(Hello { generation: 7 })).await.unwrap();
    let mut served = incoming.accept().await.unwrap();
    let request: Request = read_frame(&mut served).await.unwrap().unwrap().decode().unwrap();
    assert!(matches!(request, Request::Hello(Hello { generation: 7 })));
    write_frame(&mut served, &Frame::Stdout(b"out"[..].into())).await.unwrap();
    assert_eq!(read_frame(&mut stream).await.unwrap(), Some(Frame::Stdout(b"out"[..].into())));
}

#[tokio::test]
async fn dropping_the_host_ends_the_agents_side() {
    let ((host, _a), (_agent, mut incoming)) = pair();
    drop(host);
    assert!(incoming.accept().await.is_none());
}

#[tokio::test]
async fn a_stream_dropped_by_one_side_is_seen_by_the_other() {
    let ((host, _a), (_agent, mut incoming)) = pair();
    let mut stream = host.open().await.unwrap();
    write_message(&mut stream, &Request::Runs).await.unwrap();
    let mut served = incoming.accept().await.unwrap();
    read_frame(&mut served).await.unwrap();
    drop(stream);
    assert!(!matches!(read_frame(&mut served).await, Ok(Some(_))));
}

#[tokio::test]
async fn a_frame_over_the_limit_is_refused_without_reading_it() {
    let (mut near, mut far) = UnixStream::pair().unwrap();
    let length = u32::try_from(MAX_FRAME + 1).unwrap();
    near.write_all(&[4]).await.unwrap();
    near.write_all(&length.to_be_bytes()).await.unwrap();
    assert!(matches!(read_frame(&mut far).await, Err(FrameError::TooLarge(_))));
}

#[tokio::test]
async fn a_slow_reader_holds_the_writer_back() {
    let ((host, _a), (_agent, mut incoming)) = pair();
    let mut stream = host.open().await.unwrap();
    write_message(&mut stream, &Request::Runs).await.unwrap();
    let mut served = incoming.accept().await.unwrap();
    read_frame(&mut served).await.unwrap();
    let chunk = Frame::Stdout(vec![0u8; 64 * 1024].into());
    let flood = async {
        loop {
            write_frame(&mut served, &chunk).await.unwrap();
        }
    };
    // Nobody reads: the flood must stall instead of filling memory. The runtime is idle only when it did.
    let stalled = tokio::time::timeout(std::time::Duration::from_millis(300), flood).await;
    assert!(stalled.is_err());
    assert!(read_frame(&mut stream).await.unwrap().is_some());
}
