//! Moves bytes between a sandbox and the world, both ways at once, counting and pacing them.

use std::io;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::account::{Direction, Tally};
use crate::body::{Count, Follows, OneRequest};
use crate::bulk::{self, Carried};
use crate::inside::Inside;

/// Bytes moved at once: few at first, since most connections never have more to move.
const FIRST_PORTION: usize = 8 * 1024;
pub(crate) const PORTION: usize = 64 * 1024;
/// Large portions one after the other that make a connection one of bulk data.
const MUCH: u32 = 4;
/// How the answer of a server begins that agrees to another protocol.
const AGREED: &[u8] = b"HTTP/1.1 101 ";

/// Why moving stopped before its end.
#[derive(Debug)]
pub(crate) enum Stopped {
    /// The grant has no bytes left.
    Exhausted,
    /// One side went away.
    Broken(io::Error),
}

impl From<io::Error> for Stopped {
    fn from(error: io::Error) -> Self {
        Self::Broken(error)
    }
}

/// How much went each way.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Moved {
    pub(crate) sent: u64,
    pub(crate) received: u64,
}

/// One of the two ways, between its steps.
#[derive(Debug)]
pub(crate) struct Way {
    pub(crate) direction: Direction,
    /// What may still go.
    pub(crate) count: Count,
    /// Read, counted, and not yet written: from `start` to `end`.
    pub(crate) buffer: Vec<u8>,
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) moved: u64,
    /// Its end was heard and told.
    pub(crate) over: bool,
    /// More was read than the grant has bytes for: what is in the buffer is the last that goes.
    pub(crate) exhausted: bool,
    /// Large portions one after the other.
    large: u32,
}

impl Way {
    pub(crate) fn new(direction: Direction, count: Count, moved: u64) -> Self {
        let (over, exhausted) = (false, false);
        Self { direction, count, buffer: Vec::new(), start: 0, end: 0, moved, over, exhausted, large: 0 }
    }

    /// Counts bytes before they go; gives how many of them may.
    pub(crate) fn claim(&mut self, tally: &Tally, count: usize) -> usize {
        let claimed = tally.claim(self.direction, count);
        self.exhausted = claimed < count;
        self.moved += claimed as u64;
        claimed
    }
}

/// Both ways.
#[derive(Debug)]
pub(crate) struct Ways {
    pub(crate) sent: Way,
    pub(crate) received: Way,
}

impl Ways {
    fn moved(&self) -> Moved {
        Moved { sent: self.sent.moved, received: self.received.moved }
    }
}

/// Moves bytes until both sides have ended; each side's end is told to the other by itself.
/// `first` goes out before anything else.
pub(crate) async fn relay(
    inside: &mut Inside,
    mut outside: TcpStream,
    first: &[u8],
    follows: Follows,
    tally: &Arc<Tally>,
    moved: &mut Moved,
) -> Result<(), Stopped> {
    if !first.is_empty() {
        pass(first, &mut outside, tally, Direction::Sent, &mut moved.sent).await?;
    }
    let count = match follows {
        Follows::Counted(count) => count,
        Follows::IfAgreed => {
            let answer = beginning(&mut outside).await?;
            pass(&answer, inside, tally, Direction::Received, &mut moved.received).await?;
            // Who does not agree has heard a request, and there is only one.
            if answer.starts_with(AGREED) { Count::Anything } else { Count::Left(0) }
        }
    };
    let mut ways = Ways {
        sent: Way::new(Direction::Sent, count, moved.sent),
        received: Way::new(Direction::Received, Count::Anything, moved.received),
    };
    let ended = move_all(inside, outside, &mut ways, tally).await;
    *moved = ways.moved();
    ended
}

/// Moves what there is, as fits its amount.
async fn move_all(
    inside: &mut Inside,
    mut outside: TcpStream,
    ways: &mut Ways,
    tally: &Arc<Tally>,
) -> Result<(), Stopped> {
    loop {
        match copy(inside, &mut outside, ways, tally).await? {
            Copied::All => return Ok(()),
            Copied::Much => match bulk::carry(inside, outside, ways, tally).await? {
                Carried::All => return Ok(()),
                Carried::Some(back) => outside = back,
            },
        }
    }
}

/// Why copying has come to an end.
enum Copied {
    /// Both sides have ended.
    All,
    /// There is so much that it is worth another way.
    Much,
}

async fn copy(
    inside: &Inside,
    outside: &mut TcpStream,
    ways: &mut Ways,
    tally: &Tally,
) -> Result<Copied, Stopped> {
    let (mut from_outside, mut to_outside) = outside.split();
    let (mut from_inside, mut to_inside) = (inside, inside);
    let sent = pump(&mut from_inside, &mut to_outside, &mut ways.sent, tally);
    let received = pump(&mut from_outside, &mut to_inside, &mut ways.received, tally);
    tokio::pin!(sent, received);
    let mut over = (false, false);
    // What one has read and not written when the other stops both is kept in its way.
    while over != (true, true) {
        let copied = tokio::select! {
            copied = &mut sent, if !over.0 => { over.0 = true; copied? }
            copied = &mut received, if !over.1 => { over.1 = true; copied? }
        };
        if let Copied::Much = copied {
            return Ok(Copied::Much);
        }
    }
    Ok(Copied::All)
}

/// The first bytes of an answer, as many as say what it is.
async fn beginning(outside: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut heard = Vec::with_capacity(FIRST_PORTION);
    while heard.len() < AGREED.len() && outside.read_buf(&mut heard).await? > 0 {}
    Ok(heard)
}

async fn pump<R, W>(from: &mut R, to: &mut W, way: &mut Way, tally: &Tally) -> Result<Copied, Stopped>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let portion = tally.pace.as_ref().map_or(PORTION, |pace| pace.portion().min(PORTION));
    while !way.over {
        while way.start < way.end {
            match to.write(&way.buffer[way.start..way.end]).await? {
                0 => return Err(io::Error::from(io::ErrorKind::WriteZero).into()),
                count => way.start += count,
            }
        }
        if way.exhausted {
            return Err(Stopped::Exhausted);
        }
        if way.large >= MUCH && tally.pace.is_none() {
            way.large = 0;
            return Ok(Copied::Much);
        }
        if way.buffer.is_empty() || way.buffer.len() > portion {
            way.buffer = vec![0; portion.min(FIRST_PORTION)];
        } else if way.end == way.buffer.len() && way.end < portion {
            way.buffer = vec![0; portion];
        }
        let count = OneRequest { from: &mut *from, count: &mut way.count }.read(&mut way.buffer).await?;
        if count == 0 {
            to.shutdown().await?;
            way.over = true;
            break;
        }
        way.large = if count >= PORTION / 2 { way.large + 1 } else { 0 };
        (way.start, way.end) = (0, way.claim(tally, count));
        if let Some(pace) = &tally.pace {
            pace.take(count).await;
        }
    }
    Ok(Copied::All)
}

/// Passes on what was read by somebody else, as far as the grant has bytes for it.
async fn pass(
    bytes: &[u8],
    to: &mut (impl AsyncWrite + Unpin),
    tally: &Tally,
    direction: Direction,
    moved: &mut u64,
) -> Result<(), Stopped> {
    let claimed = tally.claim(direction, bytes.len());
    *moved += claimed as u64;
    if let Some(pace) = &tally.pace {
        pace.take(claimed).await;
    }
    to.write_all(&bytes[..claimed]).await?;
    if claimed < bytes.len() { Err(Stopped::Exhausted) } else { Ok(()) }
}
