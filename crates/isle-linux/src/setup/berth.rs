//! The berth: the fork server's own root, made once. It holds only what sandboxes are made from
//! (the template layer, the system directories read-only, a device tree, the state directory), so
//! that a process being set up never has the rest of the host within reach, and copying the mounts
//! of the fork server for each sandbox costs little.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use super::template;
use crate::sys::{Doing, Step, c_string, mount, pivot_into_current_directory};

/// Host image's lowest layer.
pub const TEMPLATE: &str = "/template";
/// State directory of the native backend.
pub const STATE: &str = "/state";
/// Devices shown to every sandbox.
pub const DEVICES: &str = "/devices";
/// Mount point of a sandbox's writable layer while it is set up.
pub const STAGE: &str = "/stage";
/// Mount point of a volume image while a sandbox is set up.
pub const VOLUME: &str = "/volume";
/// Mount point of a sandbox's root while it is set up.
pub const NEW_ROOT: &str = "/new-root";
/// Covers files of `/proc`.
pub const EMPTY_FILE: &str = "/empty-file";
/// Covers directories of `/proc`.
pub const EMPTY_DIRECTORY: &str = "/empty-directory";
/// The client of control sockets: this very program under another name.
pub const CONTROL_CLIENT: &str = "/isle-ctl";
/// System directories, read-only.
pub const SYSTEM: &str = "/system";

/// Devices a sandbox has.
const DEVICE_NODES: &[&str] = &["null", "zero", "full", "random", "urandom", "tty"];

/// Makes the berth and moves into it. The caller is alone in a fresh mount namespace; `state` is
/// the host's path of the state directory, `scratch` an empty directory to build on.
pub fn enter(state: &Path, scratch: &Path) -> Step<()> {
    let at = |name: &str| scratch.join(name.trim_start_matches('/'));
    // The daemon may have been started with a umask of its own; sandboxes see what is made here.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    let flags = libc::MS_REC | libc::MS_PRIVATE;
    mount(c"none", c"/", None, flags, None).doing(|| "make mounts private".into())?;
    mount_at(c"tmpfs", scratch, c"tmpfs", libc::MS_NOSUID | libc::MS_NODEV, "mode=0755,size=64m")
        .doing(|| format!("mount a tmpfs on {}", scratch.display()))?;
    for name in [TEMPLATE, STATE, DEVICES, STAGE, VOLUME, NEW_ROOT, EMPTY_DIRECTORY, SYSTEM, "/proc"] {
        fs::create_dir(at(name)).doing(|| format!("make {name}"))?;
    }
    fs::write(at(EMPTY_FILE), b"").doing(|| "make an empty file".into())?;
    fs::copy("/proc/self/exe", at(CONTROL_CLIENT))
        .and_then(|_| fs::set_permissions(at(CONTROL_CLIENT), fs::Permissions::from_mode(0o755)))
        .doing(|| "copy the client of control sockets".into())?;
    template::build(Path::new("/"), &at(TEMPLATE)).doing(|| "build the template of image `host`".into())?;
    for name in template::system_directories() {
        let target = at(SYSTEM).join(&name);
        fs::create_dir(&target).doing(|| format!("make {name}"))?;
        bind(&Path::new("/").join(&name), &target, BindMode::ReadOnly).doing(|| format!("show /{name}"))?;
    }
    devices(&at(DEVICES)).doing(|| "make the device tree".into())?;
    bind(state, &at(STATE), BindMode::Writable).doing(|| format!("show {}", state.display()))?;
    bind_recursive(Path::new("/proc"), &at("/proc")).doing(|| "show /proc".into())?;
    for name in [EMPTY_FILE, EMPTY_DIRECTORY] {
        bind(&at(name), &at(name), BindMode::ReadOnly)
            .and_then(|()| set_attributes(&at(name), libc::MOUNT_ATTR_NOEXEC))
            .doing(|| format!("make {name} read-only"))?;
    }
    std::env::set_current_dir(scratch).doing(|| "enter the berth".into())?;
    pivot_into_current_directory().doing(|| "make the berth the root".into())
}

/// A small read-only tree: nodes bound from the host, mount points for terminals and shared memory.
fn devices(target: &Path) -> io::Result<()> {
    mount_at(c"tmpfs", target, c"tmpfs", libc::MS_NOSUID | libc::MS_NOEXEC, "mode=0755,size=64k")?;
    for name in DEVICE_NODES {
        let node = target.join(name);
        fs::write(&node, b"")?;
        bind_recursive(&Path::new("/dev").join(name), &node)?;
        // A device is written to all the same; its times and rights, which are the host's, are not.
        set_attributes(&node, libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NOEXEC)?;
    }
    for name in ["pts", "shm", "mqueue"] {
        fs::create_dir(target.join(name))?;
    }
    for (link, points_to) in [
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
        ("ptmx", "pts/ptmx"),
        ("core", "/proc/kcore"),
    ] {
        symlink(points_to, target.join(link))?;
    }
    let path = path_string(target)?;
    let flags = libc::MS_REMOUNT | libc::MS_BIND | libc::MS_RDONLY | libc::MS_NOSUID | libc::MS_NOEXEC;
    mount(c"none", &path, None, flags, None)
}

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
fn set_attributes(target: &Path, attributes: u64) -> io::Result<()> {
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

fn path_string(path: &Path) -> io::Result<CString> {
    use std::os::unix::ffi::OsStrExt;
    c_string(path.as_os_str().as_bytes())
}
