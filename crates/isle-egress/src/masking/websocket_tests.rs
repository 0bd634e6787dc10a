use super::*;

fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    match payload.len() {
        0..=125 => [&[first, u8::try_from(payload.len()).unwrap()], payload].concat(),
        length => [&[first, 126][..], &u16::try_from(length).unwrap().to_be_bytes(), payload].concat(),
    }
}

fn passed(bytes: &[u8], size: usize) -> io::Result<Vec<u8>> {
    let finder = Arc::new(SecretFinder::new([("KEY", "s3cr3t-value")]).unwrap().unwrap());
    let mut frames = MaskFrames::new(finder);
    let mut out = Vec::new();
    for piece in bytes.chunks(size) {
        out.extend_from_slice(&frames.push(piece)?);
    }
    Ok(out)
}

#[test]
fn a_value_in_any_number_of_frames_is_masked_and_frames_keep_their_lengths() {
    let stars = b"************";
    let whole = [frame(0x81, b"a s3cr3t-value b"), frame(0x82, &[7; 300]), frame(0x81, b"yes")].concat();
    let expected =
        [frame(0x81, &[b"a ", &stars[..], b" b"].concat()), frame(0x82, &[7; 300]), frame(0x81, b"yes")]
            .concat();
    // One byte of it a frame, and a ping between them.
    let value = b"s3cr3t-value";
    let mut split = Vec::new();
    let mut starred = Vec::new();
    for (at, byte) in value.iter().enumerate() {
        let first = if at == 0 {
            0x01
        } else if at == value.len() - 1 {
            0x80
        } else {
            0x00
        };
        split.extend(frame(first, &[*byte]));
        starred.extend(frame(first, b"*"));
        if at == 5 {
            split.extend(frame(0x89, value));
            starred.extend(frame(0x89, stars));
        }
    }
    for size in [1, 2, 3, 5, 1000] {
        assert_eq!(passed(&whole, size).unwrap(), expected, "in pieces of {size}");
        assert_eq!(passed(&split, size).unwrap(), starred, "in pieces of {size}");
    }
    // A message is passed on when it ends, whatever it ends with.
    assert_eq!(passed(&frame(0x81, b"yes s3cr3t-val"), 100).unwrap(), frame(0x81, b"yes s3cr3t-val"));
    assert_eq!(passed(&frame(0x81, b""), 100).unwrap(), frame(0x81, b""));
}

#[test]
fn frames_that_cannot_be_searched_are_an_error() {
    for bytes in [&[0xc1, 1, 7][..], &[0x81, 0x81, 1, 2, 3, 4, 5], &[0x88, 126, 1, 0], &[0x08, 1, 7]] {
        assert!(passed(bytes, 100).is_err(), "{bytes:?}");
    }
}
