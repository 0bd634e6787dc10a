//! The root of a container sandbox: its layer, system directories, `/proc`, `/dev`, workspace.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::CONTROL_PROGRAM;
use super::mounts::{BindMode, bind, bind_recursive, mount_at};
use super::staging_root;
use super::writable_layer::{self, Outline};
use crate::request::{MakeRequest, Volume, volume};
use crate::sys::{Doing, Step};

/// Files and directories of `/proc` that describe, or reach into, the host. What only the host's
/// root may open anyway (no id of a sandbox is ever that) is covered here only where it is notorious.
const MASKED: &[&str] = &[
    "acpi",
    "asound",
    "bus",
    "fs",
    "irq",
    "kallsyms",
    "kcore",
    "key-users",
    "keys",
    "kmsg",
    "latency_stats",
    "sched_debug",
    "scsi",
    "sysrq-trigger",
    "timer_list",
];

/// One of those that this kernel has, and what covers it.
#[derive(Debug)]
pub(super) struct Cover {
    name: &'static str,
    with: &'static str,
}

/// What has to be covered on this kernel.
pub(super) fn covers() -> Vec<Cover> {
    let cover = |&name: &&'static str| {
        let meta = fs::symlink_metadata(Path::new("/proc").join(name)).ok()?;
        Some(Cover {
            name,
            with: if meta.is_dir() { staging_root::EMPTY_DIRECTORY } else { staging_root::EMPTY_FILE },
        })
    };
    MASKED.iter().filter_map(cover).collect()
}

/// Builds the root at [`staging_root::NEW_ROOT`]. Runs as root of the sandbox's user namespace.
pub(super) fn build(request: &MakeRequest, covers: &[Cover], outline: &Outline) -> Step<()> {
    let root = Path::new(staging_root::NEW_ROOT);
    writable_layer::mount_root(request, outline)?;
    for name in &request.system_directories {
        bind_recursive(&Path::new(staging_root::SYSTEM).join(name), &root.join(name))
            .doing(|| format!("show /{name}"))?;
    }
    if request.control {
        let target = root.join(CONTROL_PROGRAM.trim_start_matches('/'));
        bind(Path::new(staging_root::CONTROL_CLIENT), &target, BindMode::ReadOnly)
            .doing(|| format!("show {CONTROL_PROGRAM}"))?;
    }
    proc_file_system(root, covers)?;
    device_tree(root, request)?;
    if !matches!(request.volume, Volume::Memory) {
        let workspace = Path::new(staging_root::VOLUME).join(volume::WORKSPACE);
        bind(&workspace, &root.join("workspace"), BindMode::Writable)
            .doing(|| "show the workspace".into())?;
        for (name, place) in [
            (volume::USER_CACHE, writable_layer::USER_CACHE),
            (volume::SYSTEM_CACHE, writable_layer::SYSTEM_CACHE),
        ] {
            bind(&Path::new(staging_root::VOLUME).join(name), &root.join(place), BindMode::Writable)
                .doing(|| format!("show /{place}"))?;
        }
    }
    Ok(())
}

/// `/proc` of the sandbox's own processes; what concerns the host is covered, settings are read-only.
fn proc_file_system(root: &Path, covers: &[Cover]) -> Step<()> {
    let proc = root.join("proc");
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    mount_at(c"proc", &proc, c"proc", flags, "").doing(|| "mount /proc".into())?;
    for Cover { name, with } in covers {
        bind_recursive(Path::new(with), &proc.join(name)).doing(|| format!("cover /proc/{name}"))?;
    }
    let settings = proc.join("sys");
    bind(&settings, &settings, BindMode::ReadOnly).doing(|| "make /proc/sys read-only".into())
}

fn device_tree(root: &Path, request: &MakeRequest) -> Step<()> {
    let devices = root.join("dev");
    bind_recursive(Path::new(staging_root::DEVICES), &devices).doing(|| "show /dev".into())?;
    mount_at(
        c"devpts",
        &devices.join("pts"),
        c"devpts",
        libc::MS_NOSUID | libc::MS_NOEXEC,
        "newinstance,ptmxmode=0666,mode=0620,gid=5,max=256",
    )
    .doing(|| "mount /dev/pts".into())?;
    let shared_memory = devices.join("shm");
    match request.volume {
        // The writable layer is in memory already, with the flags and the limits this needs.
        Volume::Memory => {
            let place = Path::new(staging_root::STAGE).join("shm");
            fs::create_dir(&place)
                .and_then(|()| fs::set_permissions(&place, fs::Permissions::from_mode(0o1777)))
                .and_then(|()| bind_recursive(&place, &shared_memory))
        }
        Volume::Directory(_) | Volume::LoopDevice => {
            let options = format!(
                "mode=1777,size={},nr_inodes={}",
                request.tmpfs_bytes.min(64 << 20),
                request.tmpfs_inodes
            );
            mount_at(c"tmpfs", &shared_memory, c"tmpfs", libc::MS_NOSUID | libc::MS_NODEV, &options)
        }
    }
    .doing(|| "mount /dev/shm".into())?;
    bind_recursive(Path::new(staging_root::EMPTY_DIRECTORY), &root.join("sys"))
        .doing(|| "show an empty /sys".into())
}
