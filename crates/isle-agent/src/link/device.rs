//! A character device as the link, such as a virtio-serial port (`/dev/virtio-ports/…`). It has no
//! connections of its own and no half-close: while no host has the other end open, reads return the end of
//! file and writes would block. Closing it after each connection makes the kernel drop what was not read.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use isle_wire::FdStream;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};

use super::Connection;
use crate::serve::{self, Shared};

/// How often it is checked whether a host has the other end open. The kernel does not notify of that: a
/// device without a host is always ready.
const RETRY: Duration = Duration::from_millis(100);

/// Serves one connection after another for as long as the agent runs.
pub(super) async fn serve(path: &Path, agent: Shared) {
    loop {
        if let Ok(device) = open(path)
            && has_host(&device)
            && let Ok(stream) = FdStream::device(device)
        {
            serve::connection(Connection::without_descriptors(stream), agent.clone()).await;
        }
        tokio::time::sleep(RETRY).await;
    }
}

fn open(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let device = rustix::fs::open(path, flags, Mode::empty())?;
    // A terminal device changes bytes unless it is in raw mode; other devices have no such attributes.
    if let Ok(mut attributes) = tcgetattr(&device) {
        attributes.make_raw();
        tcsetattr(&device, OptionalActions::Now, &attributes)?;
    }
    Ok(device)
}

/// Whether a host has the other end open.
fn has_host(device: &OwnedFd) -> bool {
    let mut descriptors = [PollFd::new(device, PollFlags::OUT)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    let gone = PollFlags::HUP | PollFlags::ERR;
    poll(&mut descriptors, Some(&at_once)).is_ok()
        && descriptors[0].revents().contains(PollFlags::OUT)
        && !descriptors[0].revents().intersects(gone)
}
