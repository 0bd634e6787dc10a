//! The private directories of sandboxes without a root of their own (tier `process`). As an ordinary
//! user they are in the state directory. As root they cannot be: a sandbox runs as a host id of its
//! own, which may not walk through a directory closed to everybody, so they are in one beside it
//! that can be searched but not listed. Everything is named after the sandbox or its volume.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use isle_engine::values::{Address, SandboxId};
use isle_engine::{Code, Error, Result};

use super::{embedded, failed};
use crate::request::{Directories, Extent, outside, volume as names};
use crate::setup::SANDBOX_ID;
use crate::tree;

/// Where the directories of a root daemon are. Not below `/var/tmp`: what is there is cleaned up by age.
const ROOT_BASE: &str = "/var/lib";
const VOLUMES: &str = "volumes";
const WORKSPACE: &str = "workspace";
/// Directory of the client of the control socket: one for all sandboxes, which can only read it.
const CONTROL: &str = "control";
const CONTROL_CLIENT: &str = "isle-ctl";
/// Ids of a slot's range that nobody has inside a container.
const FIRST_ID: u32 = 2000;
const ID_COUNT: u32 = 60_000;

/// All of them.
#[derive(Debug)]
pub(super) struct Places {
    base: PathBuf,
    root: bool,
    /// Which id of a slot's range is this daemon's.
    id: u32,
}

impl Places {
    /// `instance` is a name for this state directory and no other.
    pub(super) fn new(root: bool, state: &Path, instance: &str) -> Self {
        let base = if root { Path::new(ROOT_BASE).join(instance) } else { state.join("process") };
        let number = instance.bytes().fold(0u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
        Self { base, root, id: FIRST_ID + number % ID_COUNT }
    }

    /// The one id a sandbox has out of the range of its slot. Without namespaces between them, ids must
    /// differ from those of another daemon's sandboxes as well, and daemons number slots alike.
    pub(super) fn only_id(&self, range: &[Extent]) -> Option<Extent> {
        outside(range, self.id).map(|outside| Extent { inside: SANDBOX_ID, outside, length: 1 })
    }

    fn path(&self, id: &SandboxId) -> PathBuf {
        self.base.join(id.as_str())
    }

    pub(super) fn volume_path(&self, volume: &Address) -> PathBuf {
        self.base.join(VOLUMES).join(volume.to_string())
    }

    /// Makes the directories of a sandbox, owned by the host id `owner` where it has one of its own.
    pub(super) fn prepare(
        &self,
        id: &SandboxId,
        volume: Option<&Address>,
        owner: Option<u32>,
        control: bool,
    ) -> Result<Directories> {
        self.make_base()?;
        let make = || -> io::Result<Directories> {
            let place = self.path(id);
            gate(&place, owner)?;
            let home = private(&place.join("home"), owner)?;
            let tmp = private(&place.join("tmp"), owner)?;
            let workspace = match volume {
                Some(volume) => {
                    let directory = self.volume_path(volume);
                    gate(&directory, owner)?;
                    private(&directory.join(WORKSPACE), owner)?
                }
                None => private(&place.join(WORKSPACE), owner)?,
            };
            let cache = volume.map(|volume| self.cache(volume, &home, owner)).transpose()?;
            let control = control.then(|| self.control_client()).transpose()?;
            let bytes = |path: PathBuf| path.as_os_str().as_bytes().to_vec().into();
            Ok(Directories {
                workspace: bytes(workspace),
                home: bytes(home),
                tmp: bytes(tmp),
                cache: cache.map(bytes),
                control: control.map(bytes),
            })
        };
        make().map_err(|error| failed("make the sandbox's directories", error))
    }

    /// Makes the cache of a volume, and the ways from the home to it.
    fn cache(&self, volume: &Address, home: &Path, owner: Option<u32>) -> io::Result<PathBuf> {
        let cache = private(&self.volume_path(volume).join(names::USER_CACHE), owner)?;
        // What the sandbox left in its place is the sandbox's affair.
        private(&cache.join(names::NODE_CACHE), owner).ok();
        let node = Path::new(".cache").join(names::NODE_CACHE);
        for (link, target) in [(".cache", cache.as_path()), (".npm", node.as_path())] {
            match symlink(target, home.join(link)) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
        Ok(cache)
    }

    /// Makes the directory of the control socket's client, unless this very program is there already: an
    /// agent that is older may still be served by it.
    fn control_client(&self) -> io::Result<PathBuf> {
        let directory = self.base.join(CONTROL);
        match fs::DirBuilder::new().mode(0o755).create(&directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            Ok(()) | Err(_) => {}
        }
        // The daemon may have been started with a umask of its own.
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o755))?;
        let (client, program) = (directory.join(CONTROL_CLIENT), embedded::agent_program());
        if fs::metadata(&client).is_ok_and(|found| found.len() == program.len() as u64) {
            return Ok(directory);
        }
        // Whole or not at all, also beside another sandbox that is being made.
        let unfinished = directory.join(format!(".{}", SandboxId::fresh()));
        fs::write(&unfinished, program)?;
        fs::set_permissions(&unfinished, fs::Permissions::from_mode(0o555))?;
        fs::rename(&unfinished, &client)?;
        Ok(directory)
    }

    /// Makes the directory above all others; refuses one that somebody else could have prepared.
    fn make_base(&self) -> Result<()> {
        let mode = if self.root { 0o711 } else { 0o700 };
        for directory in [self.base.clone(), self.base.join(VOLUMES)] {
            match fs::DirBuilder::new().mode(mode).create(&directory) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(failed(&format!("make {}", directory.display()), error)),
            }
            let meta = fs::symlink_metadata(&directory)
                .map_err(|error| failed(&format!("look at {}", directory.display()), error))?;
            let own = meta.is_dir()
                && meta.uid() == rustix::process::geteuid().as_raw()
                && meta.permissions().mode() & 0o022 == 0;
            if !own {
                let path = directory.display();
                return Err(Error::new(
                    Code::BackendUnavailable,
                    format!("{path} is not a directory that only the daemon's user can write to"),
                )
                .next(format!("see who made {path}, then remove it: the daemon makes it anew")));
            }
        }
        Ok(())
    }

    /// Removes the directories of a sandbox, but not those of its volume.
    pub(super) async fn remove(&self, id: &SandboxId) -> Result<()> {
        remove_patiently(self.path(id))
            .await
            .map_err(|error| failed("remove the sandbox's directories", error))
    }

    /// Removes a volume.
    pub(super) async fn remove_volume(&self, volume: &Address) -> Result<()> {
        let removed = remove_patiently(self.volume_path(volume)).await;
        removed.map_err(|error| failed("remove the workspace", error))
    }

    /// Sandboxes that have directories.
    pub(super) fn list(&self) -> Vec<SandboxId> {
        let entries = fs::read_dir(&self.base).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
    }

    /// The host id that owns the directories of a sandbox, where it is not the daemon's own.
    pub(super) fn owner(&self, id: &SandboxId) -> Option<u32> {
        let owner = fs::symlink_metadata(self.path(id).join("tmp")).ok()?.uid();
        (self.root && owner != 0).then_some(owner)
    }

    /// Bytes on disk of a sandbox's directories and its volume; `None` when it has none.
    pub(super) async fn usage(&self, id: &SandboxId, volume: Option<&Address>) -> Option<u64> {
        let place = self.path(id);
        if !place.exists() {
            return None;
        }
        let volume = volume.map(|volume| self.volume_path(volume));
        tokio::task::spawn_blocking(move || {
            tree::measure(&place) + volume.as_deref().map_or(0, tree::measure)
        })
        .await
        .ok()
    }

    /// Removes the directories above all others when they are empty.
    pub(super) fn remove_base(&self) {
        if self.list().is_empty() {
            fs::remove_dir_all(self.base.join(CONTROL)).ok();
        }
        fs::remove_dir(self.base.join(VOLUMES)).ok();
        fs::remove_dir(&self.base).ok();
    }
}

/// A directory its sandbox can walk through and nobody else, not even its sandbox, can list or change.
fn gate(path: &Path, owner: Option<u32>) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        Ok(()) | Err(_) => {}
    }
    if let Some(owner) = owner {
        chown(path, Some(0), Some(owner))?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o710))?;
    }
    Ok(())
}

/// A directory of the sandbox's own.
fn private(path: &Path, owner: Option<u32>) -> io::Result<PathBuf> {
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => {
            if let Some(owner) = owner {
                chown(path, Some(owner), Some(owner))?;
            }
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let found = fs::symlink_metadata(path)?.uid();
            if owner.is_some_and(|owner| owner != found) {
                return Err(io::Error::other(format!(
                    "{} belongs to host id {found}, which is no longer this volume's",
                    path.display()
                )));
            }
        }
        Err(error) => return Err(error),
    }
    Ok(path.to_owned())
}

/// Removes a tree. What has just been killed may still be writing its last file.
async fn remove_patiently(path: PathBuf) -> io::Result<()> {
    let mut tries = 0;
    loop {
        let removing = path.clone();
        let removed = tokio::task::spawn_blocking(move || tree::remove(&removing)).await;
        match removed.map_err(io::Error::other)? {
            Err(error) if error.raw_os_error() == Some(libc::ENOTEMPTY) && tries < 200 => tries += 1,
            other => return other,
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
