//! The agent's resolver, in a directory full of traps beside one it must never touch.

use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use isle_agent::fuzzing::{ResolvedPath, list, stat};
use isle_core::values::GuestPath;
use isle_wire::{GuestUser, ListRequest, PathRequest, Reply};
use rustix::fs::OFlags;
use tempfile::TempDir;

/// What a guest may reach, and what it may not.
pub(crate) struct Tree {
    base: TempDir,
    inside: PathBuf,
    outside: PathBuf,
    canary: u64,
}

impl Tree {
    pub(crate) fn new() -> Self {
        let base = tempfile::Builder::new().prefix("isle-fuzz-").tempdir().unwrap();
        let root = base.path().canonicalize().unwrap();
        let (inside, outside) = (root.join("ws-1"), root.join("ws-10"));
        for directory in [inside.join("a/b/c"), outside.join("d")] {
            std::fs::create_dir_all(directory).unwrap();
        }
        std::fs::write(inside.join("f"), "inside").unwrap();
        std::fs::write(outside.join("f"), "outside").unwrap();
        let links = [
            ("l", "a"),
            ("u", "../ws-10"),
            ("a/u", "../../ws-10"),
            ("a/b/t", "../.."),
            ("o", "o"),
            ("p", "/proc/self/root"),
            ("c", "/proc/self/cwd"),
            ("m", "/proc/self/fd/0"),
            ("e", ""),
        ];
        for (name, target) in links {
            // The kernel has no empty links.
            let _ = symlink(target, inside.join(name));
        }
        symlink(&outside, inside.join("s")).unwrap();
        symlink(outside.join("f"), inside.join("a/s")).unwrap();
        let canary = std::fs::metadata(outside.join("f")).unwrap().ino();
        Self { base, inside, outside, canary }
    }

    pub(crate) fn run(&mut self, bytes: &[u8]) {
        // What the host would refuse before, an agent refuses too.
        if let Ok(text) = std::str::from_utf8(bytes)
            && let Ok(path) = text.parse::<GuestPath>()
        {
            assert!(!text.contains('\0') && text.split('/').all(|part| part != ".."), "{path}");
        }
        let beneath = self.inside.as_os_str().as_bytes().to_vec();
        let below =
            PathRequest { path: bytes.to_vec().into(), beneath: Some(beneath.into()), user: GuestUser::Root };
        if let Reply::Stat(found) = stat(&below) {
            assert!(found.size != 7 || found.mode & 0o7777 != 0, "{found:?}");
        }
        drop(list(&ListRequest { at: below.clone(), depth: 3, limit: 100, glob: None }));
        let Ok(at) = ResolvedPath::new(&below) else { return };
        if let Ok(file) = at.open(OFlags::PATH) {
            self.stays(&file);
        }
        if let Ok((directory, name)) = at.parent() {
            self.stays(&directory);
            assert!(!name.contains(&b'/'));
        }
        let mut made = Vec::new();
        let _ = at.make_parents(&mut made);
        for directory in made.iter().rev() {
            let path = self.inside.join(Path::new(std::ffi::OsStr::from_bytes(directory)));
            std::fs::remove_dir(path).unwrap();
        }
        assert_eq!(std::fs::read_dir(&self.outside).unwrap().count(), 2, "something was made outside");
        assert_eq!(std::fs::read_dir(self.base.path()).unwrap().count(), 2, "something was made beside");
    }

    /// What was opened is inside.
    fn stays(&self, file: &impl AsFd) {
        let stat = rustix::fs::fstat(file).unwrap();
        assert_ne!(stat.st_ino, self.canary, "the canary was reached");
        let place = std::fs::read_link(format!("/proc/self/fd/{}", file.as_fd().as_raw_fd())).unwrap();
        assert!(place.starts_with(&self.inside), "{} is outside", place.display());
    }
}
