//! Kernel calls that the set-up needs and that no safe crate offers in the form needed here. Each
//! wrapper is as thin as it can be; policy lives elsewhere.

use std::ffi::{CStr, CString};
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// What failed, and how the kernel said so.
#[derive(Debug, thiserror::Error)]
#[error("{step}: {source}")]
pub struct StepError {
    /// What was being done.
    pub step: String,
    /// The kernel's answer.
    pub source: io::Error,
}

impl StepError {
    /// The error number, 0 when there is none.
    #[must_use]
    pub fn errno(&self) -> i32 {
        self.source.raw_os_error().unwrap_or(0)
    }
}

/// Shorthand.
pub type Step<T> = Result<T, StepError>;

/// Names the step an error belongs to.
pub trait Doing<T> {
    /// Attaches the step.
    fn doing(self, step: impl FnOnce() -> String) -> Step<T>;
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, step: impl FnOnce() -> String) -> Step<T> {
        self.map_err(|source| StepError { step: step(), source })
    }
}

impl<T> Doing<T> for Result<T, rustix::io::Errno> {
    fn doing(self, step: impl FnOnce() -> String) -> Step<T> {
        self.map_err(|source| StepError { step: step(), source: source.into() })
    }
}

/// Turns a `-1` return into the error number.
pub fn check(result: libc::c_long) -> io::Result<libc::c_long> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Closes every descriptor but the standard three.
///
/// # Safety
///
/// Nothing in this process may own one of them: for the first moments of a program, when all there can
/// be is what its parent left open.
pub unsafe fn close_inherited() -> io::Result<()> {
    // SAFETY: the caller guarantees that nothing uses them; the call takes numbers only.
    check(unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0) }).map(drop)
}

/// Gives back the memory that was needed once and is free now. The C library would keep it for later.
pub fn give_back_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: takes a number; it locks what it looks at by itself.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Gives every signal its default meaning and blocks none, whatever the program that started this one
/// had chosen: what a process ignores, all its descendants ignore. `SIGPIPE` stays ignored, as every
/// Rust program needs it.
pub fn forget_signal_choices() {
    // SAFETY: all zero is a valid action: the default one.
    let default: libc::sigaction = unsafe { std::mem::zeroed() };
    for signal in (1..=64).filter(|&signal| signal != libc::SIGPIPE) {
        // By the system call itself: the C library hides the two signals it uses inside.
        // SAFETY: the kernel reads an action, of which the first 32 bytes are all zero in any layout, and
        // rejects the two signals that cannot be handled.
        unsafe {
            libc::syscall(libc::SYS_rt_sigaction, signal, &raw const default, std::ptr::null::<u8>(), 8usize)
        };
    }
    // SAFETY: the set is valid for both calls.
    unsafe {
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
}

/// A C string; a NUL inside is an error like any other.
pub fn c_string(text: impl Into<Vec<u8>>) -> io::Result<CString> {
    CString::new(text).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}

/// `mount(2)`.
pub fn mount(
    source: &CStr,
    target: &CStr,
    kind: Option<&CStr>,
    flags: libc::c_ulong,
    data: Option<&CStr>,
) -> io::Result<()> {
    let kind = kind.map_or(std::ptr::null(), CStr::as_ptr);
    let data = data.map_or(std::ptr::null(), CStr::as_ptr);
    // SAFETY: every pointer is null where the kernel allows it or a NUL-terminated string that
    // outlives the call.
    check(unsafe { libc::mount(source.as_ptr(), target.as_ptr(), kind, flags, data.cast()) }.into()).map(drop)
}

/// `pivot_root(".", ".")` followed by detaching the old root: the caller stands in the new one.
pub fn pivot_into_current_directory() -> io::Result<()> {
    let here = c".";
    // SAFETY: both arguments are NUL-terminated literals.
    check(unsafe { libc::syscall(libc::SYS_pivot_root, here.as_ptr(), here.as_ptr()) })?;
    // SAFETY: as above.
    check(unsafe { libc::umount2(here.as_ptr(), libc::MNT_DETACH) }.into())?;
    std::env::set_current_dir("/")
}

/// What [`clone_process`] returned to.
#[derive(Debug)]
pub enum Cloned {
    /// In the new process.
    Child,
    /// In the caller: the new process's pid and a descriptor for it.
    Parent {
        /// As the caller's pid namespace numbers it.
        pid: i32,
        /// Names the process itself, whatever its number is reused for.
        pidfd: OwnedFd,
    },
}

/// Forks with namespace flags, into a cgroup of the unified tree when one is given: born there, the
/// process never has to be moved, which would make the whole machine wait for a moment.
///
/// # Safety
/// The calling process must have a single thread: the child gets a copy of its memory, and a lock
/// held by another thread would stay locked there for ever.
pub unsafe fn clone_process(flags: libc::c_int, cgroup: Option<BorrowedFd<'_>>) -> io::Result<Cloned> {
    let mut pidfd: RawFd = -1;
    let flags = flags | libc::CLONE_PIDFD;
    let pid = match cgroup {
        // SAFETY: without CLONE_VM the child runs on a copy of this very stack, so a null stack is
        // right; `pidfd` outlives the call; the caller vouches for the single thread.
        None => check(unsafe {
            let flags = libc::c_long::from(flags | libc::SIGCHLD);
            libc::syscall(libc::SYS_clone, flags, 0, std::ptr::from_mut(&mut pidfd), 0, 0)
        })?,
        Some(cgroup) => {
            const INTO_CGROUP: u64 = 0x2_0000_0000;
            // SAFETY: plain data for which zero is a valid value.
            let mut arguments: libc::clone_args = unsafe { std::mem::zeroed() };
            arguments.flags = u64::from(flags.unsigned_abs()) | INTO_CGROUP;
            arguments.pidfd = std::ptr::from_mut(&mut pidfd).addr() as u64;
            arguments.exit_signal = u64::from(libc::SIGCHLD.unsigned_abs());
            arguments.cgroup = u64::from(cgroup.as_raw_fd().unsigned_abs());
            // SAFETY: as above; the kernel reads the arguments during the call.
            check(unsafe {
                libc::syscall(libc::SYS_clone3, &raw const arguments, size_of::<libc::clone_args>())
            })?
        }
    };
    if pid == 0 {
        return Ok(Cloned::Child);
    }
    // SAFETY: the kernel stored a fresh descriptor that nothing else owns.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    Ok(Cloned::Parent { pid: i32::try_from(pid).unwrap_or(-1), pidfd })
}

/// Brings up the loopback interface of the current network namespace.
pub fn loopback_up() -> io::Result<()> {
    // SAFETY: plain call without pointers.
    let socket =
        check(unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) }.into())?;
    // SAFETY: a fresh descriptor that nothing else owns.
    let socket = unsafe { OwnedFd::from_raw_fd(i32::try_from(socket).unwrap_or(-1)) };
    // SAFETY: ifreq is plain data for which zero is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (slot, byte) in request.ifr_name.iter_mut().zip(b"lo") {
        *slot = libc::c_char::from_ne_bytes([*byte]);
    }
    request.ifr_ifru.ifru_flags = libc::c_short::try_from(libc::IFF_UP | libc::IFF_RUNNING).unwrap_or(1);
    // SAFETY: SIOCSIFFLAGS reads an ifreq, which `request` is and stays for the call.
    check(
        unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, std::ptr::from_mut(&mut request)) }
            .into(),
    )
    .map(drop)
}

/// Makes every address of an IPv4 block one of this machine, as those of 127.0.0.0/8 are: a local route
/// over loopback, and no address that shows up on an interface.
pub fn make_local(block: Ipv4Addr, length: u8) -> io::Result<()> {
    const LOOPBACK: u32 = 1;
    const CREATE: u16 = 0x400;
    let message = |length: usize| u32::try_from(length).unwrap_or(0).to_ne_bytes();
    let number = |value: libc::c_int| u16::try_from(value).unwrap_or(0);
    let mut route = vec![u8::try_from(libc::AF_INET).unwrap_or(0), length, 0, 0];
    route.extend([libc::RT_TABLE_LOCAL, libc::RTPROT_BOOT, libc::RT_SCOPE_HOST, libc::RTN_LOCAL]);
    route.extend(0u32.to_ne_bytes());
    for (kind, value) in [(libc::RTA_DST, block.octets()), (libc::RTA_OIF, LOOPBACK.to_ne_bytes())] {
        route.extend(8u16.to_ne_bytes());
        route.extend(kind.to_ne_bytes());
        route.extend(value);
    }
    let mut packet = message(16 + route.len()).to_vec();
    packet.extend(libc::RTM_NEWROUTE.to_ne_bytes());
    packet.extend((number(libc::NLM_F_REQUEST) | number(libc::NLM_F_ACK) | CREATE).to_ne_bytes());
    packet.extend([0; 8]);
    packet.extend(route);
    let flags = rustix::net::SocketFlags::CLOEXEC;
    let (family, kind) = (rustix::net::AddressFamily::NETLINK, rustix::net::SocketType::RAW);
    let socket = rustix::net::socket_with(family, kind, flags, None)?;
    rustix::net::send(&socket, &packet, rustix::net::SendFlags::empty())?;
    let mut answer = [0u8; 1024];
    let (length, _) = rustix::net::recv(&socket, &mut answer, rustix::net::RecvFlags::empty())?;
    // A header, and the error number, negated; 0 is success.
    match answer.get(16..20).filter(|_| length >= 20) {
        Some(&[a, b, c, d]) => match i32::from_ne_bytes([a, b, c, d]) {
            0 => Ok(()),
            error => Err(io::Error::from_raw_os_error(-error)),
        },
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Sets both limits of a resource, never above the hard limit in force.
pub fn set_rlimit(resource: libc::__rlimit_resource_t, value: u64) -> io::Result<()> {
    let mut current = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `current` is a valid rlimit to write to.
    check(unsafe { libc::getrlimit(resource, &raw mut current) }.into())?;
    let value = value.min(current.rlim_max);
    let limit = libc::rlimit { rlim_cur: value, rlim_max: value };
    // SAFETY: `limit` is a valid rlimit to read from.
    check(unsafe { libc::setrlimit(resource, &raw const limit) }.into()).map(drop)
}

/// `prctl` with up to two integer arguments.
pub fn prctl(option: libc::c_int, first: libc::c_ulong, second: libc::c_ulong) -> io::Result<libc::c_int> {
    // SAFETY: only options with integer arguments are used in this crate.
    let result = check(unsafe { libc::prctl(option, first, second, 0, 0) }.into())?;
    Ok(libc::c_int::try_from(result).unwrap_or(0))
}

/// Sets the short name of this process.
pub fn set_name(name: &str) -> io::Result<()> {
    let name = c_string(name)?;
    // SAFETY: PR_SET_NAME reads a NUL-terminated string of which it takes 15 bytes.
    check(unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) }.into()).map(drop)
}
