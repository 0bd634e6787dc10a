//! The root of a container sandbox: layers, system directories, `/proc`, `/dev`, workspace.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown, lchown, symlink};
use std::path::{Path, PathBuf};

use super::berth::{self, BindMode, bind, bind_recursive, mount_at};
use super::template::OWN_ETC;
use super::{CONTROL_DIRECTORY, CONTROL_PROGRAM, SANDBOX_HOME, SANDBOX_ID};
use crate::request::{MakeRequest, Volume, volume};
use crate::sys::{Doing, Step};

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

/// Directories in which systems keep the authorities they believe. They are the sandbox's own, so that one
/// can be added to them; what is in them is the template's.
const STORES: &[&str] = &[
    "etc/ssl",
    "etc/ssl/certs",
    "etc/ssl/certs/java",
    "etc/pki",
    "etc/pki/ca-trust",
    "etc/pki/ca-trust/extracted",
    "etc/pki/ca-trust/extracted/java",
    "etc/pki/ca-trust/extracted/pem",
    "etc/pki/java",
    "etc/pki/tls",
    "etc/pki/tls/certs",
];

/// Where caches are shown that outlive the writable layer.
const USER_CACHE: &str = "home/sandbox/.cache";
const SYSTEM_CACHE: &str = "var/cache";
/// npm looks for its own beside the others'.
const NODE_CACHE_LINK: (&str, &str) = ("home/sandbox/.npm", ".cache/npm");

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
        Some(Cover { name, with: if meta.is_dir() { berth::EMPTY_DIRECTORY } else { berth::EMPTY_FILE } })
    };
    MASKED.iter().filter_map(cover).collect()
}

/// Those of the directories of authorities that the template has.
pub(super) fn stores() -> Vec<&'static str> {
    let template = Path::new(berth::TEMPLATE);
    let is_there = |name: &&str| fs::symlink_metadata(template.join(name)).is_ok_and(|meta| meta.is_dir());
    STORES.iter().copied().filter(is_there).collect()
}

/// Builds the root at [`berth::NEW_ROOT`]. Runs as root of the sandbox's user namespace.
pub(super) fn build(request: &MakeRequest, covers: &[Cover], stores: &[&str]) -> Step<()> {
    let root = Path::new(berth::NEW_ROOT);
    let (layer, work) = writable_layer(request)?;
    let in_memory = matches!(request.volume, Volume::Memory);
    populate(&layer, in_memory, stores).doing(|| "fill the writable layer".into())?;
    if request.control {
        make_control(&layer).doing(|| "make the place of the control socket".into())?;
    }
    overlay(&layer, &work).doing(|| "mount the root".into())?;
    for name in &request.system_directories {
        bind_recursive(&Path::new(berth::SYSTEM).join(name), &root.join(name))
            .doing(|| format!("show /{name}"))?;
    }
    if request.control {
        let target = root.join(CONTROL_PROGRAM.trim_start_matches('/'));
        bind(Path::new(berth::CONTROL_CLIENT), &target, BindMode::ReadOnly)
            .doing(|| format!("show {CONTROL_PROGRAM}"))?;
    }
    proc_file_system(root, covers)?;
    device_tree(root, request)?;
    if !in_memory {
        let workspace = Path::new(berth::VOLUME).join(volume::WORKSPACE);
        bind(&workspace, &root.join("workspace"), BindMode::Writable)
            .doing(|| "show the workspace".into())?;
        for (name, place) in [(volume::USER_CACHE, USER_CACHE), (volume::SYSTEM_CACHE, SYSTEM_CACHE)] {
            bind(&Path::new(berth::VOLUME).join(name), &root.join(place), BindMode::Writable)
                .doing(|| format!("show /{place}"))?;
        }
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
fn populate(layer: &Path, own_workspace: bool, stores: &[&str]) -> io::Result<()> {
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
    for name in stores {
        make(name, 0o755, 0)?;
    }
    make("home", 0o755, 0)?;
    make(SANDBOX_HOME.trim_start_matches('/'), 0o755, SANDBOX_ID)?;
    make("root", 0o700, 0)?;
    make("run", 0o755, 0)?;
    make("tmp", 0o1777, 0)?;
    make("var", 0o755, 0)?;
    make("var/tmp", 0o1777, 0)?;
    make("workspace", 0o755, if own_workspace { SANDBOX_ID } else { 0 })?;
    if !own_workspace {
        make(USER_CACHE, 0o755, SANDBOX_ID)?;
        make(SYSTEM_CACHE, 0o755, 0)?;
        let (link, target) = NODE_CACHE_LINK;
        match symlink(target, layer.join(link)) {
            Ok(()) => lchown(layer.join(link), Some(SANDBOX_ID), Some(SANDBOX_ID))?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
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

/// A directory for the socket, and a file for the client to be shown at.
fn make_control(layer: &Path) -> io::Result<()> {
    let existing = |result: io::Result<()>| match result {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        result => result,
    };
    let at = |path: &str| layer.join(path.trim_start_matches('/'));
    existing(fs::DirBuilder::new().mode(0o755).create(at(CONTROL_DIRECTORY)))?;
    existing(fs::OpenOptions::new().write(true).create_new(true).open(at(CONTROL_PROGRAM)).map(drop))
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
    bind_recursive(Path::new(berth::DEVICES), &devices).doing(|| "show /dev".into())?;
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
            let place = Path::new(berth::STAGE).join("shm");
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
    bind_recursive(Path::new(berth::EMPTY_DIRECTORY), &root.join("sys")).doing(|| "show an empty /sys".into())
}
