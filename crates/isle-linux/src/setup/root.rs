//! The root of a container sandbox: layers, system directories, `/proc`, `/dev`, workspace.

use std::ffi::CStr;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use super::berth::{self, BindMode, bind, bind_recursive, mount_at};
use super::template::OWN_ETC;
use super::{SANDBOX_HOME, SANDBOX_ID};
use crate::request::{MakeRequest, Volume, volume};
use crate::sys::{Doing, Step, c_string, mount};

/// Files and directories of `/proc` that tell about, or reach into, the host. What only the host's
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

/// Builds the root at [`berth::NEW_ROOT`]. Runs as root of the sandbox's user namespace.
pub(super) fn build(request: &MakeRequest) -> Step<()> {
    let root = Path::new(berth::NEW_ROOT);
    let (layer, work) = writable_layer(request)?;
    let in_memory = matches!(request.volume, Volume::Memory);
    populate(&layer, in_memory).doing(|| "fill the writable layer".into())?;
    overlay(&layer, &work).doing(|| "mount the root".into())?;
    for name in &request.system_directories {
        bind_recursive(&Path::new(berth::SYSTEM).join(name), &root.join(name))
            .doing(|| format!("show /{name}"))?;
    }
    proc_file_system(root)?;
    device_tree(root, request)?;
    if !in_memory {
        let workspace = Path::new(berth::VOLUME).join(volume::WORKSPACE);
        bind(&workspace, &root.join("workspace"), BindMode::Writable)
            .doing(|| "show the workspace".into())?;
    }
    Ok(())
}

/// Where the writable layer and overlayfs's working directory are.
fn writable_layer(request: &MakeRequest) -> Step<(PathBuf, PathBuf)> {
    let place = match &request.volume {
        Volume::Memory => {
            let options =
                format!("mode=0755,size={},nr_inodes={}", request.tmpfs_bytes, request.tmpfs_inodes);
            mount_at(c"tmpfs", Path::new(berth::STAGE), c"tmpfs", libc::MS_NOSUID | libc::MS_NODEV, &options)
                .doing(|| "mount the writable layer".into())?;
            PathBuf::from(berth::STAGE)
        }
        Volume::Directory(_) | Volume::LoopDevice => {
            let layers = Path::new(berth::VOLUME).join(volume::LAYERS);
            remove_other_layers(&layers, &request.layer);
            layers.join(&request.layer)
        }
    };
    let (layer, work) = (place.join("layer"), place.join("work"));
    for directory in [&layer, &work] {
        match fs::create_dir(directory) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            result => result.doing(|| format!("make {}", directory.display()))?,
        }
    }
    Ok((layer, work))
}

/// A volume serves one sandbox at a time: other layers are what earlier ones left. One that cannot be
/// removed takes room of this volume only.
fn remove_other_layers(layers: &Path, own: &str) {
    for entry in fs::read_dir(layers).into_iter().flatten().flatten() {
        if entry.file_name() != own {
            crate::tree::remove(&entry.path()).ok();
        }
    }
}

/// What the layer must hold because it belongs to the sandbox's own users.
fn populate(layer: &Path, own_workspace: bool) -> io::Result<()> {
    let make = |name: &str, mode: u32, owner: u32| -> io::Result<()> {
        let path = layer.join(name);
        match fs::DirBuilder::new().mode(mode).create(&path) {
            Ok(()) => {}
            // A layer that was used before: what the guest left there is not followed or changed.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
            Err(error) => return Err(error),
        }
        if mode & 0o1000 != 0 {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
        }
        if owner != 0 { chown(&path, Some(owner), Some(owner)) } else { Ok(()) }
    };
    make("etc", 0o755, 0)?;
    make("home", 0o755, 0)?;
    make(SANDBOX_HOME.trim_start_matches('/'), 0o755, SANDBOX_ID)?;
    make("root", 0o700, 0)?;
    make("run", 0o755, 0)?;
    make("tmp", 0o1777, 0)?;
    make("var", 0o755, 0)?;
    make("var/tmp", 0o1777, 0)?;
    make("workspace", 0o755, if own_workspace { SANDBOX_ID } else { 0 })?;
    for (name, content) in OWN_ETC {
        let path = layer.join("etc").join(name);
        match fs::OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(mut file) => io::Write::write_all(&mut file, content.as_bytes())?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn overlay(layer: &Path, work: &Path) -> io::Result<()> {
    let options = format!(
        "lowerdir={},upperdir={},workdir={},userxattr",
        berth::TEMPLATE,
        layer.display(),
        work.display()
    );
    mount_at(c"overlay", Path::new(berth::NEW_ROOT), c"overlay", libc::MS_NOSUID | libc::MS_NODEV, &options)
}

/// `/proc` of the sandbox's own processes; what concerns the host is covered, settings are read-only.
fn proc_file_system(root: &Path) -> Step<()> {
    let proc = root.join("proc");
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    mount_at(c"proc", &proc, c"proc", flags, "").doing(|| "mount /proc".into())?;
    // Lets the sandbox user serve on any port of its own loopback.
    fs::write(proc.join("sys/net/ipv4/ip_unprivileged_port_start"), b"0")
        .doing(|| "open low ports of the sandbox's loopback".into())?;
    for name in MASKED {
        let target = proc.join(name);
        let Ok(meta) = fs::symlink_metadata(&target) else { continue };
        let cover = if meta.is_dir() { berth::EMPTY_DIRECTORY } else { berth::EMPTY_FILE };
        bind_recursive(Path::new(cover), &target).doing(|| format!("cover /proc/{name}"))?;
    }
    let settings = proc.join("sys");
    bind(&settings, &settings, BindMode::ReadOnly).doing(|| "make /proc/sys read-only".into())
}

fn device_tree(root: &Path, request: &MakeRequest) -> Step<()> {
    let devices = root.join("dev");
    bind_recursive(Path::new(berth::DEVICES), &devices).doing(|| "show /dev".into())?;
    mount_at(
        c"devpts",
        &devices.join("pts"),
        c"devpts",
        libc::MS_NOSUID | libc::MS_NOEXEC,
        "newinstance,ptmxmode=0666,mode=0620,gid=5,max=256",
    )
    .doing(|| "mount /dev/pts".into())?;
    let options =
        format!("mode=1777,size={},nr_inodes={}", request.tmpfs_bytes.min(64 << 20), request.tmpfs_inodes);
    mount_at(c"tmpfs", &devices.join("shm"), c"tmpfs", libc::MS_NOSUID | libc::MS_NODEV, &options)
        .doing(|| "mount /dev/shm".into())?;
    let sys: &CStr = c"tmpfs";
    let target = c_string(format!("{}/sys", berth::NEW_ROOT)).doing(|| "name /sys".into())?;
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC | libc::MS_RDONLY;
    mount(sys, &target, Some(sys), flags, Some(c"size=4k,nr_inodes=2,mode=0555"))
        .doing(|| "mount an empty /sys".into())
}
