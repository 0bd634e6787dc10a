//! The reader of archives, unpacking into a directory beside one it must never touch.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use isle_trees::{Bounds, Unpacker};
use rustix::fs::{Mode, OFlags};
use tempfile::TempDir;

/// Where archives go, and what is beside it.
pub(crate) struct Ground {
    base: TempDir,
    inside: PathBuf,
}

impl Ground {
    pub(crate) fn new() -> Self {
        let base = tempfile::Builder::new().prefix("isle-fuzz-").tempdir().unwrap();
        std::fs::write(base.path().join("canary"), "untouched").unwrap();
        let inside = base.path().join("inside");
        Self { base, inside }
    }

    /// For any bytes: nothing outside changes, everything inside is a file, a directory or a symbolic link
    /// that points inside, and a rejected archive leaves nothing.
    pub(crate) fn run(&mut self, bytes: &[u8]) {
        std::fs::remove_dir_all(&self.inside).ok();
        std::fs::create_dir(&self.inside).unwrap();
        // The first byte determines how the rest is split.
        let (piece, rest) =
            bytes.split_first().map_or((1, bytes), |(first, rest)| (usize::from(*first) + 1, rest));
        let bounds = Bounds { entries: 50, bytes: 1 << 20, modes: 0o755 };
        let mut unpacker = Unpacker::new(opened(&self.inside), bounds).unwrap();
        let fed = rest.chunks(piece).try_for_each(|piece| unpacker.feed(piece));
        let taken = match fed {
            Ok(()) => unpacker.finish().is_ok(),
            Err(_) => {
                drop(unpacker);
                false
            }
        };
        let mut walker = isle_trees::Walker::new(opened(&self.inside)).unwrap();
        while let Some(found) = walker.step() {
            assert!(taken, "a refused archive left {:?}", String::from_utf8_lossy(&found.path));
            assert_ne!(found.kind, isle_trees::Kind::Other);
            let is_link = found.kind == isle_trees::Kind::Symlink;
            assert!(is_link || found.stat.st_mode & 0o7022 == 0, "more rights than allowed");
            assert!(found.stat.st_nlink == 1 || found.kind == isle_trees::Kind::Directory);
        }
        let beside: Vec<_> = std::fs::read_dir(self.base.path()).unwrap().collect();
        assert_eq!(beside.len(), 2, "something appeared outside");
        assert_eq!(std::fs::read(self.base.path().join("canary")).unwrap(), b"untouched");
    }
}

fn opened(path: &Path) -> OwnedFd {
    rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap()
}
