//! What handles input of guests, public for the fuzz targets (`isle-fuzz`) only.

use std::io;
use std::os::fd::OwnedFd;

use isle_wire::{ListRequest, PathRequest, Reply};
use rustix::fs::OFlags;

use crate::files::{self, Resolved};
use crate::guest_paths::GuestPaths;
use crate::mode::{GuestUsers, Mode, NetworkAccess};
use crate::processes::ProcessFinder;

pub use crate::network::dns::{Answer, Parsed, Query, parse as parse_dns};

/// The mode of a sandbox with a root of its own.
fn mode() -> Mode {
    Mode {
        paths: GuestPaths::OwnRoot,
        users: GuestUsers::Switched,
        processes: ProcessFinder::UtsTag,
        network: NetworkAccess::None,
        command_rules: None,
        file_size_limit: None,
        watched_limits: None,
        oom_score: None,
    }
}

/// Handles a request for the metadata of a file.
#[must_use]
pub fn stat(request: &PathRequest) -> Reply {
    files::stat(&mode(), request)
}

/// Handles a request for the entries of a directory.
#[must_use]
pub fn list(request: &ListRequest) -> Reply {
    files::list::list(&mode(), request)
}

/// A path of a request, resolved by the rules that all file operations follow.
pub struct ResolvedPath<'a>(Resolved<'a>);

impl std::fmt::Debug for ResolvedPath<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("ResolvedPath").field(&self.0.path).finish()
    }
}

impl<'a> ResolvedPath<'a> {
    /// Opens the directory the path is relative to.
    pub fn new(request: &'a PathRequest) -> io::Result<Self> {
        Resolved::new(&mode(), request).map(Self)
    }

    /// Opens the file.
    pub fn open(&self, flags: OFlags) -> io::Result<OwnedFd> {
        self.0.open(flags)
    }

    /// Opens the directory that contains the last component, and returns that component.
    pub fn parent(&self) -> io::Result<(OwnedFd, &[u8])> {
        self.0.parent()
    }

    /// Creates missing parent directories and adds them to `made`, outermost first.
    pub fn make_parents(&self, made: &mut Vec<Vec<u8>>) -> io::Result<()> {
        self.0.make_parents(made)
    }
}
