//! Putting the filter in force, and hearing about what it refused.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::bpf::Instruction;
use crate::sys::check;

const SET_MODE_FILTER: libc::c_long = 1;
const FLAG_NEW_LISTENER: libc::c_ulong = 1 << 3;
const FLAG_WAIT_KILLABLE: libc::c_ulong = 1 << 5;

/// `SECCOMP_IOCTL_NOTIF_RECV`, `_IOWR('!', 0, struct seccomp_notif)`.
const NOTIF_RECV: libc::Ioctl = libc::_IOWR::<libc::seccomp_notif>(0x21, 0) as libc::Ioctl;
/// `SECCOMP_IOCTL_NOTIF_SEND`, `_IOWR('!', 1, struct seccomp_notif_resp)`.
const NOTIF_SEND: libc::Ioctl = libc::_IOWR::<libc::seccomp_notif_resp>(0x21, 1) as libc::Ioctl;

/// `SECCOMP_IOCTL_NOTIF_ID_VALID`, `_IOW('!', 2, __u64)`.
const NOTIF_ID_VALID: libc::Ioctl = libc::_IOW::<u64>(0x21, 2) as libc::Ioctl;
/// `SECCOMP_IOCTL_NOTIF_ADDFD`, `_IOW('!', 3, struct seccomp_notif_addfd)`.
const NOTIF_ADD_DESCRIPTOR: libc::Ioctl = libc::_IOW::<AddDescriptor>(0x21, 3) as libc::Ioctl;

/// `struct seccomp_notif_addfd`.
#[repr(C)]
struct AddDescriptor {
    id: u64,
    flags: u32,
    source: u32,
    target: u32,
    target_flags: u32,
}

/// `SECCOMP_USER_NOTIF_FLAG_CONTINUE`.
const CONTINUE: u32 = 1;

/// Where the kernel reports denied calls.
#[derive(Debug)]
pub struct Listener(OwnedFd);

/// A process tried a refused call and waits for its answer.
#[derive(Debug, Clone, Copy)]
pub struct Notification {
    id: u64,
    /// Who, in the listener's pid namespace.
    pub pid: u32,
    /// Which call.
    pub number: i32,
    /// Its arguments, which are registers. What one points at is the asker's, who could change it.
    pub arguments: [u64; 6],
}

impl Notification {
    /// An argument that the kernel takes for an `int`.
    #[must_use]
    pub fn int(&self, index: usize) -> i32 {
        let value = self.arguments.get(index).copied().unwrap_or_default();
        // The upper half of the register is no part of the number.
        i32::from_ne_bytes(u32::try_from(value & u64::from(u32::MAX)).unwrap_or_default().to_ne_bytes())
    }
}

/// Whether a descriptor survives exec.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inherited {
    /// It does.
    Yes,
    /// It is closed then.
    No,
}

/// Installs `program` for this thread and everything it will ever start. Needs no-new-privileges
/// (or the capability) to be in force.
pub fn install(program: &[Instruction]) -> io::Result<Listener> {
    let header = libc::sock_fprog {
        len: u16::try_from(program.len()).map_err(|_| io::Error::from_raw_os_error(libc::E2BIG))?,
        filter: program.as_ptr().cast_mut(),
    };
    let call = |flags: libc::c_ulong| {
        // SAFETY: `header` points at `len` instructions that live through the call; the kernel copies them.
        check(unsafe { libc::syscall(libc::SYS_seccomp, SET_MODE_FILTER, flags, &raw const header) })
    };
    // The killable wait exists since Linux 5.19; without it a signal merely restarts the call.
    let listener = call(FLAG_NEW_LISTENER | FLAG_WAIT_KILLABLE).or_else(|_| call(FLAG_NEW_LISTENER))?;
    // SAFETY: a fresh descriptor that nothing else owns.
    Ok(Listener(unsafe { OwnedFd::from_raw_fd(i32::try_from(listener).unwrap_or(-1)) }))
}

impl Listener {
    /// Takes the next notification; would-block when there is none (the caller polls first).
    pub fn receive(&self) -> io::Result<Notification> {
        // SAFETY: plain data for which zero is valid, and which the kernel demands to be zero.
        let mut notification: libc::seccomp_notif = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel fills the struct, which outlives the call.
        check(unsafe { libc::ioctl(self.0.as_raw_fd(), NOTIF_RECV, &raw mut notification) }.into())?;
        let libc::seccomp_data { nr, args, .. } = notification.data;
        Ok(Notification { id: notification.id, pid: notification.pid, number: nr, arguments: args })
    }

    /// Answers it with an error.
    pub fn refuse(&self, notification: Notification, errno: i32) -> io::Result<()> {
        self.answer(notification, 0, -errno, 0)
    }

    /// Answers it: the call has done what it was to do.
    pub fn accept(&self, notification: Notification) -> io::Result<()> {
        self.answer(notification, 0, 0, 0)
    }

    /// Lets the kernel do what was asked, whatever the asker's memory says by then.
    pub fn proceed(&self, notification: Notification) -> io::Result<()> {
        self.answer(notification, 0, 0, CONTINUE)
    }

    /// Whether the caller still waits. What was read of a process before this was really read of it: its
    /// number cannot have become another's.
    #[must_use]
    pub fn is_waiting(&self, notification: &Notification) -> bool {
        // SAFETY: the kernel reads the number, which outlives the call.
        check(unsafe { libc::ioctl(self.0.as_raw_fd(), NOTIF_ID_VALID, &raw const notification.id) }.into())
            .is_ok()
    }

    /// Answers it with a descriptor of its own, which is a copy of this one.
    pub fn hand(
        &self,
        notification: Notification,
        descriptor: BorrowedFd<'_>,
        inherited: Inherited,
    ) -> io::Result<()> {
        let add = AddDescriptor {
            id: notification.id,
            flags: 0,
            source: descriptor.as_raw_fd().unsigned_abs(),
            target: 0,
            target_flags: match inherited {
                Inherited::Yes => 0,
                Inherited::No => libc::O_CLOEXEC.unsigned_abs(),
            },
        };
        // SAFETY: the kernel reads the struct, which outlives the call.
        let number =
            check(unsafe { libc::ioctl(self.0.as_raw_fd(), NOTIF_ADD_DESCRIPTOR, &raw const add) }.into())?;
        self.answer(notification, number, 0, 0)
    }

    fn answer(&self, notification: Notification, value: i64, error: i32, flags: u32) -> io::Result<()> {
        let mut response = libc::seccomp_notif_resp { id: notification.id, val: value, error, flags };
        // SAFETY: the kernel reads the struct, which outlives the call.
        check(unsafe { libc::ioctl(self.0.as_raw_fd(), NOTIF_SEND, &raw mut response) }.into()).map(drop)
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Listener {
    fn as_raw_fd(&self) -> i32 {
        self.0.as_raw_fd()
    }
}
