//! What a sandbox may change of its root. Usually that is an overlay: the template of the image below, a
//! layer of the sandbox's own above. Where `/etc` will not be changed, the root is a tmpfs with the
//! template's `/etc` shown in it, which costs the kernel less to make and much less to take apart.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown, lchown, symlink};
use std::path::{Path, PathBuf};

use super::mounts::{BindMode, bind, bind_recursive, mount_at};
use super::staging_root;
use super::template::OWN_ETC;
use super::{CONTROL_DIRECTORY, CONTROL_PROGRAM, SANDBOX_HOME, SANDBOX_ID};
use crate::request::{MakeRequest, Volume, volume};
use crate::sys::{Doing, Step};

/// Directories in which systems keep the authorities they believe. They are the sandbox's own, so that one
/// can be added to them; what is in them is the template's.
const STORES: &[&str] = &[
    "etc/ssl",
    "etc/ssl/certs",
    "etc/ssl/certs/java",
    "etc/ca-certificates",
    "etc/ca-certificates/extracted",
    "etc/ca-certificates/trust-source",
    "etc/ca-certificates/trust-source/anchors",
    "etc/var-ca-certificates",
    "etc/var-ca-certificates/openssl",
    "etc/var-ca-certificates/pem",
    "etc/pki",
    "etc/pki/ca-trust",
    "etc/pki/ca-trust/extracted",
    "etc/pki/ca-trust/extracted/java",
    "etc/pki/ca-trust/extracted/pem",
    "etc/pki/ca-trust/extracted/pem/directory-hash",
    "etc/pki/ca-trust/source",
    "etc/pki/ca-trust/source/anchors",
    "etc/pki/java",
    "etc/pki/tls",
    "etc/pki/tls/certs",
    "etc/pki/trust",
    "etc/pki/trust/anchors",
];

/// Where caches are shown that outlive the writable layer.
pub(super) const USER_CACHE: &str = "home/sandbox/.cache";
pub(super) const SYSTEM_CACHE: &str = "var/cache";
/// npm looks for its own beside the others'.
const NODE_CACHE_LINK: (&str, &str) = ("home/sandbox/.npm", ".cache/npm");

/// What the template has, as far as a layer is made after it. Read once.
#[derive(Debug)]
pub(super) struct Outline {
    /// Directories of its root, of `var` and below, parents first.
    directories: Vec<PathBuf>,
    /// Links there, and where they point to.
    links: Vec<(PathBuf, PathBuf)>,
    /// Those of the [directories of authorities](STORES) that are there.
    stores: Vec<&'static str>,
}

impl Outline {
    /// Of the template below the staging root.
    pub(super) fn of_template() -> Self {
        let template = Path::new(staging_root::TEMPLATE);
        let is_there =
            |name: &&str| fs::symlink_metadata(template.join(name)).is_ok_and(|meta| meta.is_dir());
        let stores = STORES.iter().copied().filter(is_there).collect();
        let (mut directories, mut links) = (Vec::new(), Vec::new());
        for place in ["", "var", "var/lib"] {
            for entry in fs::read_dir(template.join(place)).into_iter().flatten().flatten() {
                let name = Path::new(place).join(entry.file_name());
                match fs::read_link(entry.path()) {
                    Ok(target) => links.push((name, target)),
                    Err(_) => directories.push(name),
                }
            }
        }
        Self { directories, links, stores }
    }
}

/// Mounts the root at [`staging_root::NEW_ROOT`], with everything in it that is the sandbox's own.
///
/// A volume can be so full that it has no room for a layer, and its guest can make it so. Then the layer is
/// in memory: workspace and caches are still on the volume, and files can be removed from inside.
/// Room kept back in the volume would not do: a guest that takes its layer's place after every start uses
/// it up.
pub(super) fn mount_root(request: &MakeRequest, outline: &Outline) -> Step<()> {
    let place = match &request.volume {
        Volume::Memory => {
            mount_memory(request)?;
            PathBuf::from(staging_root::STAGE)
        }
        Volume::Directory(_) | Volume::LoopDevice => {
            let layers = Path::new(staging_root::VOLUME).join(volume::LAYERS);
            remove_other_layers(&layers, &request.layer);
            layers.join(&request.layer)
        }
    };
    let was_used = place.join("layer").exists();
    match mount_layer(request, outline, &place) {
        Err(error) if request.volume.is_full(&error.source) => {
            if !was_used {
                // What was made of it would only take room.
                crate::tree::remove(&place).ok();
            }
            mount_memory(request)?;
            mount_layer(request, outline, Path::new(staging_root::STAGE))
        }
        mounted => mounted,
    }
}

/// Mounts a file system in memory for the layer.
fn mount_memory(request: &MakeRequest) -> Step<()> {
    let options = format!("mode=0755,size={},nr_inodes={}", request.tmpfs_bytes, request.tmpfs_inodes);
    mount_at(c"tmpfs", Path::new(staging_root::STAGE), c"tmpfs", libc::MS_NOSUID | libc::MS_NODEV, &options)
        .doing(|| "mount the writable layer".into())
}

/// Makes the layer in `place` and mounts the root with it.
fn mount_layer(request: &MakeRequest, outline: &Outline, place: &Path) -> Step<()> {
    // Overlayfs wants a working directory beside the layer.
    let (layer, work) = (place.join("layer"), place.join("work"));
    for directory in [place, &layer, &work] {
        existing(fs::create_dir(directory)).doing(|| format!("make {}", directory.display()))?;
    }
    let in_memory = matches!(request.volume, Volume::Memory);
    let fixed_etc = request.fixed_etc && in_memory;
    if fixed_etc {
        populate_whole(&layer, outline).doing(|| "fill the root".into())?;
    } else {
        populate(&layer, in_memory, &outline.stores).doing(|| "fill the writable layer".into())?;
    }
    if request.control {
        make_control(&layer).doing(|| "make the place of the control socket".into())?;
    }
    let root = Path::new(staging_root::NEW_ROOT);
    if fixed_etc {
        bind_recursive(&layer, root).doing(|| "mount the root".into())?;
        let etc = Path::new(staging_root::TEMPLATE).join("etc");
        return bind(&etc, &root.join("etc"), BindMode::ReadOnly).doing(|| "show /etc".into());
    }
    overlay(&layer, &work).doing(|| "mount the root".into())?;
    if in_memory {
        return Ok(());
    }
    // Without room for its working directory overlayfs mounts read-only and calls that a success.
    let mounted = rustix::fs::statvfs(root).map_err(io::Error::from).doing(|| "look at the root".into())?;
    if mounted.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY) {
        rustix::mount::unmount(root, rustix::mount::UnmountFlags::DETACH)
            .map_err(io::Error::from)
            .doing(|| "take the root away".into())?;
        return Err(io::Error::from_raw_os_error(libc::ENOSPC)).doing(|| "mount the root".into());
    }
    Ok(())
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

/// A new directory.
fn directory(path: &Path, mode: u32, owner: u32) -> io::Result<()> {
    fs::DirBuilder::new().mode(mode).create(path)?;
    if mode & 0o1000 != 0 {
        fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    }
    if owner != 0 { chown(path, Some(owner), Some(owner)) } else { Ok(()) }
}

/// What is there already is as good as made.
fn existing(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        result => result,
    }
}

/// A root without a layer below it.
fn populate_whole(layer: &Path, outline: &Outline) -> io::Result<()> {
    for name in &outline.directories {
        let (mode, owner) = match name.to_str() {
            Some("root") => (0o700, 0),
            Some("tmp") => (0o1777, 0),
            Some("workspace") => (0o755, SANDBOX_ID),
            _ => (0o755, 0),
        };
        directory(&layer.join(name), mode, owner)?;
    }
    directory(&layer.join("var/tmp"), 0o1777, 0)?;
    directory(&layer.join(SANDBOX_HOME.trim_start_matches('/')), 0o755, SANDBOX_ID)?;
    outline.links.iter().try_for_each(|(name, target)| symlink(target, layer.join(name)))
}

/// What the layer must hold because it belongs to the sandbox's own users.
fn populate(layer: &Path, own_workspace: bool, stores: &[&str]) -> io::Result<()> {
    // In a layer that was used before, what the guest left is not followed or changed.
    let make = |name: &str, mode: u32, owner: u32| existing(directory(&layer.join(name), mode, owner));
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
    make("var/lib", 0o755, 0)?;
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
    let at = |path: &str| layer.join(path.trim_start_matches('/'));
    existing(fs::DirBuilder::new().mode(0o755).create(at(CONTROL_DIRECTORY)))?;
    existing(fs::OpenOptions::new().write(true).create_new(true).open(at(CONTROL_PROGRAM)).map(drop))
}

fn overlay(layer: &Path, work: &Path) -> io::Result<()> {
    let options = format!(
        "lowerdir={},upperdir={},workdir={},userxattr",
        staging_root::TEMPLATE,
        layer.display(),
        work.display()
    );
    mount_at(
        c"overlay",
        Path::new(staging_root::NEW_ROOT),
        c"overlay",
        libc::MS_NOSUID | libc::MS_NODEV,
        &options,
    )
}
