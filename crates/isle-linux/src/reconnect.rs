//! Finding a sandbox an earlier daemon made. Its agent listens on a socket named after it; the
//! kernel says which process that is, so no number has to be trusted.

use std::io::ErrorKind;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;

use isle_core::Result;
use isle_core::backend::{Created, Found, SandboxSpec};
use isle_core::values::SandboxId;
use isle_fail::Point;
use isle_wire::FdStream;

use super::alive::Holding;
use super::{Inner, create, failed, failpoint, link, report};
use isle_setup::sys::check;

pub(super) async fn reconnect(inner: &Arc<Inner>, id: &SandboxId, spec: &SandboxSpec) -> Result<Found> {
    let Some(record) = inner.records.read(id) else { return Ok(Found::Dead) };
    let mut stream = match inner.records.connect(id).await {
        Ok(stream) => stream,
        // Nothing listens there. Other errors may be temporary, and prove nothing about the sandbox.
        Err(error) if matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::NotFound) => {
            return Ok(Found::Dead);
        }
        Err(error) => return Err(failed("reach the sandbox's agent", error)),
    };
    let Some(process) = peer_process(&stream) else { return Ok(Found::Dead) };
    let holding = Holding {
        process: Arc::new(process),
        tier: spec.tier,
        slot: record.slot,
        slot_stays: true,
        resource: id.clone(),
        counters: Arc::new(inner.cgroups.counters(id.as_str())),
        disk_stops: Arc::default(),
        unlinked: Arc::default(),
        lease: None,
    };
    inner.alive.insert(id, holding);
    failpoint(Point::NativeHeld)?;
    create::look_after_volume(inner, id, spec);
    // Held from here on, so that it can be destroyed whether its agent ever speaks or not; whoever asks decides
    // how long that may take.
    let welcome = match link::read_preamble(&mut stream).await {
        Ok(welcome) => welcome,
        Err(error) => {
            inner.alive.remove(id);
            return Err(error);
        }
    };
    failpoint(Point::NativeFound)?;
    let containment = report::of_sandbox(&inner.facts, &inner.cgroups, spec, &welcome);
    let anchor = serde_json::json!({ "backend": crate::NAME });
    let passed = link::passed(&stream);
    Ok(Found::Alive(Created { link: Box::new(stream), passed, containment, welcome: Some(welcome), anchor }))
}

/// The first process of a sandbox whose agent answers.
pub(super) async fn find_process(inner: &Inner, id: &SandboxId) -> Option<OwnedFd> {
    peer_process(&inner.records.connect(id).await.ok()?)
}

/// The process that listens at the other end.
fn peer_process(stream: &FdStream) -> Option<OwnedFd> {
    const SO_PEERPIDFD: libc::c_int = 77;
    let mut descriptor: libc::c_int = -1;
    let mut length = libc::socklen_t::try_from(size_of::<libc::c_int>()).ok()?;
    // SAFETY: the kernel stores one int, for which there is room.
    let result = unsafe {
        libc::getsockopt(
            stream.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PEERPIDFD,
            (&raw mut descriptor).cast(),
            &raw mut length,
        )
    };
    if check(result.into()).is_ok() {
        // SAFETY: a fresh descriptor that nothing else owns.
        return Some(unsafe { OwnedFd::from_raw_fd(descriptor) });
    }
    // Before Linux 6.5: by number. The agent holds the listening socket for its whole life, so while
    // a second look at the same connection still finds it open, the number was its own.
    let peer = rustix::net::sockopt::socket_peercred(stream.as_fd()).ok()?;
    let process = rustix::process::pidfd_open(peer.pid, rustix::process::PidfdFlags::empty()).ok()?;
    let mut byte = [0u8; 1];
    match rustix::net::recv(
        stream.as_fd(),
        &mut byte,
        rustix::net::RecvFlags::PEEK | rustix::net::RecvFlags::DONTWAIT,
    ) {
        Ok((0, _)) => None,
        Ok(_) | Err(rustix::io::Errno::AGAIN) => Some(process),
        Err(_) => None,
    }
}
