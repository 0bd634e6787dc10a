//! Relays bytes between a sandbox and a server in both directions, counting and rate limiting them.

pub(crate) mod sandbox_stream;
pub(crate) mod splice;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::accounting::grant_counters::{Direction, GrantCounters};
use crate::http::body_length::{RemainingBody, RequestRest, SingleRequestReader};
use crate::relay::sandbox_stream::SandboxStream;
use crate::relay::splice::Spliced;

/// Buffer sizes: small at first, since most connections never need more.
const FIRST_PORTION: usize = 8 * 1024;
pub(crate) const PORTION: usize = 64 * 1024;
/// Consecutive full buffers after which splice(2) is used.
const MUCH: u32 = 4;
/// The beginning of a response that switches protocols.
const AGREED: &[u8] = b"HTTP/1.1 101 ";

/// Why relaying stopped early.
#[derive(Debug)]
pub(crate) enum RelayError {
    /// The byte limit of the grant is used up.
    Exhausted,
    /// One side failed.
    Broken(io::Error),
}

impl From<io::Error> for RelayError {
    fn from(error: io::Error) -> Self {
        Self::Broken(error)
    }
}

/// Bytes relayed in each direction.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct BytesMoved {
    pub(crate) sent: u64,
    pub(crate) received: u64,
}

/// One direction of a connection, between two steps.
#[derive(Debug)]
pub(crate) struct HalfStream {
    pub(crate) direction: Direction,
    /// How much of the request may still be sent.
    pub(crate) count: RemainingBody,
    /// Bytes that were read and counted, but not yet written: from `start` to `end`.
    pub(crate) buffer: Vec<u8>,
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) moved: u64,
    /// End of stream was received and passed on.
    pub(crate) over: bool,
    /// The byte limit is reached: the buffer holds the last bytes that are sent.
    pub(crate) exhausted: bool,
    /// Consecutive full buffers.
    large: u32,
}

impl HalfStream {
    pub(crate) fn new(direction: Direction, count: RemainingBody, moved: u64) -> Self {
        let (over, exhausted) = (false, false);
        Self { direction, count, buffer: Vec::new(), start: 0, end: 0, moved, over, exhausted, large: 0 }
    }

    /// Counts bytes before they are sent; returns how many are allowed.
    pub(crate) fn claim(&mut self, counters: &GrantCounters, count: usize) -> usize {
        let claimed = counters.claim(self.direction, count);
        self.exhausted = claimed < count;
        self.moved += claimed as u64;
        claimed
    }
}

/// Both directions.
#[derive(Debug)]
pub(crate) struct HalfStreams {
    pub(crate) sent: HalfStream,
    pub(crate) received: HalfStream,
}

impl HalfStreams {
    fn moved(&self) -> BytesMoved {
        BytesMoved { sent: self.sent.moved, received: self.received.moved }
    }
}

/// Relays bytes until both sides have ended; each end of stream is passed on separately. `first` is sent
/// before anything else.
pub(crate) async fn relay(
    inside: &mut SandboxStream,
    mut outside: TcpStream,
    first: &[u8],
    follows: RequestRest,
    counters: &Arc<GrantCounters>,
    moved: &mut BytesMoved,
) -> Result<(), RelayError> {
    if !first.is_empty() {
        pass(first, &mut outside, counters, Direction::Sent, &mut moved.sent).await?;
    }
    let count = match follows {
        RequestRest::Counted(count) => count,
        RequestRest::IfAgreed => {
            let answer = beginning(&mut outside).await?;
            pass(&answer, inside, counters, Direction::Received, &mut moved.received).await?;
            // Otherwise it was a request, and only one is allowed.
            if answer.starts_with(AGREED) { RemainingBody::Anything } else { RemainingBody::Left(0) }
        }
    };
    let mut ways = HalfStreams {
        sent: HalfStream::new(Direction::Sent, count, moved.sent),
        received: HalfStream::new(Direction::Received, RemainingBody::Anything, moved.received),
    };
    let ended = move_all(inside, outside, &mut ways, counters).await;
    *moved = ways.moved();
    ended
}

/// Copies, and splices while there is much to copy.
async fn move_all(
    inside: &mut SandboxStream,
    mut outside: TcpStream,
    ways: &mut HalfStreams,
    counters: &Arc<GrantCounters>,
) -> Result<(), RelayError> {
    loop {
        let copied = copy(inside, &mut outside, ways, counters).await;
        if let Err(RelayError::Broken(_)) = &copied {
            // A reset is passed on as a reset.
            sockopt::set_socket_linger(&outside, Some(Duration::ZERO)).ok();
        }
        match copied? {
            CopyEnd::All => return Ok(()),
            CopyEnd::Much => match splice::splice_bulk(inside, outside, ways, counters).await? {
                Spliced::All => return Ok(()),
                Spliced::Some(back) => outside = back,
            },
        }
    }
}

/// Why copying ended.
enum CopyEnd {
    /// Both sides have ended.
    All,
    /// There is so much data that splice(2) is worth it.
    Much,
}

async fn copy(
    inside: &SandboxStream,
    outside: &mut TcpStream,
    ways: &mut HalfStreams,
    counters: &GrantCounters,
) -> Result<CopyEnd, RelayError> {
    let (mut from_outside, mut to_outside) = outside.split();
    let (mut from_inside, mut to_inside) = (inside, inside);
    let sent = pump(&mut from_inside, &mut to_outside, &mut ways.sent, counters);
    let received = pump(&mut from_outside, &mut to_inside, &mut ways.received, counters);
    tokio::pin!(sent, received);
    let mut over = (false, false);
    // What one direction has read and not written when the other stops is kept in its buffer.
    while over != (true, true) {
        let copied = tokio::select! {
            copied = &mut sent, if !over.0 => { over.0 = true; copied? }
            copied = &mut received, if !over.1 => { over.1 = true; copied? }
        };
        if let CopyEnd::Much = copied {
            return Ok(CopyEnd::Much);
        }
    }
    Ok(CopyEnd::All)
}

/// The first bytes of an answer, as many as say what it is.
async fn beginning(outside: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut heard = Vec::with_capacity(FIRST_PORTION);
    while heard.len() < AGREED.len() && outside.read_buf(&mut heard).await? > 0 {}
    Ok(heard)
}

async fn pump<R, W>(
    from: &mut R,
    to: &mut W,
    way: &mut HalfStream,
    counters: &GrantCounters,
) -> Result<CopyEnd, RelayError>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let portion =
        counters.rate_limit.as_ref().map_or(PORTION, |rate_limit| rate_limit.portion().min(PORTION));
    while !way.over {
        while way.start < way.end {
            match to.write(&way.buffer[way.start..way.end]).await? {
                0 => return Err(io::Error::from(io::ErrorKind::WriteZero).into()),
                count => way.start += count,
            }
        }
        if way.exhausted {
            return Err(RelayError::Exhausted);
        }
        if way.large >= MUCH && counters.rate_limit.is_none() {
            way.large = 0;
            return Ok(CopyEnd::Much);
        }
        if way.buffer.is_empty() || way.buffer.len() > portion {
            way.buffer = vec![0; portion.min(FIRST_PORTION)];
        } else if way.end == way.buffer.len() && way.end < portion {
            way.buffer = vec![0; portion];
        }
        let count =
            SingleRequestReader { from: &mut *from, count: &mut way.count }.read(&mut way.buffer).await?;
        if count == 0 {
            to.shutdown().await?;
            way.over = true;
            break;
        }
        way.large = if count >= PORTION / 2 { way.large + 1 } else { 0 };
        (way.start, way.end) = (0, way.claim(counters, count));
        if let Some(rate_limit) = &counters.rate_limit {
            rate_limit.take(count).await;
        }
    }
    Ok(CopyEnd::All)
}

/// Passes on bytes that were read elsewhere, up to the byte limit of the grant.
async fn pass(
    bytes: &[u8],
    to: &mut (impl AsyncWrite + Unpin),
    counters: &GrantCounters,
    direction: Direction,
    moved: &mut u64,
) -> Result<(), RelayError> {
    let claimed = counters.claim(direction, bytes.len());
    *moved += claimed as u64;
    if let Some(rate_limit) = &counters.rate_limit {
        rate_limit.take(claimed).await;
    }
    to.write_all(&bytes[..claimed]).await?;
    if claimed < bytes.len() { Err(RelayError::Exhausted) } else { Ok(()) }
}
