//! Removing a tree. Directories that are too deep are moved up to the top and removed from there.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Dir, Mode, OFlags};
use rustix::io::Errno;

/// How many levels are gone down before what is below is moved up.
const DEEPEST: u32 = 32;

/// Removes `path` and all below it; nothing there is no error.
pub fn remove(path: &Path) -> io::Result<()> {
    remove_at(rustix::fs::CWD, path)
}

/// The same for what has this name in a directory.
pub fn remove_at(parent: BorrowedFd<'_>, name: impl rustix::path::Arg + Copy) -> io::Result<()> {
    let gone = |removed: Result<(), Errno>| match removed {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    };
    let top = match open(parent, name) {
        Ok(top) => top,
        Err(Errno::NOENT) => return Ok(()),
        Err(Errno::NOTDIR | Errno::LOOP) => {
            return gone(rustix::fs::unlinkat(parent, name, AtFlags::empty()));
        }
        Err(error) => return Err(error.into()),
    };
    remove_contents(top.as_fd())?;
    drop(top);
    gone(rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR))
}

/// Removes all below a directory, and not itself.
pub fn remove_contents(top: BorrowedFd<'_>) -> io::Result<()> {
    let mut moved = 0;
    // Every round empties all it can see; what was moved up on the way is seen by the next.
    loop {
        let before = moved;
        empty(top, top, DEEPEST, &mut moved)?;
        if moved == before {
            return Ok(());
        }
    }
}

/// Opens a directory that may be closed to its own owner.
fn open(parent: BorrowedFd<'_>, name: impl rustix::path::Arg + Copy) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::openat(parent, name, flags, Mode::empty()) {
        Err(Errno::ACCESS) => {}
        other => return other,
    }
    rustix::fs::chmodat(parent, name, Mode::RWXU, AtFlags::empty())?;
    rustix::fs::openat(parent, name, flags, Mode::empty())
}

fn empty(top: BorrowedFd<'_>, directory: BorrowedFd<'_>, depth: u32, moved: &mut u64) -> io::Result<()> {
    for name in names(directory)? {
        match rustix::fs::unlinkat(directory, &name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => continue,
            Err(Errno::ISDIR) => {}
            Err(Errno::ACCESS) => {
                // A directory without the right to write, of an ordinary user: give it back.
                rustix::fs::fchmod(directory, Mode::RWXU)?;
                match rustix::fs::unlinkat(directory, &name, AtFlags::empty()) {
                    Ok(()) | Err(Errno::NOENT) => continue,
                    Err(Errno::ISDIR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            Err(error) => return Err(error.into()),
        }
        if depth == 0 {
            move_up(top, directory, &name, moved)?;
            continue;
        }
        let inner = open(directory, name.as_c_str())?;
        empty(top, inner.as_fd(), depth - 1, moved)?;
        drop(inner);
        match rustix::fs::unlinkat(directory, &name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn names(directory: BorrowedFd<'_>) -> io::Result<Vec<CString>> {
    let mut names = Vec::new();
    let entries = match Dir::read_from(directory) {
        Err(Errno::ACCESS) => {
            // A directory without the right to enter it, of an ordinary user: give it back.
            rustix::fs::fchmod(directory, Mode::RWXU)?;
            Dir::read_from(directory)
        }
        entries => entries,
    };
    for entry in entries? {
        let entry = entry?;
        let name: &CStr = entry.file_name();
        if name != c"." && name != c".." {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

/// Moves a directory to the top under an unused name.
fn move_up(top: BorrowedFd<'_>, parent: BorrowedFd<'_>, name: &CStr, moved: &mut u64) -> io::Result<()> {
    loop {
        *moved += 1;
        let new = format!(".isle-removing-{moved}");
        match rustix::fs::renameat_with(parent, name, top, new.as_str(), rustix::fs::RenameFlags::NOREPLACE) {
            Ok(()) => return Ok(()),
            Err(Errno::EXIST) => {}
            Err(Errno::ACCESS) => {
                // Moving a directory changes its `..`, which needs the right to write to it.
                rustix::fs::chmodat(parent, name, Mode::RWXU, AtFlags::empty())?;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn scratch(name: &str) -> std::path::PathBuf {
        let path = std::env::temp_dir().join(format!("isle-remove-tree-{}-{name}", std::process::id()));
        fs::create_dir(&path).unwrap();
        path
    }

    #[test]
    fn a_tree_deeper_than_descriptors_and_paths_reach_is_removed() {
        let top = scratch("deep");
        let mut directory = open(rustix::fs::CWD, top.as_path()).unwrap();
        for _ in 0..3000 {
            rustix::fs::mkdirat(&directory, "d", Mode::RWXU).unwrap();
            directory = open(directory.as_fd(), "d").unwrap();
        }
        drop(directory);
        remove(&top).unwrap();
        assert!(!top.exists());
        remove(&top).unwrap();
    }

    #[test]
    fn links_are_removed_and_not_followed() {
        let outside = scratch("outside");
        fs::write(outside.join("kept"), b"x").unwrap();
        let top = scratch("links");
        symlink(&outside, top.join("link")).unwrap();
        fs::create_dir(top.join("closed")).unwrap();
        fs::write(top.join("closed/file"), b"x").unwrap();
        fs::set_permissions(top.join("closed"), fs::Permissions::from_mode(0o000)).unwrap();
        remove(&top).unwrap();
        assert!(outside.join("kept").exists());
        assert!(!top.exists());
        remove(&outside).unwrap();
    }

    #[test]
    fn a_link_in_place_of_the_tree_is_removed_itself() {
        let outside = scratch("target");
        let link = std::env::temp_dir().join(format!("isle-remove-tree-{}-instead", std::process::id()));
        symlink(&outside, &link).unwrap();
        remove(&link).unwrap();
        assert!(fs::symlink_metadata(&link).is_err());
        assert!(outside.exists());
        remove(&outside).unwrap();
    }
}
