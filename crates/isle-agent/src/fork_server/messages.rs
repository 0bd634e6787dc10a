//! Messages between the fork server and the daemon: one packet each, with descriptors beside it.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use isle_setup::request::{ForkReply, ForkRequest, Made, Refused};
use isle_setup::sys::{Doing, Step};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};

/// Descriptors of one request: stream, listener, cgroups (up to six), loop device.
const MAX_DESCRIPTORS: usize = 12;
pub(super) const MAX_REQUEST: usize = 64 * 1024;

/// Reports to the daemon whether a process was made.
pub(super) fn answer(control: &OwnedFd, ticket: u64, outcome: Step<(i32, OwnedFd)>) -> Step<()> {
    match outcome {
        Ok((pid, pidfd)) => send(control, &ForkReply::Made(Made { ticket, pid }), Some(pidfd.as_fd())),
        Err(error) => {
            let refused = Refused { ticket, errno: error.errno(), step: error.step };
            send(control, &ForkReply::Refused(refused), None)
        }
    }
}

/// Sends a reply, with at most one descriptor.
pub(super) fn send(control: &OwnedFd, reply: &ForkReply, descriptor: Option<BorrowedFd<'_>>) -> Step<()> {
    let packet = minicbor::to_vec(reply).unwrap_or_default();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let descriptors = descriptor.map(|one| [one]);
    if let Some(descriptors) = &descriptors {
        ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    rustix::net::sendmsg(control, &[IoSlice::new(&packet)], &mut ancillary, SendFlags::NOSIGNAL)
        .map(drop)
        .doing(|| "answer the daemon".into())
}

/// The daemon's next request and its descriptors; `None` when the daemon is gone.
pub(super) fn receive(control: &OwnedFd, buffer: &mut [u8]) -> Step<Option<(ForkRequest, Vec<OwnedFd>)>> {
    loop {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let slices = &mut [IoSliceMut::new(buffer)];
        let length = match rustix::net::recvmsg(control, slices, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Ok(message) if message.bytes > 0 => message.bytes,
            Ok(_) => return Ok(None),
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error).doing(|| "receive a request".into()),
        };
        let mut descriptors = Vec::new();
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                descriptors.extend(received);
            }
        }
        match minicbor::decode::<ForkRequest>(&buffer[..length]) {
            Ok(request) => return Ok(Some((request, descriptors))),
            Err(error) => eprintln!("isle-agent: invalid request: {error}"),
        }
    }
}
