//! Reading the output of a program: two pipes, or a terminal.

use std::os::fd::OwnedFd;
use std::rc::Rc;

use bytes::{Bytes, BytesMut};
use tokio::io::unix::AsyncFd;

use super::CHUNK;
use crate::output::Channel;

/// The agent's ends of a program's output; each is dropped at its end.
pub(crate) enum Output {
    Pipes { stdout: Option<AsyncFd<OwnedFd>>, stderr: Option<AsyncFd<OwnedFd>> },
    Terminal(Option<Rc<AsyncFd<OwnedFd>>>),
}

/// Reads what is available; empty at the end, which a terminal without programs reports as an error.
async fn read_some(source: &AsyncFd<OwnedFd>) -> Bytes {
    loop {
        let Ok(mut ready) = source.readable().await else { return Bytes::new() };
        let mut buffer = BytesMut::zeroed(CHUNK);
        match ready.try_io(|inner| rustix::io::read(inner.get_ref(), &mut buffer[..]).map_err(Into::into)) {
            Ok(Ok(count)) => {
                // Copied to its size: a chunk may be kept for a long time and is usually small.
                return Bytes::copy_from_slice(&buffer[..count]);
            }
            Ok(Err(_)) => return Bytes::new(),
            Err(_would_block) => {}
        }
    }
}

impl Output {
    pub(crate) fn is_open(&self) -> bool {
        match self {
            Self::Pipes { stdout, stderr } => stdout.is_some() || stderr.is_some(),
            Self::Terminal(master) => master.is_some(),
        }
    }

    /// The next bytes of either output; closes one that is at its end.
    pub(crate) async fn read(&mut self) -> Option<(Channel, Bytes)> {
        match self {
            Self::Pipes { stdout, stderr } => {
                let (channel, bytes) = tokio::select! {
                    bytes = read_open(stdout.as_ref()), if stdout.is_some() => (Channel::Stdout, bytes),
                    bytes = read_open(stderr.as_ref()), if stderr.is_some() => (Channel::Stderr, bytes),
                };
                if !bytes.is_empty() {
                    return Some((channel, bytes));
                }
                match channel {
                    Channel::Stdout => *stdout = None,
                    Channel::Stderr => *stderr = None,
                }
                None
            }
            Self::Terminal(master) => {
                let bytes = read_open(master.as_deref()).await;
                if bytes.is_empty() {
                    *master = None;
                    return None;
                }
                Some((Channel::Stdout, bytes))
            }
        }
    }
}

async fn read_open(source: Option<&AsyncFd<OwnedFd>>) -> Bytes {
    match source {
        Some(source) => read_some(source).await,
        None => Bytes::new(),
    }
}
