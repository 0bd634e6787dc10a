use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

use super::*;

/// Two ends of one connection, over a link that takes at most so many bytes at once.
fn pair(room: usize) -> (CarriedStream<DuplexStream>, CarriedStream<DuplexStream>) {
    let (one, other) = duplex(room);
    (CarriedStream::new(one), CarriedStream::new(other))
}

#[tokio::test]
async fn bytes_arrive_whole_whatever_the_link_takes_at_once() {
    for room in [1, 3, 5, 7, 100, 4096, 1 << 20] {
        let (mut one, mut other) = pair(room);
        if room > HEADER {
            one.acknowledge().await.unwrap();
        }
        let lengths = if room < 100 { vec![1, 6, 2048, 2049] } else { vec![1, 2048, 2049, 65_536, 300_000] };
        let sent: Vec<u8> = (0..=255u8).cycle().take(lengths.iter().sum()).collect();
        let expected = sent.clone();
        let writer = tokio::spawn(async move {
            let mut start = 0;
            for length in lengths {
                one.write_all(&sent[start..start + length]).await.unwrap();
                start += length;
            }
            one.shutdown().await.unwrap();
            let mut rest = Vec::new();
            one.read_to_end(&mut rest).await.unwrap();
            rest
        });
        let mut received = Vec::new();
        other.read_to_end(&mut received).await.unwrap();
        assert!(received == expected, "room {room}");
        // One direction has ended, the other has not.
        other.write_all(b"bye").await.unwrap();
        other.shutdown().await.unwrap();
        assert_eq!(writer.await.unwrap(), b"bye");
    }
}

#[tokio::test]
async fn an_end_without_a_fin_is_a_reset() {
    let (mut one, mut other) = pair(1024);
    one.write_all(b"half").await.unwrap();
    drop(one);
    let mut received = Vec::new();
    let error = other.read_to_end(&mut received).await.unwrap_err();
    assert_eq!((received.as_slice(), error.kind()), (&b"half"[..], io::ErrorKind::ConnectionReset));
}

#[tokio::test]
async fn a_fin_is_not_taken_back_by_a_later_drop() {
    let (mut one, mut other) = pair(1024);
    one.write_all(b"all").await.unwrap();
    one.shutdown().await.unwrap();
    drop(one);
    let mut received = Vec::new();
    other.read_to_end(&mut received).await.unwrap();
    assert_eq!(received, b"all");
    assert_eq!(other.read(&mut [0; 8]).await.unwrap(), 0, "the end stays the end");
}

#[tokio::test]
async fn what_is_no_frame_of_a_connection_is_an_error() {
    for bytes in [[9, 0, 0, 0, 1], [DATA, 0xff, 0xff, 0xff, 0xff], [END, 0, 0, 0, 1]] {
        let (mut raw, other) = duplex(64);
        let mut other = CarriedStream::new(other);
        raw.write_all(&bytes).await.unwrap();
        assert_eq!(other.read(&mut [0; 8]).await.unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}

#[tokio::test]
async fn a_slow_reader_holds_the_writer_back() {
    let (mut one, other) = pair(4096);
    let everything = vec![0; 1 << 20];
    let written = tokio::time::timeout(Duration::from_millis(50), one.write_all(&everything)).await;
    assert!(written.is_err(), "nobody reads, so not all of it can be written");
    drop(other);
}
