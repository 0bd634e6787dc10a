//! The staging root: the root file system of the fork server, built once at its start. It contains only
//! what sandboxes are built from (the template layer, the system directories read-only, a device tree,
//! the state directory), so that a process during set-up cannot reach the rest of the host, and copying
//! the fork server's mount table for each sandbox is cheap.

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use super::mounts::{BindMode, bind, bind_recursive, mount_at, path_string, set_attributes};
use super::template;
use crate::sys::{Doing, Step, mount, pivot_into_current_directory};

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

/// Builds the staging root and changes into it. The caller is alone in a fresh mount namespace; `state` is
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
    std::env::set_current_dir(scratch).doing(|| "enter the staging root".into())?;
    pivot_into_current_directory().doing(|| "pivot to the staging root".into())
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
