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
use std::time::Duration;

use isle_core::{Code, Error, Result};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::oneshot;

use super::ids::user_name;
use super::subordinate::{Kind, Subordinate};
use isle_setup::request::{ForkReply, ForkRequest, MakeRequest, MeasureTree, RemoveTree};
use isle_setup::sys::check;
use isle_setup::tree::Measurement;

const LARGEST_REPLY: usize = 8 * 1024;

/// How long the fork server may take to be ready, to make a process, or to answer at all.
const ANSWER: Duration = Duration::from_secs(20);
/// How long a tree may take to be removed: millions of files on a slow disk. What takes longer is removed
/// in the background.
const REMOVE: Duration = Duration::from_secs(300);

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
            Mode::Plain => Some("process"),
        };
        let child = spawn(&theirs, state, scratch, argument)
            .map_err(|error| Error::internal(format!("could not start the fork server: {error}")))?;
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
                (other, _) => {
                    return Err(Error::internal(format!("unexpected message of the fork server: {other:?}")));
                }
            }
            server.map_ids().await?;
            rustix::net::send(server.socket.get_ref(), b"mapped", SendFlags::NOSIGNAL)
                .map_err(Error::internal)?;
        }
        match server.receive_one().await? {
            (ForkReply::Ready, _) => {}
            (other, _) => {
                return Err(Error::internal(format!("unexpected message of the fork server: {other:?}")));
            }
        }
        tokio::spawn(listen(server.socket.clone(), server.waiting.clone(), server.lost.clone()));
        Ok(server)
    }

    async fn receive_one(&self) -> Result<Answer> {
        let received = tokio::time::timeout(ANSWER, receive(&self.socket)).await.map_err(|_| slow())?;
        received.map_err(|error| {
            Error::new(Code::BackendUnavailable, format!("the fork server exited during set-up: {error}"))
                .next("see the daemon's log; `isle doctor` lists what this host lacks")
        })
    }

    /// Has the system's helpers map the subordinate ids into the fork server's user namespace.
    async fn map_ids(&self) -> Result<()> {
        let pid = self.child.lock().unwrap_or_else(PoisonError::into_inner).id().to_string();
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let user = user_name(uid).unwrap_or_default();
        let subordinate = Subordinate::read(Path::new("/etc"), &user, uid);
        if let Some((why, fix)) = subordinate.problem() {
            return Err(Error::new(Code::BackendUnavailable, why).next(fix));
        }
        for (program, kind, own) in [("newuidmap", Kind::Users, uid), ("newgidmap", Kind::Groups, gid)] {
            // One after the other from 1 on, however many lines they come from.
            let mut numbers = vec!["0".to_owned(), own.to_string(), "1".to_owned()];
            let mut inside = 1;
            for range in subordinate.ranges(kind) {
                numbers.extend([inside, range.start, range.count].map(|number: u64| number.to_string()));
                inside += range.count;
            }
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
        let ticket = self.ticket();
        request.ticket = ticket;
        let asked = self.ask(ticket, &ForkRequest::Make(Box::new(request)), descriptors, ANSWER).await?;
        match asked {
            Some((ForkReply::Made(_), Some(pidfd))) => Ok(MadeProcess { pidfd }),
            Some((ForkReply::Refused(refused), _)) => Err(refusal(&refused.step, refused.errno)),
            Some((other, _)) => {
                Err(Error::internal(format!("unexpected reply of the fork server: {other:?}")))
            }
            None => {
                // It waits for something itself: others get a new one.
                self.lost.store(true, Ordering::Release);
                Err(slow())
            }
        }
    }

    /// Removes a tree below the state directory with the fork server's rights.
    pub(super) async fn remove(&self, path: &str) -> Result<()> {
        self.remove_within(path, REMOVE).await
    }

    async fn remove_within(&self, path: &str, within: Duration) -> Result<()> {
        let ticket = self.ticket();
        let request = ForkRequest::Remove(RemoveTree { ticket, path: path.to_owned() });
        match self.ask(ticket, &request, &[], within).await? {
            Some((ForkReply::Removed(removed), _)) if removed.errno == 0 => Ok(()),
            Some((ForkReply::Removed(removed), _)) => Err(refusal(&format!("remove {path}"), removed.errno)),
            Some((other, _)) => {
                Err(Error::internal(format!("unexpected reply of the fork server: {other:?}")))
            }
            None => {
                let seconds = within.as_secs();
                let what = format!("{path} was not removed within {seconds} s");
                Err(Error::new(Code::BackendUnavailable, what)
                    .next("it is being removed in the background; retry later"))
            }
        }
    }

    /// Bytes on disk of a tree below the state directory, as far as they can be counted in this time.
    pub(super) async fn measure(&self, path: &str, longest: Duration) -> Result<Measurement> {
        self.measure_within(path, longest, longest + ANSWER).await
    }

    async fn measure_within(&self, path: &str, longest: Duration, within: Duration) -> Result<Measurement> {
        let ticket = self.ticket();
        let seconds = longest.as_secs();
        let request = ForkRequest::Measure(MeasureTree { ticket, path: path.to_owned(), seconds });
        match self.ask(ticket, &request, &[], within).await? {
            Some((ForkReply::Measured(measured), _)) => {
                Ok(Measurement { bytes: measured.bytes, is_whole: measured.is_whole })
            }
            Some((other, _)) => {
                Err(Error::internal(format!("unexpected reply of the fork server: {other:?}")))
            }
            None => Err(slow()),
        }
    }

    /// Asks for something and waits so long for its answer: `None` when there is none by then.
    async fn ask(
        &self,
        ticket: u64,
        request: &ForkRequest,
        descriptors: &[BorrowedFd<'_>],
        within: Duration,
    ) -> Result<Option<Answer>> {
        let (sender, answer) = oneshot::channel();
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(ticket, sender);
        // Sending waits too when it does not read.
        let asked = async {
            self.send(request, descriptors).await?;
            answer.await.map_err(|_| gone())
        };
        let asked = tokio::time::timeout(within, asked).await;
        // A later reply is dropped.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&ticket);
        asked.ok().transpose()
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

    fn ticket(&self) -> u64 {
        self.next_ticket.fetch_add(1, Ordering::Relaxed)
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

fn slow() -> Error {
    let seconds = ANSWER.as_secs();
    Error::new(Code::BackendUnavailable, format!("the fork server did not respond within {seconds} s"))
        .next("the host is overloaded, or one of its file systems hangs; retry later")
}

fn gone() -> Error {
    Error::new(Code::SandboxFailed, "the fork server exited").next("retry: the daemon starts a new one")
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
            .next("`isle doctor` lists what this host lacks and how to fix it"),
    };
    error.detail("step", step).detail("errno", errno)
}

fn spawn(control: &OwnedFd, state: &Path, scratch: &Path, argument: Option<&str>) -> io::Result<Child> {
    let agent = isle_embed::agent_file()?;
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

/// Delivers every reply to the request with its ticket, until the fork server exits.
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
    // Dropping the senders fails every pending request.
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

#[cfg(test)]
mod tests {
    use super::*;
    use isle_setup::request::{Measured, Removed};

    /// A fork server of which only the socket is there, and its other end.
    fn pretended() -> (ForkServer, OwnedFd) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        // SAFETY: the OwnedFd keeps its descriptor for the life of the AsyncFd.
        let socket = Arc::new(unsafe { AsyncFd::register(ours) }.unwrap());
        let child = Command::new("sleep").arg("60").spawn().unwrap();
        let server = ForkServer {
            socket: socket.clone(),
            waiting: Arc::default(),
            next_ticket: AtomicU64::new(1),
            lost: Arc::default(),
            child: Mutex::new(child),
        };
        tokio::spawn(listen(socket, server.waiting.clone(), server.lost.clone()));
        (server, theirs)
    }

    fn answer(theirs: &OwnedFd, reply: &ForkReply) {
        rustix::net::send(theirs, &minicbor::to_vec(reply).unwrap(), SendFlags::NOSIGNAL).unwrap();
    }

    const SHORT: Duration = Duration::from_millis(50);

    #[tokio::test]
    async fn removing_and_measuring_end_without_an_answer_and_others_are_served() {
        let (server, theirs) = pretended();
        let removed = server.remove_within("volumes/hung", SHORT).await.unwrap_err();
        assert_eq!(removed.code, Code::BackendUnavailable, "{removed:?}");
        assert!(removed.message.contains("volumes/hung") && !removed.next_steps.is_empty(), "{removed:?}");
        let measured = server.measure_within("volumes/hung", SHORT, SHORT).await.unwrap_err();
        assert_eq!(measured.code, Code::BackendUnavailable, "{measured:?}");
        assert!(server.waiting.lock().unwrap().is_empty(), "no request is pending");
        assert!(server.is_alive(), "one tree that hangs says nothing about the others");

        // Other requests are answered while one hangs, and late replies are dropped.
        answer(&theirs, &ForkReply::Removed(Removed { ticket: 1, errno: libc::EIO }));
        let hung = server.remove_within("volumes/hung", Duration::from_secs(60));
        let served = async {
            let asked = server.measure("volumes/fine", SHORT);
            let told = async {
                let is_asked = || server.waiting.lock().unwrap().contains_key(&4);
                while !is_asked() {
                    tokio::task::yield_now().await;
                }
                answer(&theirs, &ForkReply::Measured(Measured { ticket: 4, bytes: 7, is_whole: true }));
            };
            tokio::join!(asked, told).0
        };
        tokio::select! {
            biased;
            removed = hung => panic!("{removed:?}"),
            measured = served => assert_eq!(measured.unwrap(), Measurement { bytes: 7, is_whole: true }),
        }
        server.stop();
    }

    #[tokio::test]
    async fn a_fork_server_that_reads_nothing_holds_nobody_for_ever() {
        let (server, _theirs) = pretended();
        // More than its socket holds.
        for _ in 0..600 {
            let asked = server.measure_within("volumes/x", SHORT, Duration::from_millis(1)).await;
            assert_eq!(asked.unwrap_err().code, Code::BackendUnavailable);
        }
        server.stop();
    }
}
