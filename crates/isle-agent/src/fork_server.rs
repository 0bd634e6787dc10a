//! The fork server: one thread, one socket to the daemon. Each request to make a sandbox is one
//! clone of this small process; nothing is executed and almost nothing copied. It dies with the
//! daemon: the end of the socket ends it, sandboxes stay.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::os::unix::fs::chown;
use std::path::{Component, Path, PathBuf};

use isle_linux::request::{
    Extent, ForkReply, ForkRequest, Made, MakeRequest, MakeTier, Measured, Preamble, Refused, RemoveTree,
    Removed, Volume, outside, volume,
};
use isle_linux::setup::container::Recipe;
use isle_linux::setup::network::{self, Network, Networks};
use isle_linux::setup::seccomp::Listener;
use isle_linux::setup::{SANDBOX_ID, berth, container};
use isle_linux::sys::{Cloned, Doing, Step, StepError, check, clone_process, forget_signal_choices, prctl};
use isle_linux::tree;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};

use crate::owner::{Owner, clone_for};
use crate::ration::Ration;
use crate::{kill_order, name, plain_server, serve};

/// The daemon's end is here when the fork server starts.
const CONTROL: i32 = 3;
/// Descriptors of one request: stream, listener, cgroups (up to six), loop device.
const MOST_DESCRIPTORS: usize = 12;
pub(crate) const LARGEST_REQUEST: usize = 64 * 1024;

struct Server {
    control: OwnedFd,
    recipe: Recipe,
    networks: Networks,
}

/// Serves until the daemon goes. Arguments: state directory, scratch directory, and `map` when a
/// user namespace is needed because the daemon is not root, or `plain` to make processes without
/// any namespaces.
pub(crate) fn run(mut arguments: impl Iterator<Item = OsString>) -> Result<(), StepError> {
    // SAFETY: the daemon passes its end as this descriptor and nothing else here uses it.
    let control = unsafe { OwnedFd::from_raw_fd(CONTROL) };
    let mut next = |what: &str| {
        arguments.next().map(PathBuf::from).ok_or_else(|| StepError {
            step: format!("read the {what} from the command line"),
            source: io::ErrorKind::InvalidInput.into(),
        })
    };
    let (state, scratch) = (next("state directory")?, next("scratch directory")?);
    let mode = arguments.next();
    forget_signal_choices();
    // Nothing is ever executed here but commands of sandboxes, which must not gain rights either.
    prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0).doing(|| "set no-new-privileges".into())?;
    if mode.as_deref() == Some(OsStr::new("plain")) {
        return plain_server::run(control);
    }
    let rootless = mode.is_some();
    ignore_dead_children()?;
    if rootless {
        unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS)?;
        send(&control, &ForkReply::MapMe, None)?;
        let mut word = [0u8; 8];
        rustix::io::read(&control, &mut word).doing(|| "wait for the id maps".into())?;
        isle_linux::setup::privileges::become_id(0).doing(|| "become root of the user namespace".into())?;
    } else {
        unshare(libc::CLONE_NEWNS)?;
    }
    berth::enter(&state, &scratch)?;
    name::locate();
    protect();
    let mut server = Server { control, recipe: Recipe::new(), networks: Networks::default() };
    send(&server.control, &ForkReply::Ready, None)?;
    server.serve()
}

fn unshare(flags: libc::c_int) -> Step<()> {
    // SAFETY: takes flags only.
    check(unsafe { libc::unshare(flags) }.into()).map(drop).doing(|| "unshare namespaces".into())
}

/// Sandboxes are watched by the daemon through pidfds; here their ends need no attention.
fn ignore_dead_children() -> Step<()> {
    // SAFETY: SIG_IGN is a valid disposition for SIGCHLD.
    let previous = unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
    if previous == libc::SIG_ERR { Err(io::Error::last_os_error()) } else { Ok(()) }
        .doing(|| "ignore ended children".into())
}

/// Tells the daemon how making a process went.
pub(crate) fn answer(control: &OwnedFd, ticket: u64, outcome: Step<(i32, OwnedFd)>) -> Step<()> {
    match outcome {
        Ok((pid, pidfd)) => send(control, &ForkReply::Made(Made { ticket, pid }), Some(pidfd.as_fd())),
        Err(error) => {
            let refused = Refused { ticket, errno: error.errno(), step: error.step };
            send(control, &ForkReply::Refused(refused), None)
        }
    }
}

pub(crate) fn send(control: &OwnedFd, reply: &ForkReply, descriptor: Option<BorrowedFd<'_>>) -> Step<()> {
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
pub(crate) fn receive(control: &OwnedFd, buffer: &mut [u8]) -> Step<Option<(ForkRequest, Vec<OwnedFd>)>> {
    loop {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let slices = &mut [IoSliceMut::new(buffer)];
        let length = match rustix::net::recvmsg(control, slices, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Ok(message) if message.bytes > 0 => message.bytes,
            Ok(_) => return Ok(None),
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error).doing(|| "hear the daemon".into()),
        };
        let mut descriptors = Vec::new();
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                descriptors.extend(received);
            }
        }
        match minicbor::decode::<ForkRequest>(&buffer[..length]) {
            Ok(request) => return Ok(Some((request, descriptors))),
            Err(error) => eprintln!("isle-agent: a request could not be read: {error}"),
        }
    }
}

/// Has the kernel not interrupt others for this process when it wakes: most sandboxes are made ahead of
/// their use, beside commands somebody waits for. What it forks is scheduled as usual.
fn yield_to_others() {
    let none = libc::sched_param { sched_priority: 0 };
    // SAFETY: a valid parameter block; this process has one thread. Refused, it only costs speed.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH | libc::SCHED_RESET_ON_FORK, &raw const none) };
}

impl Server {
    fn serve(&mut self) -> Result<(), StepError> {
        yield_to_others();
        let mut buffer = vec![0u8; LARGEST_REQUEST];
        while let Some((request, descriptors)) = receive(&self.control, &mut buffer)? {
            match request {
                ForkRequest::Make(request) => self.make(&request, descriptors)?,
                ForkRequest::Remove(request) => self.aside(&request, |path, ticket| {
                    let errno = tree::remove(path).err().and_then(|error| error.raw_os_error()).unwrap_or(0);
                    ForkReply::Removed(Removed { ticket, errno })
                })?,
                ForkRequest::Measure(request) => self.aside(&request, |path, ticket| {
                    ForkReply::Measured(Measured { ticket, bytes: tree::measure(path) })
                })?,
            }
        }
        Ok(())
    }

    /// Does slow work on a tree of the state directory in a child, so that nobody waits behind it.
    fn aside(
        &self,
        request: &RemoveTree,
        work: impl FnOnce(&Path, u64) -> ForkReply,
    ) -> Result<(), StepError> {
        let relative = Path::new(&request.path);
        let stays_below = relative.components().all(|part| matches!(part, Component::Normal(_)));
        let reply = || {
            let path = Path::new(berth::STATE).join(relative);
            if stays_below && relative.components().next().is_some() {
                work(&path, request.ticket)
            } else {
                ForkReply::Removed(Removed { ticket: request.ticket, errno: libc::EINVAL })
            }
        };
        // SAFETY: this process has one thread.
        match unsafe { clone_process(0, None) } {
            Ok(Cloned::Child) => {
                let status = i32::from(send(&self.control, &reply(), None).is_err());
                // SAFETY: ends this child at once; nothing of the parent's may run here.
                unsafe { libc::_exit(status) }
            }
            Ok(Cloned::Parent { .. }) => Ok(()),
            // Where no process can be had, others wait; removing may be what makes room.
            Err(_) => send(&self.control, &reply(), None),
        }
    }

    /// Clones a sandbox. Whatever fails before the clone is told to the daemon here; whatever fails
    /// after it is told by the child on its own stream.
    fn make(&mut self, request: &MakeRequest, descriptors: Vec<OwnedFd>) -> Result<(), StepError> {
        let outcome = match request.tier {
            MakeTier::Container => self.make_container(request, descriptors),
            // Asked of the plain fork server.
            MakeTier::Process => Err(io::Error::from_raw_os_error(libc::EINVAL))
                .doing(|| "make a process in namespaces".into()),
        };
        answer(&self.control, request.ticket, outcome)
    }

    fn make_container(&mut self, request: &MakeRequest, descriptors: Vec<OwnedFd>) -> Step<(i32, OwnedFd)> {
        let parts = Parts::split(request, descriptors)?;
        let volume = attach_volume(request, parts.loop_device.as_ref())?;
        let used_before = if is_one_shot(request) { self.networks.enter_untouched() } else { None };
        let network = if used_before.is_some() { network::State::SetUp } else { network::State::New };
        let (go_read, go_write) =
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).doing(|| "make a pipe".into())?;
        // SAFETY: this process has one thread.
        let cloned =
            unsafe { clone_for(owner_of(request), container::namespaces(network), parts.birthplace()) }?;
        match cloned {
            Cloned::Child => {
                drop(go_write);
                join_cgroups(request, &parts);
                become_agent(request, parts.link, parts.listener, go_read, |go| {
                    let entered = container::enter(request, go, network, &self.recipe)?;
                    if let Some(entry) = entered.kill_order {
                        kill_order::settle(entry);
                    }
                    Ok((entered.refusals, entered.missing))
                })
            }
            Cloned::Parent { pid, pidfd } => {
                drop(go_read);
                drop(volume);
                if is_one_shot(request)
                    && let Some(network) = used_before.or_else(|| Network::fresh_of(pid).ok())
                {
                    self.networks.given(network, pidfd.as_fd());
                }
                // The child sees the pipe end without the word and leaves, should this fail.
                map_ids(pid, &request.ids)?;
                rustix::io::write(&go_write, b"+").doing(|| "let the sandbox go on".into())?;
                Ok((pid, pidfd))
            }
        }
    }
}

/// Whom the sandbox's namespace is to belong to: one of its own ids, where that is to count processes.
fn owner_of(request: &MakeRequest) -> Option<Owner> {
    let id = outside(&request.ids, 0)?;
    (request.rlimit_processes > 0).then_some(Owner { id, processes: request.rlimit_processes })
}

/// An agent should be the last the kernel kills when its sandbox runs out of memory; it has that from
/// here. Without the right to say so it is still behind its commands, which put themselves in front.
fn protect() {
    fs::write("/proc/self/oom_score_adj", b"-900").ok();
}

/// Whether nothing of the sandbox outlives it.
fn is_one_shot(request: &MakeRequest) -> bool {
    matches!(request.volume, Volume::Memory) && !request.has_listener
}

/// A request's descriptors by their meaning.
pub(crate) struct Parts {
    pub(crate) link: OwnedFd,
    pub(crate) listener: Option<OwnedFd>,
    pub(crate) cgroups: Vec<OwnedFd>,
    loop_device: Option<OwnedFd>,
}

impl Parts {
    pub(crate) fn split(request: &MakeRequest, descriptors: Vec<OwnedFd>) -> Step<Self> {
        let mut rest = descriptors.into_iter();
        let mut take = |what: &str| {
            rest.next().ok_or(io::Error::from_raw_os_error(libc::EBADF)).doing(|| format!("take the {what}"))
        };
        let link = take("stream")?;
        let listener = if request.has_listener { Some(take("listener")?) } else { None };
        let mut cgroups: Vec<OwnedFd> = rest.collect();
        let loop_device = if matches!(request.volume, Volume::LoopDevice) { cgroups.pop() } else { None };
        Ok(Self { link, listener, cgroups, loop_device })
    }

    /// The cgroup of the unified tree to be born in: it comes as a directory, those of v1 as files.
    pub(crate) fn birthplace(&self) -> Option<BorrowedFd<'_>> {
        let [only] = &self.cgroups[..] else { return None };
        let stat = rustix::fs::fstat(only).ok()?;
        let is_directory =
            rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::Directory;
        is_directory.then(|| only.as_fd())
    }
}

/// A volume shown at [`berth::VOLUME`] for the moment of a clone.
struct AttachedVolume;

impl Drop for AttachedVolume {
    fn drop(&mut self) {
        // The sandbox has its own copy of the mount; a failure would only leave one more behind.
        rustix::mount::unmount(berth::VOLUME, rustix::mount::UnmountFlags::DETACH).ok();
    }
}

fn attach_volume(request: &MakeRequest, loop_device: Option<&OwnedFd>) -> Step<Option<AttachedVolume>> {
    let target = Path::new(berth::VOLUME);
    match (&request.volume, loop_device) {
        (Volume::Memory, _) => return Ok(None),
        (Volume::Directory(path), _) => {
            let source = Path::new(berth::STATE).join(path);
            berth::bind(&source, target, berth::BindMode::Writable).doing(|| "show the volume".into())?;
        }
        (Volume::LoopDevice, Some(device)) => {
            let source = format!("/proc/self/fd/{}", device.as_raw_fd());
            let source = isle_linux::sys::c_string(source).doing(|| "name the volume".into())?;
            berth::mount_at(
                &source,
                target,
                c"ext4",
                libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOATIME,
                "discard",
            )
            .doing(|| "mount the volume".into())?;
        }
        (Volume::LoopDevice, None) => {
            return Err(io::Error::from_raw_os_error(libc::EBADF))
                .doing(|| "find the volume's device".into());
        }
    }
    let attached = AttachedVolume;
    let root = outside(&request.ids, 0).unwrap_or(0);
    let user = outside(&request.ids, SANDBOX_ID).unwrap_or(0);
    let own = |path: &Path, owner: u32| -> io::Result<()> {
        match fs::create_dir(path) {
            Ok(()) => chown(path, Some(owner), Some(owner)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(error),
        }
    };
    let layers = target.join(volume::LAYERS);
    own(&layers, root).doing(|| "make the directory of layers".into())?;
    own(&layers.join(&request.layer), root).doing(|| "make the writable layer".into())?;
    own(&target.join(volume::WORKSPACE), user).doing(|| "make the workspace".into())?;
    let cache = target.join(volume::USER_CACHE);
    own(&cache, user).doing(|| "make the user's cache".into())?;
    // What the user left in its place is the user's affair.
    own(&cache.join(volume::NODE_CACHE), user).doing(|| "make npm's cache".into())?;
    own(&target.join(volume::SYSTEM_CACHE), root).doing(|| "make the system's cache".into())?;
    Ok(Some(attached))
}

fn map_ids(pid: i32, ids: &[Extent]) -> Step<()> {
    let mut map = String::new();
    for Extent { inside, outside, length } in ids {
        map.push_str(&format!("{inside} {outside} {length}\n"));
    }
    for file in ["gid_map", "uid_map"] {
        // One write: the kernel takes a map once.
        let mut target = fs::OpenOptions::new()
            .write(true)
            .open(format!("/proc/{pid}/{file}"))
            .doing(|| format!("open the {file}"))?;
        target.write_all(map.as_bytes()).doing(|| format!("write the {file}"))?;
    }
    Ok(())
}

/// In the child: enters the cgroups it was not born into. A process that moves itself, alone, by way
/// of `tasks`, spares the machine the lock that moving another takes.
pub(crate) fn join_cgroups(request: &MakeRequest, parts: &Parts) {
    if parts.birthplace().is_some() {
        return;
    }
    for cgroup in &parts.cgroups {
        if let Err(error) = rustix::io::write(cgroup, b"0").doing(|| "join a cgroup".into()) {
            give_up(request, &parts.link, error);
        }
    }
}

/// In the child: says why there will be no sandbox, and leaves.
fn give_up(request: &MakeRequest, link: &OwnedFd, error: StepError) -> ! {
    let failure = Refused { ticket: request.ticket, errno: error.errno(), step: error.step };
    let preamble =
        Preamble { generation: 0, version: String::new(), failure: Some(failure), missing: vec![] };
    serve::write_preamble(link, &preamble).ok();
    exit(4)
}

/// What a set-up hands to the agent: where refused calls are heard of, and what is missing.
pub(crate) type SetUp = (Option<Listener>, Vec<(&'static str, String)>);

/// In the child: sets up by `enter`, reports, serves, never returns.
pub(crate) fn become_agent(
    request: &MakeRequest,
    link: OwnedFd,
    listener: Option<OwnedFd>,
    go: OwnedFd,
    enter: impl FnOnce(OwnedFd) -> Step<SetUp>,
) -> ! {
    let (link, listener, go) = keep_only(link, listener, go);
    name::rename(&format!("isle-agent {}", request.layer));
    if let Some(listener) = &listener {
        // Listening here, not in the daemon, makes this process the peer that a later daemon sees.
        if rustix::net::listen(listener, 16).is_err() {
            exit(3);
        }
    }
    match enter(go) {
        Ok((refusals, missing)) => {
            let preamble = Preamble {
                generation: isle_wire::GENERATION,
                version: env!("CARGO_PKG_VERSION").into(),
                failure: None,
                missing: missing.into_iter().map(|(key, why)| (key.to_owned(), why)).collect(),
            };
            serve::serve_forever(link, listener, refusals, preamble, Ration::of(request));
            exit(0)
        }
        Err(error) => give_up(request, &link, error),
    }
}

/// Leaves this process with nothing open but what it was given, at fixed numbers.
pub(crate) fn keep_only(
    link: OwnedFd,
    listener: Option<OwnedFd>,
    go: OwnedFd,
) -> (OwnedFd, Option<OwnedFd>, OwnedFd) {
    const FIRST: i32 = 20;
    // Whatever has their numbers now, the three are out of each other's way before they move there.
    let aside = |descriptor: OwnedFd| {
        // SAFETY: duplicates a descriptor we own; the old number is closed with the others below.
        unsafe { libc::fcntl(descriptor.into_raw_fd(), libc::F_DUPFD_CLOEXEC, FIRST + 3) }
    };
    let (link, go, listener) = (aside(link), aside(go), listener.map(aside));
    let place = |descriptor: i32, number: i32| {
        // SAFETY: the number is owned by the result alone: whatever had it belongs to the fork server's
        // part of the program, which this process never returns to.
        unsafe {
            libc::dup3(descriptor, number, libc::O_CLOEXEC);
            OwnedFd::from_raw_fd(number)
        }
    };
    let link = place(link, FIRST);
    let go = place(go, FIRST + 1);
    let listener = listener.map(|listener| place(listener, FIRST + 2));
    // SAFETY: closes everything else; the fork server's own descriptors are of no use here. The
    // control socket's OwnedFd lives in the parent's frame, which this process never returns to.
    unsafe {
        libc::close_range(3, FIRST.unsigned_abs() - 1, 0);
        libc::close_range(FIRST.unsigned_abs() + 3, u32::MAX, 0);
        libc::dup2(0, 1);
        libc::dup2(0, 2);
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
    }
    (link, listener, go)
}

pub(crate) fn exit(status: i32) -> ! {
    // SAFETY: ends the process; as the first of its pid namespace, everything in it ends too.
    unsafe { libc::_exit(status) }
}
