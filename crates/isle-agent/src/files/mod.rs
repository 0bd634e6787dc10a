//! File operations for the host. Every path goes through one resolver (`openat2`): magic links are never
//! followed, and a path that must stay below a directory cannot leave it. Permissions are those of the guest
//! user in the request, checked by the kernel.

pub(crate) mod edit;
pub(crate) mod find;
pub(crate) mod list;
pub(crate) mod read;
pub(crate) mod remove;
pub(crate) mod rename;
pub(crate) mod search;
mod time_slice;
pub(crate) mod trees;
pub(crate) mod watch;
pub(crate) mod write;

use std::borrow::Cow;
use std::io;
use std::os::fd::OwnedFd;

use isle_setup::SANDBOX_ID;
use isle_wire::{Failure, FailureKind, FileKind, GuestUser, PathRequest, Reply, Stat};
use rustix::fs::{AtFlags, FileType, Mode as FileMode, OFlags, ResolveFlags};

use crate::mode::{GuestUsers, Mode};

/// Makes the kernel check file permissions as a guest user until dropped. Never held across an await: the
/// agent has one thread.
pub(crate) struct As(GuestUser);

impl As {
    pub(crate) fn user(mode: &Mode, user: GuestUser) -> Self {
        // Without separate users the agent is the sandbox user already.
        let user = if mode.users == GuestUsers::Switched { user } else { GuestUser::Root };
        if user == GuestUser::Sandbox {
            set_file_identity(SANDBOX_ID);
        }
        Self(user)
    }
}

impl Drop for As {
    fn drop(&mut self) {
        if self.0 == GuestUser::Sandbox {
            set_file_identity(0);
        }
    }
}

fn set_file_identity(id: u32) {
    // SAFETY: plain numbers; both are IDs of this user namespace. Switching back must happen in reverse
    // order.
    unsafe {
        if id == 0 {
            libc::setfsuid(0);
            libc::setfsgid(0);
        } else {
            libc::setfsgid(id);
            libc::setfsuid(id);
        }
    }
}

/// Classifies an error for the host.
pub(crate) fn failure(error: &io::Error, doing: impl Into<String>) -> Failure {
    let errno = error.raw_os_error().unwrap_or(0);
    let kind = match errno {
        libc::ENOENT => FailureKind::NotFound,
        libc::EACCES | libc::EPERM | libc::EROFS => FailureKind::Denied,
        libc::EISDIR => FailureKind::IsDirectory,
        libc::ENOTDIR => FailureKind::NotDirectory,
        libc::EXDEV | libc::ELOOP => FailureKind::Escapes,
        libc::ENOSPC | libc::EDQUOT | libc::EFBIG => FailureKind::NoSpace,
        // The second and the third are how file systems report their own corruption.
        libc::EIO | libc::EUCLEAN | libc::EBADMSG => FailureKind::DiskBroken,
        libc::ENXIO => FailureKind::NotRegular,
        libc::EAGAIN => FailureKind::NoProcesses,
        libc::ENOMEM => FailureKind::NoMemory,
        libc::ENOEXEC => FailureKind::NotExecutable,
        libc::ENOTEMPTY => FailureKind::NotEmpty,
        _ => FailureKind::Other,
    };
    Failure { kind, errno, doing: doing.into() }
}

/// EAGAIN from opening a file without blocking means that another process has a lease on it.
pub(crate) fn leased(error: rustix::io::Errno) -> io::Error {
    match error {
        rustix::io::Errno::AGAIN => io::Error::from_raw_os_error(libc::ETXTBSY),
        error => error.into(),
    }
}

pub(crate) fn shown(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

/// How often resolving a path is retried after a concurrent rename.
const RETRIES: u32 = 128;

/// A directory to resolve from, and the path below it.
pub(crate) struct Resolved<'a> {
    pub(crate) base: OwnedFd,
    pub(crate) path: Cow<'a, [u8]>,
    pub(crate) flags: ResolveFlags,
    /// Whether files of `/proc` are rejected: where it is the host's.
    rejects_proc: bool,
}

impl<'a> Resolved<'a> {
    /// Opens the base of a request. The caller holds [`As`].
    pub(crate) fn new(mode: &Mode, request: &'a PathRequest) -> io::Result<Self> {
        let open = |path: &[u8]| {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            rustix::fs::open(path, flags, FileMode::empty())
        };
        let rejects_proc = !mode.paths.is_own_root();
        match &request.beneath {
            Some(beneath) => Ok(Self {
                base: open(&mode.paths.resolve(beneath))?,
                path: Cow::Borrowed(&request.path),
                flags: ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS,
                rejects_proc,
            }),
            None => {
                let path = match mode.paths.resolve(&request.path) {
                    Cow::Borrowed(path) => Cow::Borrowed(below_root(path)),
                    Cow::Owned(path) => Cow::Owned(below_root(&path).to_vec()),
                };
                let flags = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
                Ok(Self { base: open(b"/")?, path, flags, rejects_proc })
            }
        }
    }

    pub(crate) fn open(&self, flags: OFlags) -> io::Result<OwnedFd> {
        self.open_path(&self.path, flags)
    }

    pub(crate) fn open_path(&self, path: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
        let open =
            || rustix::fs::openat2(&self.base, path, flags | OFlags::CLOEXEC, FileMode::empty(), self.flags);
        // After a concurrent rename anywhere the kernel cannot tell where `..` leads, and fails with EAGAIN.
        let mut opened = open();
        for _ in 0..RETRIES {
            if opened.as_ref().err() != Some(&rustix::io::Errno::AGAIN) {
                break;
            }
            opened = open();
        }
        let file = opened.map_err(leased)?;
        // The agent may read the host's `/proc`, but not because a link of the guest leads there.
        if self.rejects_proc && rustix::fs::fstatfs(&file)?.f_type == rustix::fs::PROC_SUPER_MAGIC {
            return Err(io::Error::from_raw_os_error(libc::EXDEV));
        }
        Ok(file)
    }

    /// Opens the directory that holds the last component, and that component.
    pub(crate) fn parent(&self) -> io::Result<(OwnedFd, &[u8])> {
        let trimmed = trim(&self.path);
        let (directory, name) = match trimmed.iter().rposition(|&byte| byte == b'/') {
            Some(at) => (&trimmed[..at], &trimmed[at + 1..]),
            None => (&b"."[..], trimmed),
        };
        if name.is_empty() || name == b"." {
            return Err(io::Error::from_raw_os_error(libc::EISDIR));
        }
        let directory = if directory.is_empty() { b"." } else { directory };
        Ok((self.open_path(directory, OFlags::PATH | OFlags::DIRECTORY)?, name))
    }

    /// Creates missing parent directories of the last component; adds those it created, outermost first.
    pub(crate) fn make_parents(&self, made: &mut Vec<Vec<u8>>) -> io::Result<()> {
        let trimmed = trim(&self.path);
        let Some(end) = trimmed.iter().rposition(|&byte| byte == b'/') else { return Ok(()) };
        self.make_directories(&trimmed[..end], made)
    }

    pub(crate) fn make_directories(&self, path: &[u8], made: &mut Vec<Vec<u8>>) -> io::Result<()> {
        let ends =
            path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at).chain([path.len()]);
        for end in ends {
            let prefix = &path[..end];
            if prefix.is_empty() || prefix.ends_with(b"/") {
                continue;
            }
            match self.open_path(prefix, OFlags::PATH | OFlags::DIRECTORY) {
                Ok(_) => continue,
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {}
                Err(error) => return Err(error),
            }
            let (above, name) = match prefix.iter().rposition(|&byte| byte == b'/') {
                Some(at) => (&prefix[..at], &prefix[at + 1..]),
                None => (&b"."[..], prefix),
            };
            let above = self
                .open_path(if above.is_empty() { b"." } else { above }, OFlags::PATH | OFlags::DIRECTORY)?;
            match rustix::fs::mkdirat(&above, name, FileMode::from_raw_mode(0o755)) {
                Ok(()) => made.push(prefix.to_vec()),
                Err(rustix::io::Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

fn below_root(path: &[u8]) -> &[u8] {
    match path.strip_prefix(b"/").unwrap_or(path) {
        [] => b".",
        inner => inner,
    }
}

fn trim(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|&byte| byte != b'/').map_or(0, |at| at + 1);
    &path[..end]
}

/// Creates a working directory with its missing parents.
pub(crate) fn make_directory(mode: &Mode, path: &[u8], user: GuestUser) -> Result<(), Failure> {
    // The usual case first, without allocations.
    if rustix::fs::access(&*mode.paths.resolve(path), rustix::fs::Access::EXISTS).is_ok() {
        return Ok(());
    }
    let request = PathRequest { path: path.to_vec().into(), beneath: None, user };
    let _as = As::user(mode, user);
    let make =
        || Resolved::new(mode, &request).and_then(|at| at.make_directories(trim(&at.path), &mut Vec::new()));
    make().map_err(|error| failure(&error, format!("make {}", shown(path))))
}

/// Metadata of one file; links are followed as far as the resolver allows.
pub(crate) fn stat(mode: &Mode, request: &PathRequest) -> Reply {
    let _as = As::user(mode, request.user);
    let look = || -> io::Result<Stat> {
        let file = Resolved::new(mode, request)?.open(OFlags::PATH)?;
        Ok(facts(mode, &rustix::fs::statat(&file, "", AtFlags::EMPTY_PATH)?))
    };
    match look() {
        Ok(stat) => Reply::Stat(stat),
        Err(error) => Reply::Failed(failure(&error, format!("stat {}", shown(&request.path)))),
    }
}

/// What a directory entry is.
pub(crate) fn kind_of(stat: &rustix::fs::Stat) -> FileKind {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => FileKind::File,
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink,
        _ => FileKind::Other,
    }
}

/// Metadata for the host.
pub(crate) fn facts(mode: &Mode, stat: &rustix::fs::Stat) -> Stat {
    // The sandbox user has the same ID inside, whatever its UID on the host is.
    let inside = |id: u32| match mode.users {
        GuestUsers::AgentOnly(user) if id == user => SANDBOX_ID,
        GuestUsers::AgentOnly(_) | GuestUsers::Switched => id,
    };
    Stat {
        kind: kind_of(stat),
        size: u64::try_from(stat.st_size).unwrap_or(0),
        mode: stat.st_mode & 0o7777,
        modified: stat.st_mtime,
        uid: inside(stat.st_uid),
        gid: inside(stat.st_gid),
        allocated: Some(u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512)),
    }
}

/// The first of `names` found on the standard path.
pub(crate) fn which(names: &[String]) -> Reply {
    const PATH: &[&str] = &["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];
    let found = names.iter().find_map(|name| {
        PATH.iter()
            .map(|directory| format!("{directory}/{name}"))
            .find(|path| rustix::fs::access(path.as_str(), rustix::fs::Access::EXEC_OK).is_ok())
    });
    Reply::Found(found.map(|path| path.into_bytes().into()))
}
