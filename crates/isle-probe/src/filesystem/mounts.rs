//! Mounts: every call has arguments that cannot work, so that a process with the permission changes nothing,
//! and a denial still comes first.

use std::os::fd::AsRawFd;
use std::path::Path;

use super::pseudo::directory;
use crate::Attack;
use crate::kernel::{Scratch, descriptor, errno_name};
use crate::outcome::{Outcome, Tried};
use crate::target::Target;

pub(crate) const ATTACKS: &[Attack] = &[
    Attack::new("fs.mount", "mount a file system", mount),
    Attack::new("fs.mount_bind", "mount a directory somewhere else", mount_bind),
    Attack::new("fs.umount", "take a mount away", umount),
    Attack::new("fs.remount_rw", "make a read-only mount writable", remount_rw),
    Attack::new("fs.mount_newapi", "mount with the newer calls", mount_newapi),
    Attack::new("fs.open_tree", "copy a tree of mounts", open_tree),
    Attack::new("fs.mount_setattr", "change the attributes of a mount", mount_setattr),
    Attack::new("fs.mount_listing", "list mounts through the newer calls", mount_listing),
    Attack::new("fs.pivot_root", "put another root in place", pivot_root),
    Attack::new("fs.chroot", "climb out of a root made inside", chroot),
];

const NO_PATH: *const libc::c_char = std::ptr::null();

fn mount(_: &Target) -> Tried {
    let mounted = library_call!(mount(
        c"none".as_ptr(),
        c"/".as_ptr(),
        c"isle-probe-no-such-type".as_ptr(),
        0,
        std::ptr::null()
    ));
    Ok(Outcome::of_right("mount", &mounted))
}

fn mount_bind(_: &Target) -> Tried {
    let source = c"/isle-probe-nowhere".as_ptr();
    let mounted = library_call!(mount(source, c"/".as_ptr(), NO_PATH, libc::MS_BIND, std::ptr::null()));
    Ok(Outcome::of_right("mount --bind", &mounted))
}

fn umount(_: &Target) -> Tried {
    let directory = match Scratch::directory("umount") {
        Ok(directory) => directory,
        Err(error) => return Ok(Outcome::not_testable(errno_name(&error))),
    };
    let Ok(path) = crate::kernel::c_path(&directory.0) else {
        return Ok(Outcome::not_testable("an odd path"));
    };
    Ok(Outcome::any(
        [0, libc::MNT_DETACH]
            .map(|flags| Outcome::of_right("umount2", &library_call!(umount2(path.as_ptr(), flags)))),
    ))
}

/// On a plain host `/usr` is seldom a mount, and the right to try is all that is seen. Where it is one
/// and read-only, it is made read-only again.
fn remount_rw(_: &Target) -> Tried {
    let remount = |flags: libc::c_ulong| {
        let flags = libc::MS_REMOUNT | libc::MS_BIND | flags;
        library_call!(mount(c"none".as_ptr(), c"/usr".as_ptr(), NO_PATH, flags, std::ptr::null()))
    };
    let read_only = std::fs::read_to_string("/proc/self/mounts")
        .is_ok_and(|mounts| mounts.lines().any(|line| line.contains(" /usr ") && line.contains(" ro,")));
    let result = remount(libc::MS_NOSUID | libc::MS_NODEV);
    if result.is_ok() && read_only {
        remount(libc::MS_RDONLY | libc::MS_NOSUID | libc::MS_NODEV).ok();
    }
    Ok(Outcome::of_right("remount of /usr", &result))
}

fn mount_newapi(_: &Target) -> Tried {
    let opened = descriptor(kernel_call!(libc::SYS_fsopen, c"tmpfs".as_ptr(), 1));
    let picked = descriptor(kernel_call!(libc::SYS_fspick, libc::AT_FDCWD, c"/".as_ptr(), 1));
    let moved = kernel_call!(
        libc::SYS_move_mount,
        libc::AT_FDCWD,
        c"/isle-probe-nowhere".as_ptr(),
        libc::AT_FDCWD,
        c"/".as_ptr(),
        0
    );
    let mounted = kernel_call!(libc::SYS_fsmount, -1, 0, 0);
    Ok(Outcome::any([
        Outcome::of("fsopen", &opened),
        Outcome::of("fspick", &picked),
        Outcome::of_right("fsmount", &mounted),
        Outcome::of_right("move_mount", &moved),
    ]))
}

fn open_tree(_: &Target) -> Tried {
    const CLONE: libc::c_uint = 1;
    let opened = descriptor(kernel_call!(libc::SYS_open_tree, libc::AT_FDCWD, c"/".as_ptr(), CLONE));
    Ok(Outcome::of("open_tree", &opened))
}

fn mount_setattr(_: &Target) -> Tried {
    let scratch = match Scratch::directory("setattr") {
        Ok(directory) => directory,
        Err(error) => return Ok(Outcome::not_testable(errno_name(&error))),
    };
    let Ok(opened) = directory(Path::new(&scratch.0)) else {
        return Ok(Outcome::not_testable("no directory"));
    };
    let attributes = [0u64; 4];
    let mut changed = attributes;
    changed[1] = libc::MOUNT_ATTR_RDONLY;
    let result = kernel_call!(
        libc::SYS_mount_setattr,
        opened.as_raw_fd(),
        c"".as_ptr(),
        libc::AT_EMPTY_PATH,
        changed.as_ptr(),
        size_of_val(&changed)
    );
    Ok(Outcome::of_right("mount_setattr", &result))
}

/// Lists this process's own mounts; an escape where they are the host's.
fn mount_listing(target: &Target) -> Tried {
    const LISTMOUNT: libc::c_long = 458;
    const ROOT: u64 = u64::MAX;
    let canary: u64 = target.number("ns-mnt")?;
    let request: [u64; 4] = [32, ROOT, 0, 0];
    let mut found = [0u64; 64];
    let listed = kernel_call!(LISTMOUNT, request.as_ptr(), found.as_mut_ptr(), found.len(), 0);
    Ok(match listed {
        Ok(_) if crate::namespaces::inode("mnt").is_ok_and(|ours| ours != canary) => {
            Outcome::contained("lists the sandbox's own mounts")
        }
        result => Outcome::of("listmount", &result),
    })
}

fn pivot_root(_: &Target) -> Tried {
    let root = c"/".as_ptr();
    Ok(Outcome::of_right("pivot_root", &kernel_call!(libc::SYS_pivot_root, root, root)))
}

fn chroot(_: &Target) -> Tried {
    Ok(Outcome::of("chroot", &library_call!(chroot(c".".as_ptr()))))
}
