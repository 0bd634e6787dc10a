//! The volume of a sandbox, mounted where its clone finds it.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::chown;
use std::path::Path;

use isle_setup::request::{MakeRequest, Volume, outside, volume};
use isle_setup::sys::{Doing, Step};
use isle_setup::{SANDBOX_ID, mounts, staging_root};

/// A volume mounted at [`staging_root::VOLUME`] while a sandbox is cloned.
pub(super) struct AttachedVolume;

impl Drop for AttachedVolume {
    fn drop(&mut self) {
        // The sandbox has a copy of the mount; a failure would only leave one more mount behind.
        rustix::mount::unmount(staging_root::VOLUME, rustix::mount::UnmountFlags::DETACH).ok();
    }
}

/// Mounts the volume of a request and creates the directories the set-up expects.
pub(super) fn attach_volume(
    request: &MakeRequest,
    loop_device: Option<&OwnedFd>,
) -> Step<Option<AttachedVolume>> {
    let target = Path::new(staging_root::VOLUME);
    match (&request.volume, loop_device) {
        (Volume::Memory, _) => return Ok(None),
        (Volume::Directory(path), _) => {
            let source = Path::new(staging_root::STATE).join(path);
            mounts::bind(&source, target, mounts::BindMode::Writable).doing(|| "bind the volume".into())?;
        }
        (Volume::LoopDevice, Some(device)) => {
            let source = format!("/proc/self/fd/{}", device.as_raw_fd());
            let source = isle_setup::sys::c_string(source).doing(|| "name the volume".into())?;
            mounts::mount_at(
                &source,
                target,
                c"ext4",
                libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOATIME,
                "discard",
            )
            .doing(|| "mount the volume".into())?;
        }
        (Volume::LoopDevice, None) => {
            return Err(io::Error::from_raw_os_error(libc::EBADF))
                .doing(|| "find the volume's device".into());
        }
    }
    let attached = AttachedVolume;
    let root = outside(&request.ids, 0).unwrap_or(0);
    let user = outside(&request.ids, SANDBOX_ID).unwrap_or(0);
    let own = |path: &Path, owner: u32| -> io::Result<()> {
        match fs::create_dir(path) {
            Ok(()) => chown(path, Some(owner), Some(owner)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(error),
        }
    };
    let layers = target.join(volume::LAYERS);
    own(&layers, root).doing(|| "create the directory of layers".into())?;
    // On a full volume the set-up frees space or puts the layer elsewhere; doing that here would block the
    // creation of every other sandbox.
    unless_full(request, own(&layers.join(&request.layer), root))
        .doing(|| "create the writable layer".into())?;
    own(&target.join(volume::WORKSPACE), user).doing(|| "create the workspace".into())?;
    let cache = target.join(volume::USER_CACHE);
    own(&cache, user).doing(|| "create the user's cache".into())?;
    // A file the user created there instead is left as it is.
    unless_full(request, own(&cache.join(volume::NODE_CACHE), user)).doing(|| "create npm's cache".into())?;
    own(&target.join(volume::SYSTEM_CACHE), root).doing(|| "create the system's cache".into())?;
    Ok(Some(attached))
}

/// Ignores that the sandbox's own volume is full: otherwise the sandbox could not be started to remove files.
/// A host without space is an error.
fn unless_full(request: &MakeRequest, made: io::Result<()>) -> io::Result<()> {
    match made {
        Err(error) if request.volume.is_full(&error) => Ok(()),
        made => made,
    }
}
