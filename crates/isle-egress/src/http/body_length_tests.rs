use tokio::io::AsyncReadExt;

use super::*;

fn counted(body: RequestBody) -> RemainingBody {
    match RequestRest::from(body) {
        RequestRest::Counted(count) => count,
        RequestRest::IfAgreed => RemainingBody::Left(0),
    }
}

async fn passed(body: RequestBody, sent: &[u8]) -> io::Result<Vec<u8>> {
    let mut heard = Vec::new();
    SingleRequestReader { from: sent, count: &mut counted(body) }.read_to_end(&mut heard).await.map(|_| heard)
}

#[tokio::test]
async fn nothing_is_passed_on_after_the_request() {
    let later = b"GET / HTTP/1.1\r\nHost: other.example\r\n\r\n";
    for (body, request) in [
        (RequestBody::Length(0), &b""[..]),
        (RequestBody::Length(5), b"hello"),
        (RequestBody::Chunked, b"0\r\n\r\n"),
        (RequestBody::Chunked, b"5\r\nhello\r\n0\r\n\r\n"),
        (RequestBody::Chunked, b"A;name=value\r\n0123456789\r\n00\r\nSum: 1\r\nOther: 2\r\n\r\n"),
    ] {
        let sent = [request, later].concat();
        assert_eq!(passed(body, &sent).await.unwrap(), request, "{body:?}");
        for size in [1, 2, 3, 7] {
            let mut count = counted(body);
            let pieces = sent.chunks(size).map(|piece| count.take(piece).unwrap());
            assert_eq!(pieces.sum::<usize>(), request.len(), "{body:?} in pieces of {size}");
        }
    }
}

#[tokio::test]
async fn ambiguous_chunks_are_an_error() {
    for sent in [
        &b"5\nhello\r\n0\r\n\r\n"[..],
        b"\r\nhello",
        b"0x5\r\nhello\r\n0\r\n\r\n",
        b"+5\r\nhello\r\n0\r\n\r\n",
        b" 5\r\nhello\r\n0\r\n\r\n",
        b"5 \r\nhello\r\n0\r\n\r\n",
        b"5\r\nhelloX\r\n0\r\n\r\n",
        b"ffffffffffffffff\r\n",
        b"5;a\nb\r\nhello\r\n0\r\n\r\n",
        b"0\r\nSum: 1\n\r\n",
    ] {
        let error = passed(RequestBody::Chunked, sent).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{sent:?}");
    }
}

#[test]
fn trailers_cannot_override_the_request() {
    let read = |field: &str| {
        let text = format!("1\r\nx\r\n0\r\nDigest: a:b\r\n{field}\r\n\r\n");
        let mut count = RemainingBody::ChunkState(ChunkState::Size(0, 0));
        count.take(text.as_bytes()).map(|taken| taken == text.len() && count.is_over())
    };
    for fine in ["X-Checksum: 5", "T:", "nonsense", &format!("{}: x", "a".repeat(200))] {
        assert!(read(fine).unwrap(), "{fine}");
    }
    for wrong in ["X-HTTP-Method-Override: TRACE", "x_original_url:/a", "Method : x", "Forwarded: host=x"] {
        assert!(read(wrong).is_err(), "{wrong}");
    }
}
