//! Landlock, on top of everything else: writing only to the sandbox's own directories, device
//! controls only on its own devices, no signals and no abstract sockets out of the sandbox, and no
//! mounting whatever capabilities say. By hand: three system calls and two structs.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use crate::sys::check;

/// Rights on files, by the kernel's numbering.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rights(u64);

impl Rights {
    /// Reading files and directories, running programs.
    pub const READ: Self = Self((1 << 0) | (1 << 2) | (1 << 3));
    /// Reading, but not running.
    pub const READ_ONLY: Self = Self((1 << 2) | (1 << 3));
    /// Writing into files that exist.
    pub const WRITE_FILES: Self = Self((1 << 1) | (1 << 14));
    /// Everything but device nodes and device controls.
    pub const ALL: Self = Self(0xffff & !(1 << 6) & !(1 << 11) & !(1 << 15));
    /// Controls (`ioctl`) of devices.
    pub const DEVICE_CONTROL: Self = Self(1 << 15);

    /// Both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

#[repr(C)]
struct RulesetAttributes {
    handled_fs: u64,
    handled_net: u64,
    scoped: u64,
}

#[repr(C, packed)]
struct PathBeneath {
    allowed: u64,
    parent: i32,
}

/// The kernel's Landlock version; 0 without Landlock.
#[must_use]
pub fn version() -> u32 {
    // SAFETY: with the version flag the kernel takes no attributes and returns a number.
    let version = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, 0, 0, 1) };
    u32::try_from(version).unwrap_or(0)
}

/// A set of rules being put together. Everything it handles and does not allow is refused.
#[derive(Debug)]
pub struct Ruleset {
    descriptor: OwnedFd,
    handled: u64,
    version: u32,
}

impl Ruleset {
    /// Starts a set that handles all the kernel knows.
    pub fn new() -> io::Result<Self> {
        let version = version();
        let handled = match version {
            0 => return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP)),
            1 => 0x1fff,
            2 => 0x3fff,
            3 | 4 => 0x7fff,
            _ => 0xffff,
        };
        let attributes = RulesetAttributes {
            handled_fs: handled,
            handled_net: 0,
            scoped: if version >= 6 { 3 } else { 0 },
        };
        let size: usize = match version {
            1..=3 => 8,
            4 | 5 => 16,
            _ => 24,
        };
        Self::make(attributes, size, version)
    }

    /// Starts a set that leaves files alone and only keeps signals and abstract sockets inside; `None`
    /// where the kernel cannot.
    pub fn scope_only() -> io::Result<Option<Self>> {
        let version = version();
        if version < 6 {
            return Ok(None);
        }
        // Moving files between directories is denied by every set that does not say otherwise.
        let moving = Rights(1 << 13);
        let attributes = RulesetAttributes { handled_fs: moving.0, handled_net: 0, scoped: 3 };
        let mut rules = Self::make(attributes, 24, version)?;
        rules.allow(c"/", moving)?;
        Ok(Some(rules))
    }

    fn make(attributes: RulesetAttributes, size: usize, version: u32) -> io::Result<Self> {
        // SAFETY: the first `size` bytes of `attributes` are initialised and outlive the call.
        let descriptor = check(unsafe {
            libc::syscall(libc::SYS_landlock_create_ruleset, &raw const attributes, size, 0)
        })?;
        // SAFETY: a fresh descriptor that nothing else owns.
        let descriptor = unsafe { OwnedFd::from_raw_fd(i32::try_from(descriptor).unwrap_or(-1)) };
        Ok(Self { descriptor, handled: attributes.handled_fs, version })
    }

    /// Whether signals and abstract sockets are confined too.
    #[must_use]
    pub fn scopes(&self) -> bool {
        self.version >= 6
    }

    /// Allows `rights` on `path` and all below it; a path that does not exist is passed over.
    pub fn allow(&mut self, path: &CStr, rights: Rights) -> io::Result<()> {
        // SAFETY: `path` is NUL-terminated.
        let opened = check(unsafe { libc::open(path.as_ptr(), libc::O_PATH | libc::O_CLOEXEC) }.into());
        let parent = match opened {
            // SAFETY: a fresh descriptor that nothing else owns.
            Ok(descriptor) => unsafe { OwnedFd::from_raw_fd(i32::try_from(descriptor).unwrap_or(-1)) },
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(()),
            Err(error) => return Err(error),
        };
        let rule = PathBeneath { allowed: rights.0 & self.handled, parent: parent.as_raw_fd() };
        // SAFETY: rule type 1 reads a PathBeneath, which `rule` is.
        check(unsafe {
            libc::syscall(libc::SYS_landlock_add_rule, self.descriptor.as_raw_fd(), 1, &raw const rule, 0)
        })
        .map(drop)
    }

    /// As [`Ruleset::allow`] for something that is not a directory.
    pub fn allow_file(&mut self, path: &CStr, rights: Rights) -> io::Result<()> {
        // The kernel refuses directory rights on a file: execute, write, read, truncate, ioctl remain.
        self.allow(path, Rights(rights.0 & ((1 << 0) | (1 << 1) | (1 << 2) | (1 << 14) | (1 << 15))))
    }

    /// Puts the set in force for this thread and all it starts. A set can be put in force again, each
    /// time as a new domain.
    pub fn enforce(&self) -> io::Result<()> {
        enforce(self.descriptor.as_raw_fd())
    }
}

/// As [`Ruleset::enforce`], for a process that has only the descriptor's number. One system call.
pub fn enforce(descriptor: RawFd) -> io::Result<()> {
    // SAFETY: takes a descriptor and flags only.
    check(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, descriptor, 0) }).map(drop)
}

impl AsRawFd for Ruleset {
    fn as_raw_fd(&self) -> RawFd {
        self.descriptor.as_raw_fd()
    }
}
