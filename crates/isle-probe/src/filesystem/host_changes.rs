//! Changing what is the host's: contents, names, attributes. Each try leaves things as they were.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use crate::Attack;
use crate::kernel::{Scratch, c_path, open_to_write};
use crate::outcome::{Outcome, Tried};
use crate::target::Target;

pub(crate) const ATTACKS: &[Attack] = &[
    Attack::new("fs.canary_write", "open a file of the host for writing", canary_write),
    Attack::new("fs.canary_truncate", "cut off a file of the host", canary_truncate),
    Attack::new("fs.canary_create", "make a file in a directory of the host", canary_create),
    Attack::new("fs.canary_rename_out", "move a file into a directory of the host", canary_rename_out),
    Attack::new("fs.canary_rename", "rename a file of the host", canary_rename),
    Attack::new("fs.canary_remove", "remove a directory of the host", canary_remove),
    Attack::new("fs.canary_socket", "make a socket in a directory of the host", canary_socket),
    Attack::new("fs.hardlink", "make another name for a file of the host", hardlink),
    Attack::new("fs.chmod_host", "change the permissions of a file of the host", chmod_host),
    Attack::new("fs.chown_host", "change the owner of a file of the host", chown_host),
    Attack::new("fs.utime_host", "change the times of a file of the host", utime_host),
    Attack::new("fs.device_times", "change the times of the host's devices", device_times),
    Attack::new("fs.xattr_host", "change an attribute of a file of the host", xattr_host),
    Attack::new("fs.system_write", "write among the host's programs", system_write),
    Attack::new("fs.etc_write", "write the host's settings", etc_write),
];

fn canary_write(target: &Target) -> Tried {
    Ok(Outcome::of("open for writing", &open_to_write(&target.path("file")?)))
}

fn canary_truncate(target: &Target) -> Tried {
    let file = target.path("file")?;
    let size = fs::metadata(&file).map(|meta| meta.len()).unwrap_or_default();
    let cut = c_path(&file).and_then(|path| {
        library_call!(truncate(path.as_ptr(), libc::off_t::try_from(size).unwrap_or_default()))
    });
    Ok(Outcome::of("truncate", &cut))
}

fn canary_create(target: &Target) -> Tried {
    let path = target.path("drop")?.join(crate::kernel::scratch("created"));
    let made = OpenOptions::new().write(true).create_new(true).open(&path);
    if made.is_ok() {
        drop(Scratch(path));
    }
    Ok(Outcome::of("create", &made))
}

fn canary_rename_out(target: &Target) -> Tried {
    let there = target.path("drop")?.join(crate::kernel::scratch("moved"));
    let moved = Scratch::file("moving").and_then(|file| match fs::rename(&file.0, &there) {
        // Nothing but the file system was in the way: a copy would do.
        Err(error)
            if error.raw_os_error() == Some(libc::EXDEV) && there.parent().is_some_and(Path::exists) =>
        {
            OpenOptions::new().write(true).create_new(true).open(&there).map(drop)
        }
        result => result,
    });
    if moved.is_ok() {
        drop(Scratch(there));
    }
    Ok(Outcome::of("rename", &moved))
}

/// A directory that is not empty cannot replace another one; a refusal comes first.
fn canary_rename(target: &Target) -> Tried {
    let full = target.path("drop")?.join("full");
    let moved = fs::rename(full.join("inside"), full.join("renamed"));
    if moved.is_ok() {
        fs::rename(full.join("renamed"), full.join("inside")).ok();
    }
    Ok(Outcome::of("rename", &moved))
}

/// A directory that is not empty cannot be removed; a refusal comes first.
fn canary_remove(target: &Target) -> Tried {
    Ok(match fs::remove_dir(target.path("drop")?.join("full")) {
        Err(error) if error.raw_os_error() == Some(libc::ENOTEMPTY) => {
            Outcome::escaped("rmdir: ENOTEMPTY, so it was allowed")
        }
        result => Outcome::of("rmdir", &result),
    })
}

fn canary_socket(target: &Target) -> Tried {
    let path = target.path("drop")?.join(crate::kernel::scratch("socket"));
    let bound = std::os::unix::net::UnixListener::bind(&path);
    if bound.is_ok() {
        drop(Scratch(path));
    }
    Ok(Outcome::of("bind", &bound))
}

fn hardlink(target: &Target) -> Tried {
    let (file, there) = (target.path("file")?, target.path("drop")?);
    let name = crate::kernel::scratch("link");
    Ok(Outcome::any([name.clone(), there.join(name)].map(|link| {
        let linked = fs::hard_link(&file, &link);
        if linked.is_ok() {
            drop(Scratch(link));
        }
        Outcome::of("link", &linked)
    })))
}

/// To what it is already; only who may change it may do that.
fn chmod_host(target: &Target) -> Tried {
    let file = target.path("file")?;
    let changed = fs::set_permissions(&file, fs::Permissions::from_mode(0o644));
    Ok(Outcome::of("chmod", &changed))
}

fn chown_host(target: &Target) -> Tried {
    let file = target.path("file")?;
    let meta = fs::metadata(&file);
    let changed = meta.and_then(|meta| std::os::unix::fs::chown(&file, Some(meta.uid()), Some(meta.gid())));
    Ok(Outcome::of("chown", &changed))
}

fn utime_host(target: &Target) -> Tried {
    let file = target.path("file")?;
    let changed = fs::metadata(&file).and_then(|meta| {
        let times = [
            libc::timespec { tv_sec: meta.atime(), tv_nsec: meta.atime_nsec() },
            libc::timespec { tv_sec: meta.mtime(), tv_nsec: meta.mtime_nsec() },
        ];
        let path = c_path(&file)?;
        library_call!(utimensat(libc::AT_FDCWD, path.as_ptr(), times.as_ptr(), 0))
    });
    Ok(Outcome::of("utimensat", &changed))
}

/// To now, which needs only write access.
fn device_times(_: &Target) -> Tried {
    Ok(Outcome::any([c"/dev/null", c"/dev/zero", c"/dev/tty"].map(|path| {
        let changed = library_call!(utimensat(libc::AT_FDCWD, path.as_ptr(), std::ptr::null(), 0));
        Outcome::of(path.to_string_lossy(), &changed)
    })))
}

fn xattr_host(target: &Target) -> Tried {
    let name = c"user.isle-probe";
    let changed = c_path(&target.path("file")?).and_then(|path| {
        library_call!(setxattr(path.as_ptr(), name.as_ptr(), c"1".as_ptr().cast(), 1, 0))?;
        library_call!(removexattr(path.as_ptr(), name.as_ptr()))
    });
    Ok(match changed {
        // The file system has none; a missing permission is reported first.
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
            Outcome::escaped("setxattr: EOPNOTSUPP, so it was allowed")
        }
        result => Outcome::of("setxattr", &result),
    })
}

fn system_write(_: &Target) -> Tried {
    Ok(Outcome::any(["/usr", "/usr/bin", "/usr/lib", "/bin", "/lib"].map(|directory| {
        let path = Path::new(directory).join(crate::kernel::scratch("system"));
        let made = OpenOptions::new().write(true).create_new(true).open(&path);
        if made.is_ok() {
            drop(Scratch(path));
        }
        Outcome::of(directory, &made)
    })))
}

/// Only what is really the host's counts: a sandbox may have settings of its own.
fn etc_write(target: &Target) -> Tried {
    let canary: u64 = target.number("ns-mnt")?;
    let ours = super::super::namespaces::inode("mnt");
    if ours.is_ok_and(|ours| ours != canary) {
        return Ok(Outcome::contained("/etc is in a mount namespace of its own"));
    }
    let tries = ["/etc/passwd", "/etc/hosts", "/etc/ld.so.cache", "/etc/profile"];
    let outcomes = tries.map(|path| -> io::Result<()> { open_to_write(Path::new(path)).map(drop) });
    Ok(Outcome::any(tries.iter().zip(&outcomes).map(|(path, result)| Outcome::of(path, result))))
}
