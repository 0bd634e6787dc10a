//! Masking of responses: however they are split into pieces and frames, the same bytes are masked as in the
//! whole, nothing else is changed, and the value does not occur. Also the parser of placements.

use std::sync::Arc;

use isle_egress::{MaskFrames, MaskStream, Placement, SecretFinder, masked};

const VALUE: &str = "s3cr3t/Value+47s3c";

/// What a byte of the input is replaced by.
fn written(byte: u8) -> Vec<u8> {
    match byte {
        0xf8 => VALUE.as_bytes().to_vec(),
        0xf9 => VALUE.bytes().flat_map(|byte| format!("{byte:02x}").into_bytes()).collect(),
        0xfa => b"czNjcjN0L1ZhbHVlKzQ3czNj".to_vec(),
        0xfb => VALUE.as_bytes()[..VALUE.len() - 1].to_vec(),
        0xfc => VALUE.as_bytes()[4..].to_vec(),
        other => vec![other],
    }
}

fn contains(bytes: &[u8], value: &str) -> bool {
    memchr::memmem::find(bytes, value.as_bytes()).is_some()
}

pub(crate) fn run(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Ok(placement) = text.parse::<Placement>()
    {
        assert_eq!(placement.to_string().parse(), Ok(placement), "{text:?}");
    }
    let Some((&seed, rest)) = bytes.split_first() else { return };
    let text: Vec<u8> = rest.iter().flat_map(|byte| written(*byte)).collect();
    let finder = Arc::new(SecretFinder::new([("KEY", VALUE)]).unwrap().unwrap());
    let whole = masked(&finder, &text).map_or_else(|| text.clone(), |(out, _)| out);
    assert!(whole.len() == text.len() && !contains(&whole, VALUE));
    assert!(text.iter().zip(&whole).all(|(before, after)| before == after || *after == b'*'));

    // The sizes of pieces follow from the input, so that everything can be found again.
    let sizes = rest.iter().chain([&seed]).map(|byte| usize::from(*byte % 23) + 1).cycle();
    let mut pieces = Vec::new();
    let mut left = &text[..];
    for size in sizes {
        if left.is_empty() {
            break;
        }
        let (piece, after) = left.split_at(size.min(left.len()));
        pieces.push(piece.to_vec());
        left = after;
    }
    let mut stream = MaskStream::new(Arc::clone(&finder));
    let mut out = Vec::new();
    for piece in &pieces {
        out.extend_from_slice(&stream.push(piece.clone().into()));
        assert!(stream.held() < finder.longest());
    }
    out.extend_from_slice(&stream.finish());
    assert_eq!(out, whole, "{pieces:?}");

    // As one message, a frame for each piece, and cut elsewhere again.
    let mut frames = Vec::new();
    for (at, piece) in pieces.iter().enumerate() {
        let last = if at + 1 == pieces.len() { 0x80 } else { 0 };
        frames.extend([last | u8::from(at == 0), u8::try_from(piece.len()).unwrap()]);
        frames.extend(piece);
    }
    let mut socket = MaskFrames::new(Arc::clone(&finder));
    let passed: Vec<u8> =
        frames.chunks(usize::from(seed) + 1).flat_map(|piece| socket.push(piece).unwrap()).collect();
    assert_eq!(passed.len(), frames.len());
    let mut message = Vec::new();
    let mut left = &passed[..];
    while let [_, length, after @ ..] = left {
        let (piece, next) = after.split_at(usize::from(*length));
        message.extend_from_slice(piece);
        left = next;
    }
    assert_eq!(message, whole);
    // Whatever else comes over a WebSocket is an error, or keeps its length.
    let mut socket = MaskFrames::new(finder);
    let passed = socket.push(rest);
    assert!(passed.is_err() || passed.is_ok_and(|passed| passed.len() <= rest.len()));
}
