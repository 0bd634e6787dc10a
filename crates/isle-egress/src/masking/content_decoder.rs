//! Decoding of response bodies (gzip, deflate, brotli, zstd), so that they can be searched. Input is decoded
//! in small steps, so that the output of each is bounded, whatever a server sends.

use std::fmt;
use std::io::{self, Write as _};

use brotli_decompressor::{BrotliDecompressStream, BrotliResult, BrotliState, StandardAlloc};
use bytes::{Buf as _, Bytes};
use flate2::write::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// What a program may accept where responses are searched. `zstd` is decoded as well, but delays output by
/// its window size, so that nothing would stream.
pub(crate) const ACCEPTED: [&str; 3] = ["gzip", "deflate", "br"];

/// Input of one step: even at a compression ratio of 1000 the output fits in memory.
const STEP: usize = 256;
/// Output of one step, if it can be chosen.
const OUTPUT: usize = 32 * 1024;
/// The largest zstd window that every decoder has to support.
const ZSTD_WINDOW: u64 = 8 << 20;
/// The maximum length of a zstd frame header.
const ZSTD_HEAD: usize = 18;
/// Maximum compression ratio, checked once the output exceeds a size.
const MOST_RATIO: u64 = 250;
const UNRATED: u64 = 32 << 20;

/// Decodes one encoding.
pub(crate) struct Decoder {
    kind: Kind,
    taken: u64,
    given: u64,
}

enum Kind {
    Identity,
    Gzip(Box<MultiGzDecoder<Vec<u8>>>),
    /// Before it is known whether there is a zlib header.
    Deflate(Vec<u8>),
    Zlib(Box<ZlibDecoder<Vec<u8>>>),
    Raw(Box<DeflateDecoder<Vec<u8>>>),
    Brotli(Box<Brotli>),
    Zstd(Box<Zstd>),
}

impl fmt::Debug for Decoder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Decoder")
            .field("taken", &self.taken)
            .field("given", &self.given)
            .finish_non_exhaustive()
    }
}

fn broken(what: impl fmt::Display) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("the content encoding of the body is not valid: {what}"),
    )
}

impl Decoder {
    /// For the value of `Content-Encoding`; `None` when it cannot be decoded.
    pub(crate) fn for_encodings(list: &str) -> Option<Self> {
        let lower = list.to_ascii_lowercase();
        let mut words =
            lower.split(',').map(str::trim).filter(|word| !word.is_empty() && *word != "identity");
        let kind = match (words.next(), words.next()) {
            (None, _) => Kind::Identity,
            (Some("gzip" | "x-gzip"), None) => Kind::Gzip(Box::new(MultiGzDecoder::new(Vec::new()))),
            (Some("deflate"), None) => Kind::Deflate(Vec::new()),
            (Some("br"), None) => Kind::Brotli(Box::default()),
            (Some("zstd"), None) => Kind::Zstd(Box::default()),
            _ => return None,
        };
        Some(Self { kind, taken: 0, given: 0 })
    }

    /// Leaves bodies unchanged.
    pub(crate) fn identity() -> Self {
        Self { kind: Kind::Identity, taken: 0, given: 0 }
    }

    /// Whether there is no more output when the input has ended.
    pub(crate) fn is_settled(&self) -> bool {
        self.is_identity() || self.taken == 0
    }

    /// Whether bodies are unchanged.
    pub(crate) fn is_identity(&self) -> bool {
        matches!(self.kind, Kind::Identity)
    }

    /// Decodes some of the input and returns the output, which may be empty while there is more input.
    pub(crate) fn step(&mut self, input: &mut Bytes) -> io::Result<Bytes> {
        if self.is_identity() {
            return Ok(std::mem::take(input));
        }
        let piece = input.split_to(input.len().min(STEP));
        self.taken += piece.len() as u64;
        let out = self.take(&piece)?;
        self.given += out.len() as u64;
        if self.given > UNRATED && self.given / MOST_RATIO > self.taken {
            return Err(broken("the compression ratio is more than 250"));
        }
        Ok(out.into())
    }

    /// The input has ended: returns the rest of the output.
    pub(crate) fn finish(&mut self) -> io::Result<Bytes> {
        match &mut self.kind {
            Kind::Identity => Ok(Bytes::new()),
            // A response without a body has no encoding either.
            _ if self.taken == 0 => Ok(Bytes::new()),
            Kind::Gzip(decoder) => {
                decoder.try_finish()?;
                Ok(std::mem::take(decoder.get_mut()).into())
            }
            Kind::Deflate(_) => Err(broken("too short")),
            Kind::Zlib(decoder) => {
                decoder.try_finish()?;
                Ok(std::mem::take(decoder.get_mut()).into())
            }
            Kind::Raw(decoder) => {
                decoder.try_finish()?;
                Ok(std::mem::take(decoder.get_mut()).into())
            }
            Kind::Brotli(decoder) => decoder.finish().map(|()| Bytes::new()),
            Kind::Zstd(decoder) => decoder.take(&[], true).map(Bytes::from),
        }
    }

    fn take(&mut self, piece: &[u8]) -> io::Result<Vec<u8>> {
        match &mut self.kind {
            Kind::Identity => Ok(piece.to_vec()),
            Kind::Gzip(decoder) => {
                decoder.write_all(piece)?;
                decoder.flush()?;
                Ok(std::mem::take(decoder.get_mut()))
            }
            Kind::Deflate(head) => {
                head.extend_from_slice(piece);
                let &[first, second, ..] = &head[..] else { return Ok(Vec::new()) };
                let head = std::mem::take(head);
                // Some servers omit the zlib header.
                let is_zlib = first & 15 == 8 && (u16::from(first) << 8 | u16::from(second)) % 31 == 0;
                self.kind = if is_zlib {
                    Kind::Zlib(Box::new(ZlibDecoder::new(Vec::new())))
                } else {
                    Kind::Raw(Box::new(DeflateDecoder::new(Vec::new())))
                };
                self.take(&head)
            }
            Kind::Zlib(decoder) => {
                decoder.write_all(piece)?;
                decoder.flush()?;
                Ok(std::mem::take(decoder.get_mut()))
            }
            Kind::Raw(decoder) => {
                decoder.write_all(piece)?;
                decoder.flush()?;
                Ok(std::mem::take(decoder.get_mut()))
            }
            Kind::Brotli(decoder) => decoder.take(piece),
            Kind::Zstd(decoder) => decoder.take(piece, false),
        }
    }
}

type BrotliHeap = BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>;

struct Brotli {
    state: BrotliHeap,
    total: usize,
    over: bool,
}

impl Default for Brotli {
    fn default() -> Self {
        let heap = StandardAlloc::default();
        Self { state: BrotliState::new_strict(heap, heap, heap), total: 0, over: false }
    }
}

impl Brotli {
    /// Maximum output of one step.
    const MOST: usize = 4 << 20;

    fn take(&mut self, piece: &[u8]) -> io::Result<Vec<u8>> {
        let (mut left, mut at) = (piece.len(), 0);
        let mut out = Vec::new();
        while !self.over {
            let mut part = vec![0; OUTPUT];
            let (mut room, mut filled) = (part.len(), 0);
            let result = BrotliDecompressStream(
                &mut left,
                &mut at,
                piece,
                &mut room,
                &mut filled,
                &mut part,
                &mut self.total,
                &mut self.state,
            );
            out.extend_from_slice(&part[..filled]);
            match result {
                BrotliResult::ResultSuccess => self.over = true,
                BrotliResult::NeedsMoreInput => return Ok(out),
                BrotliResult::NeedsMoreOutput if out.len() < Self::MOST => {}
                BrotliResult::NeedsMoreOutput => {
                    return Err(broken("the compression ratio is too high"));
                }
                BrotliResult::ResultFailure => return Err(broken("brotli")),
            }
        }
        if left == 0 { Ok(out) } else { Err(broken("data after the end")) }
    }

    fn finish(&self) -> io::Result<()> {
        if self.over { Ok(()) } else { Err(broken("truncated")) }
    }
}

/// What comes next in a zstd stream.
enum Next {
    Frame,
    Block,
    Skipped(usize),
}

struct Zstd {
    decoder: FrameDecoder,
    input: Vec<u8>,
    next: Next,
}

impl Default for Zstd {
    fn default() -> Self {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(ZSTD_WINDOW);
        Self { decoder, input: Vec::new(), next: Next::Frame }
    }
}

impl Zstd {
    fn take(&mut self, piece: &[u8], last: bool) -> io::Result<Vec<u8>> {
        self.input.extend_from_slice(piece);
        let mut out = Vec::new();
        let mut input = std::mem::take(&mut self.input);
        let mut rest = &input[..];
        while self.advance(&mut rest, last, &mut out)? {}
        let left = rest.len();
        input.drain(..input.len() - left);
        self.input = input;
        if last && !(self.input.is_empty() && matches!(self.next, Next::Frame)) {
            return Err(broken("truncated"));
        }
        Ok(out)
    }

    /// Decodes one part; returns whether it was complete.
    fn advance(&mut self, rest: &mut &[u8], last: bool, out: &mut Vec<u8>) -> io::Result<bool> {
        match self.next {
            Next::Frame => {
                if rest.is_empty() || (rest.len() < ZSTD_HEAD && !last) {
                    return Ok(false);
                }
                self.next = match self.decoder.reset(&mut *rest) {
                    Ok(()) => Next::Block,
                    Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                        length,
                        ..
                    })) => Next::Skipped(usize::try_from(length).map_err(broken)?),
                    Err(error) => return Err(broken(error)),
                };
            }
            Next::Skipped(left) => {
                let count = left.min(rest.len());
                rest.advance(count);
                self.next = if left == count { Next::Frame } else { Next::Skipped(left - count) };
                return Ok(left == count);
            }
            Next::Block => {
                let &[low, middle, high, ..] = *rest else { return Ok(false) };
                let head = u32::from(low) | u32::from(middle) << 8 | u32::from(high) << 16;
                let (is_last, is_repeated, size) = (head & 1 == 1, head >> 1 & 3 == 1, (head >> 3) as usize);
                // The last block may be followed by a checksum.
                let whole = 3 + if is_repeated { 1 } else { size } + if is_last && !last { 4 } else { 0 };
                if rest.len() < whole {
                    return Ok(false);
                }
                let strategy = BlockDecodingStrategy::UptoBlocks(1);
                let ended = self.decoder.decode_blocks(&mut *rest, strategy).map_err(broken)?;
                self.decoder.collect_to_writer(&mut *out)?;
                if ended {
                    let sums =
                        (self.decoder.get_checksum_from_data(), self.decoder.get_calculated_checksum());
                    if let (Some(said), Some(found)) = sums
                        && said != found
                    {
                        return Err(broken("wrong checksum"));
                    }
                    self.next = Next::Frame;
                }
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
#[path = "content_decoder_tests.rs"]
mod tests;
