//! Raw system calls and the few wrappers several attacks share.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A system call by number. Arguments are numbers, or pointers to locals that outlive the call.
macro_rules! kernel_call {
    ($number:expr $(, $argument:expr)* $(,)?) => {
        // SAFETY: numbers, or pointers to locals that live through the call, in the shape it wants.
        crate::kernel::result(unsafe { libc::syscall($number $(, $argument)*) })
    };
}

/// A call of the C library that returns -1 and sets `errno`.
macro_rules! library_call {
    ($function:ident ( $($argument:expr),* $(,)? )) => {
        // SAFETY: numbers, or pointers to locals that live through the call, in the shape it wants.
        crate::kernel::result(libc::c_long::from(unsafe { libc::$function($($argument),*) }))
    };
}

pub(crate) fn result(value: libc::c_long) -> io::Result<libc::c_long> {
    if value == -1 { Err(io::Error::last_os_error()) } else { Ok(value) }
}

/// A descriptor a call returned.
pub(crate) fn descriptor(value: io::Result<libc::c_long>) -> io::Result<OwnedFd> {
    let number = RawFd::try_from(value?).map_err(|_| io::Error::from_raw_os_error(libc::EBADF))?;
    // SAFETY: a fresh descriptor nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

pub(crate) fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}

pub(crate) fn c_text(text: &str) -> io::Result<CString> {
    c_path(Path::new(text))
}

/// Opens for writing and writes nothing.
pub(crate) fn open_to_write(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)
}

/// Opens for reading; never waits.
pub(crate) fn open_to_read(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)
}

/// The beginning of a file.
pub(crate) fn beginning(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_to_read(path)?.take(4096).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Whether a text occurs in bytes.
pub(crate) fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len().max(1)).any(|window| window == text.as_bytes())
}

/// A name of its own in the working directory, for files an attack makes and removes.
pub(crate) fn scratch(name: &str) -> PathBuf {
    PathBuf::from(format!("isle-probe-{}-{name}", std::process::id()))
}

/// A file of its own that goes away again.
#[derive(Debug)]
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    /// An empty file in the working directory.
    pub(crate) fn file(name: &str) -> io::Result<Self> {
        let path = scratch(name);
        OpenOptions::new().write(true).create_new(true).open(&path)?;
        Ok(Self(path))
    }

    /// An empty directory in the working directory.
    pub(crate) fn directory(name: &str) -> io::Result<Self> {
        let path = scratch(name);
        std::fs::create_dir(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if std::fs::remove_file(&self.0).is_err() {
            std::fs::remove_dir(&self.0).ok();
        }
    }
}

/// Processes `/proc` shows.
pub(crate) fn visible_processes() -> io::Result<Vec<i32>> {
    let entries = std::fs::read_dir("/proc")?;
    Ok(entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
}

/// Device and inode of an open file.
pub(crate) fn identity(file: &impl AsRawFd) -> io::Result<(u64, u64)> {
    // SAFETY: plain data for which zero is valid.
    let mut meta: libc::stat = unsafe { std::mem::zeroed() };
    library_call!(fstat(file.as_raw_fd(), &raw mut meta))?;
    Ok((meta.st_dev, meta.st_ino))
}

/// The name of an error number.
pub(crate) fn errno_name(error: &io::Error) -> String {
    const NAMES: &[(i32, &str)] = &[
        (libc::EPERM, "EPERM"),
        (libc::ENOENT, "ENOENT"),
        (libc::ESRCH, "ESRCH"),
        (libc::EIO, "EIO"),
        (libc::ENXIO, "ENXIO"),
        (libc::E2BIG, "E2BIG"),
        (libc::ENOEXEC, "ENOEXEC"),
        (libc::EBADF, "EBADF"),
        (libc::EAGAIN, "EAGAIN"),
        (libc::ENOMEM, "ENOMEM"),
        (libc::EACCES, "EACCES"),
        (libc::EFAULT, "EFAULT"),
        (libc::EBUSY, "EBUSY"),
        (libc::EEXIST, "EEXIST"),
        (libc::EXDEV, "EXDEV"),
        (libc::ENODEV, "ENODEV"),
        (libc::ENOTDIR, "ENOTDIR"),
        (libc::EISDIR, "EISDIR"),
        (libc::EINVAL, "EINVAL"),
        (libc::EMFILE, "EMFILE"),
        (libc::ENOTTY, "ENOTTY"),
        (libc::ETXTBSY, "ETXTBSY"),
        (libc::EFBIG, "EFBIG"),
        (libc::ENOSPC, "ENOSPC"),
        (libc::EROFS, "EROFS"),
        (libc::ELOOP, "ELOOP"),
        (libc::ENOSYS, "ENOSYS"),
        (libc::ENOTEMPTY, "ENOTEMPTY"),
        (libc::EPROTONOSUPPORT, "EPROTONOSUPPORT"),
        (libc::ESOCKTNOSUPPORT, "ESOCKTNOSUPPORT"),
        (libc::EOPNOTSUPP, "EOPNOTSUPP"),
        (libc::EAFNOSUPPORT, "EAFNOSUPPORT"),
        (libc::EADDRNOTAVAIL, "EADDRNOTAVAIL"),
        (libc::ENETUNREACH, "ENETUNREACH"),
        (libc::EHOSTUNREACH, "EHOSTUNREACH"),
        (libc::ECONNREFUSED, "ECONNREFUSED"),
        (libc::ETIMEDOUT, "ETIMEDOUT"),
        (libc::EDQUOT, "EDQUOT"),
        (libc::EUSERS, "EUSERS"),
    ];
    let Some(number) = error.raw_os_error() else { return error.kind().to_string() };
    NAMES
        .iter()
        .find(|(known, _)| *known == number)
        .map_or_else(|| format!("error {number}"), |(_, name)| (*name).to_owned())
}
