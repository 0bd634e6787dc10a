//! What happens to the files of a tree, by inotify: one descriptor, a watch per directory. New
//! directories are watched as they appear, and what is already in them is told as new.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::fs::{Mode, OFlags};

use crate::walk::{Kind, Walker, open_beneath};

/// Directories that are watched at most.
const MOST_WATCHES: usize = 16_384;
/// Events in one batch at most; more is an overflow.
const MOST_EVENTS: usize = 4096;

/// What happened to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Happened {
    /// It is new.
    Created,
    /// Its contents, mode or owner changed.
    Modified,
    /// It is gone.
    Removed,
    /// It has another name now.
    Moved,
}

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeEvent {
    /// What.
    pub what: Happened,
    /// Relative to the top.
    pub path: Vec<u8>,
    /// The path before a move.
    pub from: Option<Vec<u8>>,
    /// Whether it is a directory.
    pub directory: bool,
}

/// What happened since the last look.
#[derive(Debug, Default)]
pub struct WatchedBatch {
    /// In their order.
    pub events: Vec<TreeEvent>,
    /// More happened than is told.
    pub overflow: bool,
    /// The top itself is gone; nothing more will happen.
    pub ended: bool,
}

/// Watches one tree.
#[derive(Debug)]
pub struct TreeWatcher {
    notify: OwnedFd,
    top: OwnedFd,
    /// Paths of watched directories, by the kernel's number.
    paths: HashMap<i32, Vec<u8>>,
    recursive: bool,
    /// Only this name of the top.
    only: Option<Vec<u8>>,
    /// Some directories are not watched.
    partial: bool,
}

/// An event as the kernel tells it.
#[derive(Debug)]
struct Raw {
    watch: i32,
    flags: ReadFlags,
    cookie: u32,
    name: Vec<u8>,
}

impl TreeWatcher {
    /// Watches an open directory; with `only`, one of its names.
    pub fn new(top: OwnedFd, recursive: bool, only: Option<Vec<u8>>) -> io::Result<Self> {
        let notify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let recursive = recursive && only.is_none();
        let mut watcher = Self { notify, top, paths: HashMap::new(), recursive, only, partial: false };
        watcher.watch_all()?;
        Ok(watcher)
    }

    /// Whether there are directories that are not watched: there are too many.
    #[must_use]
    pub fn is_partial(&self) -> bool {
        self.partial
    }

    /// Whether the top was removed. We hold it open, so the kernel does not tell by itself.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        rustix::fs::fstat(&self.top).map_or(true, |stat| stat.st_nlink == 0)
    }

    fn watch_all(&mut self) -> io::Result<()> {
        let top = self.top.try_clone()?;
        self.watch(top.as_fd(), Vec::new())?;
        if self.recursive {
            self.watch_below(b"", &mut Vec::new());
        }
        Ok(())
    }

    fn watch(&mut self, directory: BorrowedFd<'_>, path: Vec<u8>) -> io::Result<()> {
        if self.paths.len() >= MOST_WATCHES {
            self.partial = true;
            return Ok(());
        }
        let flags = WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MODIFY
            | WatchFlags::ATTRIB
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::MOVE_SELF
            | WatchFlags::EXCL_UNLINK
            | WatchFlags::ONLYDIR;
        // By descriptor: a path could lead elsewhere by now.
        let place = format!("/proc/self/fd/{}", directory.as_raw_fd());
        let watch = inotify::add_watch(&self.notify, place, flags)?;
        self.paths.insert(watch, path);
        Ok(())
    }

    /// Watches the directories below a path; tells what is there already.
    fn watch_below(&mut self, path: &[u8], found: &mut Vec<TreeEvent>) {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let Ok(directory) = open_beneath(self.top.as_fd(), path, flags) else { return };
        let Ok(mut walker) = Walker::new(directory) else { return };
        while let Some(entry) = walker.step() {
            let below = join(path, &entry.path);
            let directory = entry.kind == Kind::Directory;
            if directory && let Some(above) = walker.directory() {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let opened = rustix::fs::openat(above, &entry.name[..], flags, Mode::empty());
                let watched = opened
                    .map_err(io::Error::from)
                    .and_then(|inner| self.watch(inner.as_fd(), below.clone()));
                self.partial |= watched.is_err();
            }
            if found.len() < MOST_EVENTS {
                found.push(TreeEvent { what: Happened::Created, path: below, from: None, directory });
            }
        }
    }

    /// Everything that happened by now; empty when nothing did.
    pub fn read(&mut self) -> io::Result<WatchedBatch> {
        let mut raw = Vec::new();
        let mut overflow = false;
        let mut buffer = [const { MaybeUninit::uninit() }; 64 * 1024];
        let mut reader = inotify::Reader::new(&self.notify, &mut buffer);
        loop {
            match reader.next() {
                Ok(event) => {
                    if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                        overflow = true;
                        continue;
                    }
                    if raw.len() >= 4 * MOST_EVENTS {
                        overflow = true;
                        continue;
                    }
                    let name = event.file_name().map(|name| name.to_bytes().to_vec()).unwrap_or_default();
                    raw.push(Raw { watch: event.wd(), flags: event.events(), cookie: event.cookie(), name });
                }
                Err(rustix::io::Errno::WOULDBLOCK) => break,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let mut batch = WatchedBatch { overflow, ended: self.is_gone(), ..WatchedBatch::default() };
        self.interpret(raw, &mut batch);
        if batch.overflow {
            // What was missed may have been a new directory.
            self.forget_all();
            self.watch_all().unwrap_or_else(|_| batch.ended = true);
        }
        batch.overflow |= std::mem::take(&mut self.partial);
        Ok(batch)
    }

    fn interpret(&mut self, raw: Vec<Raw>, batch: &mut WatchedBatch) {
        let mut leaving: BTreeMap<u32, (Vec<u8>, bool)> = BTreeMap::new();
        for event in raw {
            let flags = event.flags;
            let Some(directory) = self.paths.get(&event.watch).cloned() else { continue };
            batch.ended |= flags.contains(ReadFlags::MOVE_SELF) && directory.is_empty();
            if flags.contains(ReadFlags::IGNORED) {
                self.paths.remove(&event.watch);
            }
            if event.name.is_empty() {
                continue;
            }
            let is_directory = flags.contains(ReadFlags::ISDIR);
            if is_draft(&event.name) {
                // Files that are still being written are nobody's business; when one gets its name, it is
                // new, and when it is exchanged for what was there, the old one does not go anywhere.
                if flags.contains(ReadFlags::MOVED_TO) {
                    leaving.remove(&event.cookie);
                }
                continue;
            }
            if self.only.as_ref().is_some_and(|only| *only != event.name) {
                continue;
            }
            let path = join(&directory, &event.name);
            if flags.contains(ReadFlags::MOVED_FROM) {
                leaving.insert(event.cookie, (path, is_directory));
                continue;
            }
            if flags.contains(ReadFlags::MOVED_TO) {
                let from = leaving.remove(&event.cookie).map(|(from, _)| from);
                if is_directory && let Some(from) = &from {
                    self.rename(from, &path);
                }
                let what = if from.is_some() { Happened::Moved } else { Happened::Created };
                let is_new = from.is_none();
                tell(batch, TreeEvent { what, path: path.clone(), from, directory: is_directory });
                if is_directory && is_new && self.recursive {
                    self.welcome(&path, batch);
                }
                continue;
            }
            let what = if flags.contains(ReadFlags::CREATE) {
                Happened::Created
            } else if flags.contains(ReadFlags::DELETE) {
                Happened::Removed
            } else {
                Happened::Modified
            };
            tell(batch, TreeEvent { what, path: path.clone(), from: None, directory: is_directory });
            if what == Happened::Created && is_directory && self.recursive {
                self.welcome(&path, batch);
            }
        }
        // Those who did not arrive anywhere have left the tree.
        for (path, directory) in leaving.into_values() {
            if directory {
                self.forget(&path);
            }
            tell(batch, TreeEvent { what: Happened::Removed, path, from: None, directory });
        }
    }

    /// A directory is new: watches it and tells what is in it already.
    fn welcome(&mut self, path: &[u8], batch: &mut WatchedBatch) {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let Ok(directory) = open_beneath(self.top.as_fd(), path, flags) else { return };
        if self.watch(directory.as_fd(), path.to_vec()).is_err() {
            self.partial = true;
        }
        let mut found = Vec::new();
        self.watch_below(path, &mut found);
        for event in found {
            tell(batch, event);
        }
    }

    fn rename(&mut self, from: &[u8], to: &[u8]) {
        for path in self.paths.values_mut() {
            if let Some(rest) = path.strip_prefix(from)
                && (rest.is_empty() || rest.starts_with(b"/"))
            {
                *path = [to, rest].concat();
            }
        }
    }

    fn forget(&mut self, path: &[u8]) {
        let below = |known: &[u8]| {
            known.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
        };
        let gone: Vec<i32> =
            self.paths.iter().filter(|(_, known)| below(known)).map(|(watch, _)| *watch).collect();
        for watch in gone {
            self.paths.remove(&watch);
            inotify::remove_watch(&self.notify, watch).ok();
        }
    }

    fn forget_all(&mut self) {
        for (watch, _) in self.paths.drain() {
            inotify::remove_watch(&self.notify, watch).ok();
        }
    }
}

impl AsFd for TreeWatcher {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.notify.as_fd()
    }
}

impl AsRawFd for TreeWatcher {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.notify.as_raw_fd()
    }
}

/// Names under which Isle writes files before it puts them in their place.
fn is_draft(name: &[u8]) -> bool {
    name.starts_with(b".isle-")
}

/// Adds an event unless it says again what is known.
fn tell(batch: &mut WatchedBatch, event: TreeEvent) {
    let repeats = |known: &TreeEvent| {
        known.path == event.path
            && (known.what == event.what || event.what == Happened::Modified)
            && known.what != Happened::Removed
    };
    // The last thing said about a file is near the end.
    if batch.events.iter().rev().take(64).find(|known| known.path == event.path).is_some_and(repeats) {
        return;
    }
    if batch.events.len() >= MOST_EVENTS {
        batch.overflow = true;
        return;
    }
    batch.events.push(event);
}

fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    if directory.is_empty() { name.to_vec() } else { [directory, b"/", name].concat() }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn watcher(path: &Path) -> TreeWatcher {
        let top = rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
        TreeWatcher::new(top, true, None).unwrap()
    }

    fn told(watcher: &mut TreeWatcher) -> Vec<String> {
        let batch = watcher.read().unwrap();
        assert!(!batch.overflow);
        let shown = |path: &[u8]| String::from_utf8_lossy(path).into_owned();
        let mut all = Vec::new();
        for event in batch.events {
            let from = event.from.map(|from| format!("{} ", shown(&from))).unwrap_or_default();
            all.push(format!("{:?} {from}{}", event.what, shown(&event.path)));
        }
        all
    }

    #[test]
    fn what_happens_in_a_tree_is_told_in_its_order() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        std::fs::create_dir(at("old")).unwrap();
        let mut watcher = watcher(place.path());
        assert!(told(&mut watcher).is_empty());
        std::fs::write(at("old/a"), "1").unwrap();
        assert_eq!(told(&mut watcher), ["Created old/a"]);
        std::fs::write(at("old/a"), "2").unwrap();
        assert_eq!(told(&mut watcher), ["Modified old/a"]);
        std::fs::rename(at("old/a"), at("b")).unwrap();
        assert_eq!(told(&mut watcher), ["Moved old/a b"]);
        std::fs::create_dir_all(at("new/er")).unwrap();
        std::fs::write(at("new/er/x"), "x").unwrap();
        assert_eq!(told(&mut watcher), ["Created new", "Created new/er", "Created new/er/x"]);
        std::fs::rename(at("new"), at("moved")).unwrap();
        assert_eq!(told(&mut watcher), ["Moved new moved"]);
        std::fs::remove_file(at("moved/er/x")).unwrap();
        assert_eq!(told(&mut watcher), ["Removed moved/er/x"]);
        let elsewhere = tempfile::tempdir().unwrap();
        std::fs::rename(at("moved"), elsewhere.path().join("moved")).unwrap();
        assert_eq!(told(&mut watcher), ["Removed moved"]);
        std::fs::write(elsewhere.path().join("moved/y"), "y").unwrap();
        assert!(told(&mut watcher).is_empty(), "what has left the tree is nobody's business");
    }

    #[test]
    fn the_end_of_the_top_is_the_end() {
        let place = tempfile::tempdir().unwrap();
        let top = place.path().join("top");
        std::fs::create_dir(&top).unwrap();
        let mut watcher = watcher(&top);
        std::fs::remove_dir(&top).unwrap();
        assert!(watcher.read().unwrap().ended);
    }
}
