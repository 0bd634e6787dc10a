//! Where output goes. Small pieces are written at once; a piece that could block goes to a thread,
//! so that signals are still answered while a slow reader makes us wait.

use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};

use bytes::Bytes;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::task::JoinHandle;

/// Which output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Channel {
    Stdout,
    Stderr,
}

/// A writable descriptor takes at least this much without blocking.
const AT_ONCE: usize = 4096;

/// Both outputs, at most one write going on.
#[derive(Debug, Default)]
pub(crate) struct Sink {
    busy: Option<JoinHandle<io::Result<()>>>,
}

impl Sink {
    pub(crate) fn is_busy(&self) -> bool {
        self.busy.is_some()
    }

    /// Writes, or begins to write.
    pub(crate) fn write(&mut self, channel: Channel, bytes: Bytes) -> io::Result<()> {
        if bytes.len() <= AT_ONCE && is_ready(channel) {
            return write_all(channel, &bytes);
        }
        self.busy = Some(tokio::task::spawn_blocking(move || write_all(channel, &bytes)));
        Ok(())
    }

    /// Waits for the write that goes on.
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

/// Past the line buffer of the standard library: what the command wrote is written as it came.
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
