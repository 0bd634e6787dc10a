use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};

use super::*;

fn decoded(encoding: &str, bytes: &[u8], size: usize) -> io::Result<Vec<u8>> {
    let mut decoder = Decoder::for_encodings(encoding).unwrap();
    let mut out = Vec::new();
    for piece in bytes.chunks(size) {
        let mut input = Bytes::copy_from_slice(piece);
        while !input.is_empty() {
            out.extend_from_slice(&decoder.step(&mut input)?);
        }
    }
    out.extend_from_slice(&decoder.finish()?);
    Ok(out)
}

/// A stream of brotli that stores what it says.
fn brotli(text: &[u8]) -> Vec<u8> {
    let head = u32::try_from(text.len() - 1).unwrap() << 4 | 1 << 20;
    [&head.to_le_bytes()[..3], text, &[3]].concat()
}

#[test]
fn every_encoding_is_decoded_in_pieces_of_any_size() {
    let text = b"hello hello hello ".repeat(500);
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(&text).unwrap();
    let mut zlib = ZlibEncoder::new(Vec::new(), Compression::default());
    zlib.write_all(&text).unwrap();
    let mut raw = DeflateEncoder::new(Vec::new(), Compression::default());
    raw.write_all(&text).unwrap();
    let zstd = ruzstd::encoding::compress_to_vec(&text[..], ruzstd::encoding::CompressionLevel::Fastest);
    let gzip = gzip.finish().unwrap();
    let (zlib, raw) = (zlib.finish().unwrap(), raw.finish().unwrap());
    for (encoding, bytes) in [
        ("gzip", &gzip),
        ("X-GZIP, identity", &gzip),
        ("deflate", &zlib),
        ("deflate", &raw),
        ("zstd", &zstd),
        ("br", &brotli(&text)),
        ("identity", &text),
        ("", &text),
    ] {
        for size in [1, 2, 7, 300, 100_000] {
            assert_eq!(decoded(encoding, bytes, size).unwrap(), text, "{encoding} in pieces of {size}");
        }
        if Decoder::for_encodings(encoding).is_some_and(|decoder| !decoder.is_identity()) {
            // Where a deflated body ends is known by its frame alone.
            let cut = decoded(encoding, &bytes[..bytes.len() - 9], 100);
            assert!(cut.is_err() || encoding == "deflate", "{encoding} cut");
            assert_eq!(decoded(encoding, b"", 1).unwrap(), b"", "{encoding} of nothing");
        }
    }
    // Two in a row, and frames that say nothing.
    assert_eq!(decoded("gzip", &gzip.repeat(2), 50).unwrap(), text.repeat(2));
    let skipped = [&[0x50, 0x2a, 0x4d, 0x18, 20, 0, 0, 0][..], &[7; 20], &zstd, &zstd].concat();
    assert_eq!(decoded("zstd", &skipped, 3).unwrap(), text.repeat(2));
}

#[test]
fn unsupported_encodings_are_known_in_advance() {
    for encoding in ["compress", "gzip, br", "br,gzip", "exi", "aes128gcm", "dcb", "gzip gzip", "gzip;q=1"] {
        assert!(Decoder::for_encodings(encoding).is_none(), "{encoding}");
    }
    for encoding in ["gzip", "deflate", "br", "zstd"] {
        assert!(decoded(encoding, &[0x9f; 4000], 100).is_err(), "{encoding}");
    }
}

#[test]
fn a_decompression_bomb_is_an_error_and_never_in_memory() {
    let zeros = vec![0; 1 << 20];
    let mut bomb = GzEncoder::new(Vec::new(), Compression::best());
    for _ in 0..64 {
        bomb.write_all(&zeros).unwrap();
    }
    let mut input = Bytes::from(bomb.finish().unwrap());
    let mut decoder = Decoder::for_encodings("gzip").unwrap();
    let ended = loop {
        match decoder.step(&mut input) {
            Ok(out) => assert!(out.len() < 2 << 20, "{}", out.len()),
            Err(error) => break error,
        }
        assert!(!input.is_empty(), "all of it came out");
    };
    assert!(ended.to_string().contains("more than 250"), "{ended}");
    // Blocks that repeat one byte, and a window as large as it gets.
    let head = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x58];
    let block = [&((1u32 << 1 | (1 << 17) << 3).to_le_bytes()[..3]), &[0]].concat();
    let stream = [&head[..], &block.repeat(4000)].concat();
    assert!(decoded("zstd", &stream, 1000).is_err());
    let wide = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xa8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    assert!(decoded("zstd", &wide, 100).is_err());
}
