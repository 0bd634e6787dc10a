//! Reading what is in a pipe now, whether the runtime was notified of it or not.

use std::os::fd::OwnedFd;

use bytes::Bytes;
use tokio::io::unix::AsyncFd;

use crate::output::Channel;
use crate::run::Output;

/// The next bytes of either output that are available.
pub(super) fn read_now(output: &mut Output) -> Option<(Channel, Bytes)> {
    let Output::Pipes { stdout, stderr } = output else { return None };
    let some = |source: &Option<AsyncFd<OwnedFd>>| {
        let mut buffer = [0u8; 16 * 1024];
        let count =
            rustix::io::read(source.as_ref()?.get_ref(), &mut buffer).ok().filter(|&count| count > 0)?;
        Some(Bytes::copy_from_slice(&buffer[..count]))
    };
    some(stdout)
        .map(|bytes| (Channel::Stdout, bytes))
        .or_else(|| some(stderr).map(|bytes| (Channel::Stderr, bytes)))
}
