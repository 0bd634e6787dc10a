//! The bytes of a connection that a program opened, to and from the host.

use isle_wire::{Stream, TakeRequest, acknowledge};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::serve::Shared;

/// Bytes moved at once: few at first, since most connections never have more to move.
const FIRST_PORTION: usize = 8 * 1024;
const PORTION: usize = 64 * 1024;

/// Hands a connection to the host, until both sides have ended or the host has it reset.
pub(crate) async fn take(mut stream: Stream, agent: Shared, request: &TakeRequest) {
    let connection = request.connection;
    let Some(inside) = agent.network.state.borrow_mut().waiting.remove(&connection) else { return };
    // A program may connect and never say anything.
    if acknowledge(&mut stream).await.is_err() {
        reset(inside);
        return;
    }
    let moving = tokio::task::spawn_local(carry(Resetting(Some(inside)), stream));
    agent.network.state.borrow_mut().taken.insert(connection, moving.abort_handle());
    // However it ended.
    moving.await.ok();
    agent.network.state.borrow_mut().taken.remove(&connection);
}

/// A connection that is reset unless it came to a good end.
struct Resetting(Option<TcpStream>);

impl Drop for Resetting {
    fn drop(&mut self) {
        if let Some(stream) = self.0.take() {
            reset(stream);
        }
    }
}

/// Closes a connection so that the program hears that something was wrong.
pub(super) fn reset(stream: TcpStream) {
    stream.set_zero_linger().ok();
    drop(stream);
}

async fn carry(mut inside: Resetting, stream: Stream) {
    if let Some(socket) = &mut inside.0
        && both_ways(socket, stream).await.is_ok()
    {
        inside.0 = None;
    }
}

/// Moves bytes both ways until both sides have ended.
pub(super) async fn both_ways(socket: &mut TcpStream, stream: Stream) -> std::io::Result<()> {
    let (mut from_host, mut to_host) = tokio::io::split(stream);
    let (mut from_inside, mut to_inside) = socket.split();
    tokio::try_join!(pump(&mut from_inside, &mut to_host), pump(&mut from_host, &mut to_inside))?;
    Ok(())
}

async fn pump<R, W>(from: &mut R, to: &mut W) -> std::io::Result<()>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut buffer = vec![0; FIRST_PORTION];
    loop {
        let count = from.read(&mut buffer).await?;
        if count == 0 {
            return to.shutdown().await;
        }
        to.write_all(&buffer[..count]).await?;
        to.flush().await?;
        if count == buffer.len() && count < PORTION {
            buffer = vec![0; PORTION];
        }
    }
}
