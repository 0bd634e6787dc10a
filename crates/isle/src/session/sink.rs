//! Writes output. Small chunks are written directly; a write that could block goes to a thread, so that
//! signals are handled while a slow reader blocks the output.

use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};

use bytes::Bytes;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::task::JoinHandle;

/// Output stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Channel {
    Stdout,
    Stderr,
}

/// A writable descriptor accepts at least this much without blocking (PIPE_BUF).
const NON_BLOCKING_BYTES: usize = 4096;

/// Both streams, with at most one pending write.
#[derive(Debug, Default)]
pub(crate) struct Sink {
    busy: Option<JoinHandle<io::Result<()>>>,
}

impl Sink {
    pub(crate) fn is_busy(&self) -> bool {
        self.busy.is_some()
    }

    /// Writes, or starts a write in a thread.
    pub(crate) fn write(&mut self, channel: Channel, bytes: Bytes) -> io::Result<()> {
        if bytes.len() <= NON_BLOCKING_BYTES && is_ready(channel) {
            return write_all(channel, &bytes);
        }
        self.busy = Some(tokio::task::spawn_blocking(move || write_all(channel, &bytes)));
        Ok(())
    }

    /// Waits for the pending write.
    pub(crate) async fn finished(&mut self) -> io::Result<()> {
        let Some(task) = self.busy.as_mut() else { return Ok(()) };
        let written = task.await;
        self.busy = None;
        written.unwrap_or_else(|failed| Err(io::Error::other(failed)))
    }
}

fn is_ready(channel: Channel) -> bool {
    let stdout = io::stdout();
    let stderr = io::stderr();
    let descriptor: BorrowedFd<'_> = match channel {
        Channel::Stdout => stdout.as_fd(),
        Channel::Stderr => stderr.as_fd(),
    };
    let mut asked = [PollFd::new(&descriptor, PollFlags::OUT)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut asked, Some(&at_once)).is_ok_and(|ready| ready == 1)
}

/// Flushes the line buffer of the standard library, so that output is written as it was received.
fn write_all(channel: Channel, bytes: &[u8]) -> io::Result<()> {
    match channel {
        Channel::Stdout => {
            let mut stdout = io::stdout().lock();
            stdout.write_all(bytes)?;
            stdout.flush()
        }
        Channel::Stderr => io::stderr().lock().write_all(bytes),
    }
}
