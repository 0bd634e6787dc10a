//! The private directories of sandboxes without a root of their own (tier `process`). As an unprivileged
//! user they are in the state directory. As root they cannot be: a sandbox runs as a host id of its own,
//! which may not traverse a private directory, so they are in `/var/lib`, in a directory that can be
//! searched but not listed. Everything is named after the sandbox or its volume.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use isle_core::values::{Address, SandboxId};
use isle_core::{Code, Error, Result};

use serde::{Deserialize, Serialize};

use super::{Identity, MEASURED, failed};
use isle_setup::SANDBOX_ID;
use isle_setup::request::{Directories, Extent, outside, volume as names};
use isle_setup::tree;

/// Where the directories of a root daemon are. Not below `/var/tmp`: what is there is cleaned up by age.
const ROOT_BASE: &str = "/var/lib";
const VOLUMES: &str = "volumes";
const WORKSPACE: &str = "workspace";
/// Directory of the client of the control socket: one for all sandboxes, which can only read it.
const CONTROL: &str = "control";
const CONTROL_CLIENT: &str = "isle-ctl";
/// Ids of a slot's range that no user inside a container has.
const FIRST_ID: u32 = 2000;
const ID_COUNT: u32 = 60_000;

/// All of them.
#[derive(Debug)]
pub(super) struct ProcessDirs {
    base: PathBuf,
    root: bool,
    /// Which id of a slot's range is this daemon's.
    id: u32,
    /// Whether the directory has a name that another daemon may have used before.
    shared: bool,
    /// Written into the directory of a root daemon.
    owner: Option<Owner>,
}

/// The file that says whose a directory below [`ROOT_BASE`] is.
const OWNER: &str = "owner";

/// Which state directory a directory belongs to.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Owner {
    id: String,
    inode: u64,
    boot: Option<String>,
}

impl Owner {
    fn read(base: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(base.join(OWNER)).ok()?).ok()
    }

    fn write(&self, base: &Path) -> io::Result<()> {
        let unfinished = base.join(format!("{OWNER}.new"));
        fs::write(&unfinished, serde_json::to_vec(self)?)?;
        fs::rename(unfinished, base.join(OWNER))
    }

    /// Takes a directory that an earlier version made and that has no owner yet.
    fn claim(&self, base: &Path) -> bool {
        let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(base.join(OWNER));
        match file {
            Ok(file) => serde_json::to_writer(file, self).is_ok(),
            Err(_) => Self::read(base).is_some_and(|owner| owner.id == self.id || self.was(&owner)),
        }
    }

    /// Whether another owner is this one before a reboot. A copy has another inode, and an original that is in
    /// use was used in this boot.
    fn was(&self, other: &Self) -> bool {
        other.inode == self.inode && other.boot.is_some() && other.boot != self.boot
    }

    /// Takes over the directory of this state directory's earlier identity.
    fn take_over(&self, previous: &Path, base: &Path) {
        if Self::read(previous).is_some_and(|owner| self.was(&owner)) && !base.exists() {
            match fs::rename(previous, base) {
                Ok(()) => {
                    tracing::info!(from = %previous.display(), to = %base.display(), "took over the directory")
                }
                Err(error) => {
                    tracing::warn!(%error, from = %previous.display(), "could not take over the directory")
                }
            }
        }
    }
}

fn boot_id() -> Option<String> {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").ok().map(|id| id.trim().to_owned())
}

impl ProcessDirs {
    /// Named after the identity of the state directory, and taken over from an earlier name of it where that
    /// is certainly this one's.
    pub(super) fn open(root: bool, state: &Path, identity: &Identity, earlier: Option<&str>) -> Self {
        let id = FIRST_ID + identity.number(ID_COUNT);
        if !root {
            return Self { base: state.join("process"), root, id, shared: false, owner: None };
        }
        let owner = Owner { id: identity.id.clone(), inode: identity.inode, boot: boot_id() };
        let base = Path::new(ROOT_BASE).join(identity.name());

        if let Some(earlier) = earlier.map(|earlier| Path::new(ROOT_BASE).join(earlier))
            && earlier.is_dir()
            && owner.claim(&earlier)
        {
            // Sandboxes that run, and workspaces, have the id that follows from the earlier name.
            let name = earlier.file_name().unwrap_or_default().as_bytes();
            let number =
                name.iter().fold(0u32, |sum, byte| sum.wrapping_mul(31).wrapping_add((*byte).into()));
            let id = FIRST_ID + number % ID_COUNT;
            return Self { base: earlier, root, id, shared: true, owner: Some(owner) };
        }
        if let Some(previous) = &identity.previous {
            owner.take_over(&Path::new(ROOT_BASE).join(format!("isle-{previous}")), &base);
        }
        Self { base, root, id, shared: false, owner: Some(owner) }
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
        self.base.join(VOLUMES).join(volume.file_name())
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
        make().map_err(|error| failed("create the sandbox's directories", error))
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
        let (client, program) = (directory.join(CONTROL_CLIENT), isle_embed::agent_program());
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

    /// Creates the base directory; rejects one that another user could have prepared.
    fn make_base(&self) -> Result<()> {
        let mode = if self.root { 0o711 } else { 0o700 };
        for directory in [self.base.clone(), self.base.join(VOLUMES)] {
            match fs::DirBuilder::new().mode(mode).create(&directory) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(failed(&format!("create {}", directory.display()), error)),
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
                .next(format!("find out who created {path}, then remove it: the daemon recreates it")));
            }
        }
        match &self.owner {
            Some(owner) if Owner::read(&self.base).as_ref() != Some(owner) => owner
                .write(&self.base)
                .map_err(|error| failed(&format!("write {}/{OWNER}", self.base.display()), error)),
            _ => Ok(()),
        }
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

    /// Whether the directories of sandboxes that are recorded nowhere may be another daemon's.
    pub(super) fn is_shared(&self) -> bool {
        self.shared
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
            let bytes = |path: &Path| tree::measure(path, MEASURED).bytes;
            bytes(&place) + volume.as_deref().map_or(0, bytes)
        })
        .await
        .ok()
    }

    /// Removes the directories above all others when they are empty.
    pub(super) fn remove_base(&self) {
        if self.list().is_empty() {
            fs::remove_dir_all(self.base.join(CONTROL)).ok();
        }
        // Only when they are empty; what says whose they are goes last.
        let volumes = self.base.join(VOLUMES);
        fs::remove_dir(&volumes).ok();
        if !volumes.exists() && self.list().is_empty() {
            fs::remove_file(self.base.join(OWNER)).ok();
            fs::remove_dir(&self.base).ok();
        }
    }
}

/// A directory that only its sandbox can traverse; no user of the sandbox can list or change it.
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
                    "{} belongs to host id {found}, which is no longer the id of this volume",
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
