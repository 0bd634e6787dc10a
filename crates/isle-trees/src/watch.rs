//! Watching a tree with inotify: one descriptor, a watch per directory. New directories are watched as they
//! appear, and their existing contents are reported as created.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::fs::{Mode, OFlags};

use crate::walk::{Kind, Walker, open_beneath};

/// Maximum number of watched directories.
const MOST_WATCHES: usize = 16_384;
/// Maximum number of events in one batch; more is an overflow.
const MOST_EVENTS: usize = 4096;

/// The kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    /// Created.
    Created,
    /// Contents, mode or owner changed.
    Modified,
    /// Removed.
    Removed,
    /// Renamed.
    Moved,
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeEvent {
    /// The kind.
    pub what: ChangeKind,
    /// Relative to the top.
    pub path: Vec<u8>,
    /// The path before a move.
    pub from: Option<Vec<u8>>,
    /// Whether it is a directory.
    pub directory: bool,
}

/// The changes since the last read.
#[derive(Debug, Default)]
pub struct WatchedBatch {
    /// In order.
    pub events: Vec<TreeEvent>,
    /// Some changes are missing.
    pub overflow: bool,
    /// The top directory was removed; there are no more events.
    pub ended: bool,
}

/// Watches one tree.
#[derive(Debug)]
pub struct TreeWatcher {
    notify: OwnedFd,
    top: OwnedFd,
    /// Paths of watched directories, by watch descriptor.
    paths: HashMap<i32, Vec<u8>>,
    recursive: bool,
    /// Only this name in the top directory.
    only: Option<Vec<u8>>,
    /// Some directories are not watched.
    partial: bool,
}

/// A raw inotify event.
#[derive(Debug)]
struct Raw {
    watch: i32,
    flags: ReadFlags,
    cookie: u32,
    name: Vec<u8>,
}

impl TreeWatcher {
    /// Watches an open directory; with `only`, a single name in it.
    pub fn new(top: OwnedFd, recursive: bool, only: Option<Vec<u8>>) -> io::Result<Self> {
        let notify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let recursive = recursive && only.is_none();
        let mut watcher = Self { notify, top, paths: HashMap::new(), recursive, only, partial: false };
        watcher.watch_all()?;
        Ok(watcher)
    }

    /// Whether some directories are not watched, because there are too many.
    #[must_use]
    pub fn is_partial(&self) -> bool {
        self.partial
    }

    /// Whether the top was removed. It is open here, so inotify does not report it.
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
        // By descriptor: the path could be another directory by now.
        let place = format!("/proc/self/fd/{}", directory.as_raw_fd());
        let watch = inotify::add_watch(&self.notify, place, flags)?;
        self.paths.insert(watch, path);
        Ok(())
    }

    /// Watches the directories below a path; reports existing contents.
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
                found.push(TreeEvent { what: ChangeKind::Created, path: below, from: None, directory });
            }
        }
    }

    /// All pending changes.
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
            // A missed event may have been a new directory.
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
            if is_temporary(&event.name) {
                // Temporary files are not reported. When one is renamed to its final name it is new, and
                // when it is exchanged for an existing file, the old one was not moved.
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
                let what = if from.is_some() { ChangeKind::Moved } else { ChangeKind::Created };
                let is_new = from.is_none();
                push(batch, TreeEvent { what, path: path.clone(), from, directory: is_directory });
                if is_directory && is_new && self.recursive {
                    self.watch_new(&path, batch);
                }
                continue;
            }
            let what = if flags.contains(ReadFlags::CREATE) {
                ChangeKind::Created
            } else if flags.contains(ReadFlags::DELETE) {
                ChangeKind::Removed
            } else {
                ChangeKind::Modified
            };
            push(batch, TreeEvent { what, path: path.clone(), from: None, directory: is_directory });
            if what == ChangeKind::Created && is_directory && self.recursive {
                self.watch_new(&path, batch);
            }
        }
        // What was not moved to a watched directory has left the tree.
        for (path, directory) in leaving.into_values() {
            if directory {
                self.forget(&path);
            }
            push(batch, TreeEvent { what: ChangeKind::Removed, path, from: None, directory });
        }
    }

    /// Watches a new directory and reports its existing contents.
    fn watch_new(&mut self, path: &[u8], batch: &mut WatchedBatch) {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let Ok(directory) = open_beneath(self.top.as_fd(), path, flags) else { return };
        if self.watch(directory.as_fd(), path.to_vec()).is_err() {
            self.partial = true;
        }
        let mut found = Vec::new();
        self.watch_below(path, &mut found);
        for event in found {
            push(batch, event);
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

/// Whether a name is a temporary one of Isle.
fn is_temporary(name: &[u8]) -> bool {
    name.starts_with(b".isle-")
}

/// Adds an event unless it repeats a recent one.
fn push(batch: &mut WatchedBatch, event: TreeEvent) {
    let repeats = |known: &TreeEvent| {
        known.path == event.path
            && (known.what == event.what || event.what == ChangeKind::Modified)
            && known.what != ChangeKind::Removed
    };
    // The last event of a file is near the end.
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
#[path = "watch_tests.rs"]
mod tests;
