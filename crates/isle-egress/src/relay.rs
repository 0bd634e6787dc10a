//! Moves bytes between a sandbox and the world, both ways at once, counting and pacing them.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::account::{Direction, Tally};
use crate::body::{Count, Follows, OneRequest};

/// Bytes moved at once: few at first, since most connections never have more to move.
const FIRST_PORTION: usize = 8 * 1024;
const PORTION: usize = 64 * 1024;
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

/// Moves bytes until both sides have ended; each side's end is told to the other by itself.
/// `first` goes out before anything else.
pub(crate) async fn relay<S>(
    inside: &mut S,
    mut outside: TcpStream,
    first: &[u8],
    follows: Follows,
    tally: &Tally,
    moved: &mut Moved,
) -> Result<(), Stopped>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    if !first.is_empty() {
        spend(tally, Direction::Sent, first.len(), &mut moved.sent).await?;
        outside.write_all(first).await?;
    }
    let count = match follows {
        Follows::Counted(count) => count,
        Follows::IfAgreed => {
            let answer = beginning(&mut outside).await?;
            spend(tally, Direction::Received, answer.len(), &mut moved.received).await?;
            inside.write_all(&answer).await?;
            inside.flush().await?;
            // Who does not agree has heard a request, and there is only one.
            if answer.starts_with(AGREED) { Count::Anything } else { Count::Left(0) }
        }
    };
    let (from_inside, mut to_inside) = tokio::io::split(inside);
    let mut from_inside = OneRequest { from: from_inside, count };
    let (mut from_outside, mut to_outside) = outside.split();
    let Moved { sent, received } = moved;
    tokio::try_join!(
        pump(&mut from_inside, &mut to_outside, tally, Direction::Sent, sent),
        pump(&mut from_outside, &mut to_inside, tally, Direction::Received, received),
    )?;
    Ok(())
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
    tally: &Tally,
    direction: Direction,
    moved: &mut u64,
) -> Result<(), Stopped>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let portion = tally.pace.as_ref().map_or(PORTION, |pace| pace.portion().min(PORTION));
    let mut buffer = vec![0; portion.min(FIRST_PORTION)];
    loop {
        let count = from.read(&mut buffer).await?;
        if count == 0 {
            to.shutdown().await?;
            return Ok(());
        }
        spend(tally, direction, count, moved).await?;
        to.write_all(&buffer[..count]).await?;
        to.flush().await?;
        if count == buffer.len() && count < portion {
            buffer = vec![0; portion];
        }
    }
}

async fn spend(tally: &Tally, direction: Direction, count: usize, moved: &mut u64) -> Result<(), Stopped> {
    if !tally.spend(direction, count as u64) {
        return Err(Stopped::Exhausted);
    }
    *moved += count as u64;
    if let Some(pace) = &tally.pace {
        pace.take(count).await;
    }
    Ok(())
}
