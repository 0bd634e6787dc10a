//! The daemon's side of the fork server: starting it, asking it, and noticing when it is gone.

use std::collections::HashMap;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use isle_engine::{Code, Error, Result};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::oneshot;

use super::embedded;
use super::ids::{subordinate_range, user_name};
use crate::request::{ForkReply, ForkRequest, MakeRequest, RemoveTree};
use crate::sys::check;

const LARGEST_REPLY: usize = 8 * 1024;

/// Which fork server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// Makes sandboxes with namespaces of their own.
    Namespaces,
    /// Makes sandboxes among the host's processes.
    Plain,
}

/// A process that was made.
#[derive(Debug)]
pub(super) struct MadeProcess {
    pub(super) pidfd: OwnedFd,
}

type Answer = (ForkReply, Option<OwnedFd>);

/// The fork server.
#[derive(Debug)]
pub(super) struct ForkServer {
    socket: Arc<AsyncFd<OwnedFd>>,
    waiting: Arc<Mutex<HashMap<u64, oneshot::Sender<Answer>>>>,
    next_ticket: AtomicU64,
    /// It no longer answers. Known before the kernel says that the process has ended.
    lost: Arc<AtomicBool>,
    child: Mutex<Child>,
}

impl ForkServer {
    /// Starts it and waits until it is ready.
    pub(super) async fn start(mode: Mode, state: &Path, scratch: &Path) -> Result<Self> {
        let (ours, theirs) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            None,
        )
        .map_err(|error| Error::internal(format!("socketpair: {error}")))?;
        // The fork server reads its end plainly.
        rustix::io::ioctl_fionbio(&theirs, false).map_err(Error::internal)?;
        let rootless = mode == Mode::Namespaces && !rustix::process::geteuid().is_root();
        let argument = match mode {
            Mode::Namespaces => rootless.then_some("map"),
            Mode::Plain => Some("plain"),
        };
        let child = spawn(&theirs, state, scratch, argument)
            .map_err(|error| Error::internal(format!("the fork server could not be started: {error}")))?;
        drop(theirs);
        // SAFETY: the OwnedFd keeps its descriptor for the life of the AsyncFd.
        let socket = unsafe { AsyncFd::register(ours) }.map_err(Error::internal)?;
        let server = Self {
            socket: Arc::new(socket),
            waiting: Arc::default(),
            next_ticket: AtomicU64::new(1),
            lost: Arc::default(),
            child: Mutex::new(child),
        };
        if rootless {
            match server.receive_one().await? {
                (ForkReply::MapMe, _) => {}
                (other, _) => return Err(Error::internal(format!("the fork server said {other:?}"))),
            }
            server.map_ids().await?;
            rustix::net::send(server.socket.get_ref(), b"mapped", SendFlags::NOSIGNAL)
                .map_err(Error::internal)?;
        }
        match server.receive_one().await? {
            (ForkReply::Ready, _) => {}
            (other, _) => return Err(Error::internal(format!("the fork server said {other:?}"))),
        }
        tokio::spawn(listen(server.socket.clone(), server.waiting.clone(), server.lost.clone()));
        Ok(server)
    }

    async fn receive_one(&self) -> Result<Answer> {
        receive(&self.socket).await.map_err(|error| {
            Error::new(Code::BackendUnavailable, format!("the fork server ended during its set-up: {error}"))
                .next("the daemon's log has its last words; `isle doctor` lists what this host lacks")
        })
    }

    /// Has the system's helpers map the subordinate ids into the fork server's user namespace.
    async fn map_ids(&self) -> Result<()> {
        let pid = self.child.lock().unwrap_or_else(PoisonError::into_inner).id().to_string();
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let user = user_name(uid).unwrap_or_default();
        for (program, file, own) in [("newuidmap", "/etc/subuid", uid), ("newgidmap", "/etc/subgid", gid)] {
            let Some((start, count)) = subordinate_range(file, &user, uid) else {
                return Err(Error::new(
                    Code::BackendUnavailable,
                    format!("{file} gives {user} no subordinate ids"),
                )
                .next(format!(
                    "sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 {user}"
                )));
            };
            let numbers =
                ["0", &own.to_string(), "1", "1", &start.to_string(), &count.to_string()].map(str::to_owned);
            let output = tokio::process::Command::new(program).arg(&pid).args(numbers).output().await;
            let problem = match output {
                Ok(output) if output.status.success() => continue,
                Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
                Err(error) => error.to_string(),
            };
            return Err(Error::new(Code::BackendUnavailable, format!("{program}: {problem}"))
                .next("sudo apt install uidmap  (or the package of your system that has newuidmap)"));
        }
        Ok(())
    }

    /// Makes a process.
    pub(super) async fn make(
        &self,
        mut request: MakeRequest,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<MadeProcess> {
        let (ticket, answer) = self.ticket();
        request.ticket = ticket;
        self.send(&ForkRequest::Make(Box::new(request)), descriptors).await?;
        match answer.await {
            Ok((ForkReply::Made(_), Some(pidfd))) => Ok(MadeProcess { pidfd }),
            Ok((ForkReply::Refused(refused), _)) => Err(refusal(&refused.step, refused.errno)),
            Ok((other, _)) => Err(Error::internal(format!("the fork server answered {other:?}"))),
            Err(_) => Err(gone()),
        }
    }

    /// Removes a tree below the state directory with the fork server's rights.
    pub(super) async fn remove(&self, path: &str) -> Result<()> {
        let (ticket, answer) = self.ticket();
        self.send(&ForkRequest::Remove(RemoveTree { ticket, path: path.to_owned() }), &[]).await?;
        match answer.await {
            Ok((ForkReply::Removed(removed), _)) if removed.errno == 0 => Ok(()),
            Ok((ForkReply::Removed(removed), _)) => Err(refusal(&format!("remove {path}"), removed.errno)),
            Ok((other, _)) => Err(Error::internal(format!("the fork server answered {other:?}"))),
            Err(_) => Err(gone()),
        }
    }

    /// Bytes on disk of a tree below the state directory.
    pub(super) async fn measure(&self, path: &str) -> Result<u64> {
        let (ticket, answer) = self.ticket();
        self.send(&ForkRequest::Measure(RemoveTree { ticket, path: path.to_owned() }), &[]).await?;
        match answer.await {
            Ok((ForkReply::Measured(measured), _)) => Ok(measured.bytes),
            Ok((other, _)) => Err(Error::internal(format!("the fork server answered {other:?}"))),
            Err(_) => Err(gone()),
        }
    }

    /// Whether it still runs.
    pub(super) fn is_alive(&self) -> bool {
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        !self.lost.load(Ordering::Acquire) && matches!(child.try_wait(), Ok(None))
    }

    /// Ends it; sandboxes stay.
    pub(super) fn stop(&self) {
        rustix::net::shutdown(self.socket.get_ref(), rustix::net::Shutdown::Both).ok();
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        child.kill().ok();
        child.wait().ok();
    }

    fn ticket(&self) -> (u64, oneshot::Receiver<Answer>) {
        let ticket = self.next_ticket.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = oneshot::channel();
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(ticket, sender);
        (ticket, receiver)
    }

    async fn send(&self, request: &ForkRequest, descriptors: &[BorrowedFd<'_>]) -> Result<()> {
        let packet = minicbor::to_vec(request).unwrap_or_default();
        let sent = self
            .socket
            .async_io(Interest::WRITABLE, |socket| {
                let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(12))];
                let mut ancillary = SendAncillaryBuffer::new(&mut space);
                if !descriptors.is_empty() {
                    ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
                }
                let slices = [IoSlice::new(&packet)];
                Ok(rustix::net::sendmsg(socket, &slices, &mut ancillary, SendFlags::NOSIGNAL)?)
            })
            .await;
        sent.map(drop).map_err(|_| {
            self.lost.store(true, Ordering::Release);
            gone()
        })
    }
}

fn gone() -> Error {
    Error::new(Code::SandboxFailed, "the fork server is gone").next("try again: the daemon starts a new one")
}

/// An error from the set-up of a sandbox, in words.
pub(super) fn refusal(step: &str, errno: i32) -> Error {
    let why = io::Error::from_raw_os_error(errno);
    let error = match errno {
        libc::ENOSPC => {
            Error::new(Code::NoSpace, format!("could not {step}: {why}")).next("free disk space on the host")
        }
        // A host may well refuse with the rest of what a broken disk says.
        libc::EIO | libc::EUCLEAN | libc::EBADMSG => super::disk_broken(format!("could not {step}: {why}")),
        // No file system the kernel knows any more.
        libc::EINVAL if step == "mount the volume" => super::disk_broken(format!("could not {step}: {why}")),
        libc::EAGAIN | libc::ENOMEM | libc::EMFILE | libc::ENFILE | libc::EUSERS => {
            Error::new(Code::LimitReached, format!("could not {step}: {why}"))
                .next("destroy sandboxes that are no longer needed, or raise the host's limits")
        }
        _ => Error::new(Code::BackendUnavailable, format!("could not {step}: {why}"))
            .next("`isle doctor` lists what this host lacks and how to change it"),
    };
    error.detail("step", step).detail("errno", errno)
}

fn spawn(control: &OwnedFd, state: &Path, scratch: &Path, argument: Option<&str>) -> io::Result<Child> {
    let agent = embedded::agent_file()?;
    let mut command = Command::new(format!("/proc/self/fd/{}", agent.as_raw_fd()));
    command.arg0("isle-fork-server").arg("fork-server").arg(state).arg(scratch);
    command.args(argument);
    command.env_clear().stdin(Stdio::null()).stdout(Stdio::null()).current_dir("/");
    let control = control.as_raw_fd();
    // SAFETY: between fork and exec only async-signal-safe calls: dup2, setsid, prctl.
    unsafe {
        command.pre_exec(move || {
            check(libc::dup2(control, 3).into())?;
            libc::setsid();
            Ok(())
        });
    }
    command.spawn()
}

/// Hands every reply to whoever holds its ticket, until the fork server is gone.
async fn listen(
    socket: Arc<AsyncFd<OwnedFd>>,
    waiting: Arc<Mutex<HashMap<u64, oneshot::Sender<Answer>>>>,
    lost: Arc<AtomicBool>,
) {
    while let Ok((reply, descriptor)) = receive(&socket).await {
        let ticket = match &reply {
            ForkReply::Made(made) => made.ticket,
            ForkReply::Refused(refused) => refused.ticket,
            ForkReply::Removed(removed) => removed.ticket,
            ForkReply::Measured(measured) => measured.ticket,
            ForkReply::Ready | ForkReply::MapMe => continue,
        };
        let sender = waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&ticket);
        if let Some(sender) = sender {
            sender.send((reply, descriptor)).ok();
        }
    }
    lost.store(true, Ordering::Release);
    // Dropping the senders tells everyone who waits.
    waiting.lock().unwrap_or_else(PoisonError::into_inner).clear();
}

async fn receive(socket: &AsyncFd<OwnedFd>) -> io::Result<Answer> {
    socket
        .async_io(Interest::READABLE, |socket| {
            let mut buffer = [0u8; LARGEST_REPLY];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut ancillary = RecvAncillaryBuffer::new(&mut space);
            let message = rustix::net::recvmsg(
                socket.as_fd(),
                &mut [IoSliceMut::new(&mut buffer)],
                &mut ancillary,
                RecvFlags::CMSG_CLOEXEC,
            )?;
            if message.bytes == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let descriptor = ancillary.drain().find_map(|message| match message {
                RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
                _ => None,
            });
            let reply = minicbor::decode(&buffer[..message.bytes]).map_err(io::Error::other)?;
            Ok((reply, descriptor))
        })
        .await
}
