//! A Unix stream with a guest at its other end. Only bytes are accepted: descriptors that come with them,
//! and the stream itself with what was not read, are closed in a helper process, where blocking does no
//! harm.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll};

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::UnixStream;

use crate::helper_process;

/// As many as the kernel allows in one message, so that it closes none of them here.
const MAX_DESCRIPTORS: usize = 253;

/// The stream; `None` only while it is dropped.
pub(crate) struct GuestStream(Option<UnixStream>);

impl GuestStream {
    pub(crate) fn new(stream: UnixStream) -> Self {
        Self(Some(stream))
    }

    fn inner(&self) -> io::Result<&UnixStream> {
        self.0.as_ref().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Its descriptor.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.0.as_ref().map(AsFd::as_fd)
    }
}

impl Drop for GuestStream {
    fn drop(&mut self) {
        if let Some(stream) = self.0.take().and_then(|stream| stream.into_std().ok()) {
            helper_process::close([OwnedFd::from(stream)]);
        }
    }
}

/// Receives bytes and closes descriptors that came with them.
fn receive(from: &UnixStream, buffer: &mut [u8]) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let message = recvmsg(from, &mut [IoSliceMut::new(buffer)], &mut beside, flags)?;
    let mut unwanted = Vec::new();
    for message in beside.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            unwanted.extend(descriptors);
        }
    }
    if !unwanted.is_empty() {
        helper_process::close(unwanted);
    }
    Ok(message.bytes)
}

impl AsyncRead for GuestStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !helper_process::has_room() {
            return Poll::Ready(Err(io::ErrorKind::WouldBlock.into()));
        }
        let stream = self.inner()?;
        loop {
            std::task::ready!(stream.poll_read_ready(context))?;
            let free = buffer.initialize_unfilled();
            match stream.try_io(Interest::READABLE, || receive(stream, free)) {
                Ok(count) => {
                    buffer.advance(count);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for GuestStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.0.as_mut() {
            Some(stream) => Pin::new(stream).poll_write(context, bytes),
            None => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.0.as_mut() {
            Some(stream) => Pin::new(stream).poll_shutdown(context),
            None => Poll::Ready(Ok(())),
        }
    }
}
