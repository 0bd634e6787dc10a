//! Work that may block, done in a helper process. The agent has one thread, and a guest could block all of
//! it: the last close of a TCP socket waits for as long as `SO_LINGER` says, connecting a socket that the
//! guest shares blocks when the guest makes it blocking, removing a tree takes as long as it is large. A
//! process that exits never lingers, so its descriptors are closed at once.

use std::cell::RefCell;
use std::collections::HashSet;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

use isle_setup::sys::{Cloned, clone_process};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Signal, pidfd_send_signal};
use tokio::io::unix::AsyncFd;

use crate::async_fd::register;
use crate::close_fds::close_all_but;

/// Maximum number of descriptors that wait for a helper to close them; no more are accepted.
const MAX_WAITING: usize = 512;

thread_local! {
    // The agent has one thread.
    static WAITING: RefCell<Vec<OwnedFd>> = const { RefCell::new(Vec::new()) };
    static HELPERS: RefCell<HashSet<i32>> = RefCell::default();
}

/// A child of the agent was reaped.
pub(crate) fn exited(pid: i32) {
    HELPERS.with_borrow_mut(|helpers| helpers.remove(&pid));
}

/// Whether a child of the agent is a helper: it belongs to no run and is not killed.
pub(crate) fn is_helper(pid: i32) -> bool {
    HELPERS.with_borrow(|helpers| helpers.contains(&pid))
}

/// Whether descriptors of a guest may be accepted: not while too many wait to be closed.
pub(crate) fn has_room() -> bool {
    WAITING.with_borrow(|waiting| waiting.len() < MAX_WAITING)
}

/// Closes descriptors that a guest may share, without blocking.
pub(crate) fn close(descriptors: impl IntoIterator<Item = OwnedFd>) {
    let mut all = WAITING.take();
    all.extend(descriptors);
    if all.is_empty() {
        return;
    }
    // Without a helper they wait for the next call.
    if let Err(kept) = close_now(all) {
        WAITING.set(kept);
    }
}

fn close_now(all: Vec<OwnedFd>) -> Result<(), Vec<OwnedFd>> {
    let Ok((go, hold)) = pipe_with(PipeFlags::CLOEXEC) else { return Err(all) };
    let kept: Vec<RawFd> = all.iter().map(AsRawFd::as_raw_fd).chain([go.as_raw_fd()]).collect();
    // SAFETY: this process has one thread.
    match unsafe { clone_process(0, None) } {
        Ok(Cloned::Child) => {
            close_all_but(kept);
            // Until the agent has closed its copies: then these are the last.
            rustix::io::read(&go, &mut [0; 1]).ok();
            exit(0)
        }
        Ok(Cloned::Parent { pid, .. }) => {
            HELPERS.with_borrow_mut(|helpers| helpers.insert(pid));
            drop(all);
            drop(hold);
            Ok(())
        }
        Err(_) => Err(all),
    }
}

/// Does `work` in a helper that has no descriptors open except the first three and `keep`, and returns its
/// result. A helper that takes longer than `within` is killed.
pub(crate) async fn run(
    keep: &[RawFd],
    within: Option<Duration>,
    work: impl FnOnce() -> io::Result<i64>,
) -> io::Result<i64> {
    let (answer, tell) = pipe_with(PipeFlags::CLOEXEC)?;
    // SAFETY: this process has one thread.
    let process = match unsafe { clone_process(0, None) }? {
        Cloned::Child => {
            close_all_but(keep.iter().copied().chain([tell.as_raw_fd()]));
            let result = match work() {
                Ok(value) => value,
                Err(error) => -i64::from(error.raw_os_error().unwrap_or(libc::EIO)),
            };
            rustix::io::write(&tell, &result.to_ne_bytes()).ok();
            exit(0)
        }
        Cloned::Parent { pid, pidfd } => {
            HELPERS.with_borrow_mut(|helpers| helpers.insert(pid));
            KillOnDrop(pidfd)
        }
    };
    drop(tell);
    rustix::io::ioctl_fionbio(&answer, true)?;
    let answer = register(answer)?;
    let result = read_result(&answer);
    let result = match within {
        Some(within) => tokio::time::timeout(within, result)
            .await
            .map_err(|_| io::Error::from_raw_os_error(libc::ETIMEDOUT))?,
        None => result.await,
    };
    drop(process);
    match result? {
        value if value < 0 => {
            Err(io::Error::from_raw_os_error(i32::try_from(value.unsigned_abs()).unwrap_or(libc::EIO)))
        }
        value => Ok(value),
    }
}

/// Kills a process on drop.
struct KillOnDrop(OwnedFd);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        // One that has exited needs no signal.
        pidfd_send_signal(&self.0, Signal::KILL).ok();
    }
}

async fn read_result(answer: &AsyncFd<OwnedFd>) -> io::Result<i64> {
    let mut bytes = [0; 8];
    loop {
        let mut ready = answer.readable().await?;
        // Eight bytes are written at once.
        match ready.try_io(|inner| rustix::io::read(inner.get_ref(), &mut bytes).map_err(Into::into)) {
            Ok(Ok(8)) => return Ok(i64::from_ne_bytes(bytes)),
            // It was killed: by guest root, or by the OOM killer.
            Ok(Ok(_)) => return Err(io::Error::from_raw_os_error(libc::ECHILD)),
            Ok(Err(error)) => return Err(error),
            Err(_would_block) => {}
        }
    }
}

fn exit(status: i32) -> ! {
    // SAFETY: exits at once; no destructor of the agent may run here.
    unsafe { libc::_exit(status) }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::time::Instant;

    use rustix::net::sockopt;

    use super::*;

    /// A socket whose close would block: it has unread bytes and lingers.
    fn lingering(listener: &TcpListener) -> TcpStream {
        use std::io::Write;
        let mut socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        sockopt::set_socket_linger(&socket, Some(Duration::from_secs(20))).unwrap();
        socket.set_nonblocking(true).unwrap();
        while socket.write(&[0; 65536]).is_ok() {}
        socket.set_nonblocking(false).unwrap();
        socket
    }

    #[test]
    fn a_socket_that_lingers_is_closed_at_once() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let began = Instant::now();
        close([OwnedFd::from(lingering(&listener))]);
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
        assert!(has_room());
        // It is closed: the accepted end sees the end of file after what was sent.
        let (mut accepted, _) = listener.accept().unwrap();
        io::copy(&mut accepted, &mut io::sink()).unwrap();
    }
}
