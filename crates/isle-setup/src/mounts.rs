//! Mounting by path: bind mounts with attributes, and new file systems.

use std::ffi::CString;
use std::io;
use std::path::Path;

use crate::sys::{c_string, mount};

/// Whether a bind may be written through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BindMode {
    /// No.
    ReadOnly,
    /// Yes.
    Writable,
}

/// Binds one mount, never honouring set-uid bits or device nodes found in it.
pub fn bind(source: &Path, target: &Path, mode: BindMode) -> io::Result<()> {
    bind_recursive(source, target)?;
    let mut attributes = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;
    if mode == BindMode::ReadOnly {
        attributes |= libc::MOUNT_ATTR_RDONLY;
    }
    set_attributes(target, attributes)
}

/// Binds a tree as it is.
pub fn bind_recursive(source: &Path, target: &Path) -> io::Result<()> {
    mount(&path_string(source)?, &path_string(target)?, None, libc::MS_BIND | libc::MS_REC, None)
}

/// Adds mount attributes to a whole tree.
pub(crate) fn set_attributes(target: &Path, attributes: u64) -> io::Result<()> {
    let path = path_string(target)?;
    let request = libc::mount_attr { attr_set: attributes, attr_clr: 0, propagation: 0, userns_fd: 0 };
    // SAFETY: the kernel reads `size_of(mount_attr)` bytes of `request` and a NUL-terminated path.
    crate::sys::check(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            path.as_ptr(),
            libc::AT_RECURSIVE,
            &raw const request,
            size_of::<libc::mount_attr>(),
        )
    })
    .map(drop)
}

/// Mounts a new file system of `kind`.
pub fn mount_at(
    source: &std::ffi::CStr,
    target: &Path,
    kind: &std::ffi::CStr,
    flags: libc::c_ulong,
    data: &str,
) -> io::Result<()> {
    mount(source, &path_string(target)?, Some(kind), flags, Some(&c_string(data)?))
}

pub(crate) fn path_string(path: &Path) -> io::Result<CString> {
    use std::os::unix::ffi::OsStrExt;
    c_string(path.as_os_str().as_bytes())
}
