//! The identity of a state directory: a random id, created once. Everything a daemon creates outside the
//! directory is marked with it, and nothing without the mark is killed or removed. The directory is recorded
//! with the id: a copy has another inode or device and gets a new id, so that two daemons never share one. A
//! reboot may change the device number of a file system, so after one the inode and the creation time of the
//! directory decide.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::StoreError;
use crate::files;
use crate::state_lock::LockHolder;
use isle_core::clock::boot_id;

/// The file in the state directory.
const FILE: &str = "instance";
const BYTES: usize = 16;

/// 128 random bits, as 32 hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct InstanceId(String);

impl InstanceId {
    fn fresh() -> Result<Self, StoreError> {
        let mut bytes = [0u8; BYTES];
        getrandom::fill(&mut bytes).map_err(|error| StoreError::Randomness { reason: error.to_string() })?;
        Ok(Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    /// The digits.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for InstanceId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl TryFrom<String> for InstanceId {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let good = text.len() == 2 * BYTES
            && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
        if good { Ok(Self(text)) } else { Err("an id has 32 hexadecimal digits") }
    }
}

impl From<InstanceId> for String {
    fn from(id: InstanceId) -> Self {
        id.0
    }
}

/// The identity of a state directory, as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instance {
    /// The id.
    pub id: InstanceId,
    /// The directory it was created for.
    device: u64,
    inode: u64,
    /// When that directory was created, in nanoseconds, if the file system records it.
    #[serde(default)]
    born: Option<u64>,
    /// The boot in which the directory was last used.
    boot: Option<String>,
    /// The name of the secrets' key in a keyring. It does not change with the id: a keyring that survives a
    /// reboot has the key under this name.
    pub vault: String,
    /// Whether the state is older than its identity. What an earlier version created is named after the path
    /// of the state directory, and is searched for under that name, too.
    #[serde(default)]
    pub adopted: bool,
    /// The id before this one, when the directory was copied or moved.
    #[serde(default)]
    pub previous: Option<InstanceId>,
    /// The directory of the sandboxes' sockets, which cannot change while sandboxes run.
    #[serde(default)]
    runtime: Option<Runtime>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Runtime {
    boot: String,
    directory: PathBuf,
}

impl Instance {
    /// The identity of a directory, for a client; `None` if it has none yet, and for a copy until its first
    /// daemon starts.
    pub fn current(dir: &Path) -> Result<Option<Self>, StoreError> {
        let found = fs::metadata(dir).map_err(|error| StoreError::io("look at", dir, error))?;
        let fits = |known: &Self| known.is_of(&found);
        match Self::read(dir) {
            Ok(Some(known)) => Ok(Some(known).filter(fits)),
            // The daemon restores it soon, and so does the next start.
            missing => match LockHolder::last(dir).and_then(|holder| holder.identity).filter(fits) {
                Some(recorded) => Ok(Some(recorded)),
                None => missing,
            },
        }
    }

    /// Whether the file exists and is valid, for a message.
    #[must_use]
    pub fn is_written(dir: &Path) -> bool {
        matches!(Self::read(dir), Ok(Some(_)))
    }

    fn is_of(&self, directory: &fs::Metadata) -> bool {
        let rebooted = self.boot.is_some() && self.boot != boot_id();
        let renumbered = rebooted && self.born.is_some() && self.born == born(directory);
        self.inode == directory.ino() && (self.device == directory.dev() || renumbered)
    }

    /// Whether the path is still the directory it was created for.
    pub(crate) fn is_at(&self, dir: &Path) -> Result<bool, StoreError> {
        match fs::metadata(dir) {
            Ok(found) => Ok(self.is_of(&found)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(StoreError::io("look at", dir, error)),
        }
    }

    /// Restores the file if it was removed or changed. Returns whether it was.
    pub(crate) fn restore(&self, dir: &Path) -> Result<bool, StoreError> {
        if matches!(Self::read(dir), Ok(Some(known)) if known == *self) {
            return Ok(false);
        }
        self.write(&dir.join(FILE)).map(|()| true)
    }

    /// Reads the stored identity of a directory; `None` if there is none yet.
    fn read(dir: &Path) -> Result<Option<Self>, StoreError> {
        let path = dir.join(FILE);
        let Some(bytes) = files::read_optional(&path)? else { return Ok(None) };
        let read = serde_json::from_slice(&bytes);
        read.map(Some).map_err(|error| StoreError::Identity { path, reason: error.to_string() })
    }

    /// The identity of a locked directory; created if there is none, and for a copy. `is_older` says whether
    /// the directory had a state before identities existed. `recorded` is that of the lock file, used if the
    /// file is missing or damaged and the record is of this directory.
    pub(crate) fn load(dir: &Path, is_older: bool, recorded: Option<Self>) -> Result<Self, StoreError> {
        let path = dir.join(FILE);
        let found = fs::metadata(dir).map_err(|error| StoreError::io("look at", dir, error))?;
        let (device, inode, born) = (found.dev(), found.ino(), born(&found));
        let known = match (Self::read(dir), recorded.filter(|recorded| recorded.is_of(&found))) {
            (Ok(Some(known)), _) => Some(known),
            (_, Some(recorded)) => {
                tracing::warn!(id = %recorded.id, "the file `instance` was missing or damaged: restored from isle.lock");
                recorded.write(&path)?;
                Some(recorded)
            }
            (missing, None) => missing?,
        };
        let boot = boot_id();
        let instance = match known {
            Some(known) if known.is_of(&found) => {
                let current = Self { device, born, boot, ..known.clone() };
                if current == known {
                    return Ok(known);
                }
                current
            }
            Some(known) => {
                let id = InstanceId::fresh()?;
                tracing::warn!(
                    was = %known.id, now = %id,
                    "the state directory was copied or moved to another file system: it gets a new identity; sandboxes that still run under the old one are not touched"
                );
                Self {
                    id,
                    device,
                    inode,
                    born,
                    boot,
                    previous: Some(known.id),
                    // Without a creation time a renumbered device looks like a copy, but a copy has another
                    // inode.
                    adopted: known.adopted && known.inode == inode,
                    runtime: None,
                    ..known
                }
            }
            None => {
                let id = InstanceId::fresh()?;
                let vault = if is_older { dir.to_string_lossy().into_owned() } else { id.to_string() };
                Self {
                    id,
                    device,
                    inode,
                    born,
                    boot,
                    vault,
                    adopted: is_older,
                    previous: None,
                    runtime: None,
                }
            }
        };
        instance.write(&path)?;
        Ok(instance)
    }

    fn write(&self, path: &Path) -> Result<(), StoreError> {
        let text = serde_json::to_vec(self)
            .map_err(|error| StoreError::Identity { path: path.to_owned(), reason: error.to_string() })?;
        files::write_whole(path, &text)
    }

    /// The inode of the directory.
    #[must_use]
    pub fn inode(&self) -> u64 {
        self.inode
    }

    /// The directory of the sandboxes' sockets in this boot, if it is set.
    #[must_use]
    pub fn runtime_dir(&self) -> Option<&Path> {
        let runtime = self.runtime.as_ref()?;
        (Some(&runtime.boot) == boot_id().as_ref()).then_some(runtime.directory.as_path())
    }

    /// Sets that directory.
    pub(crate) fn set_runtime_dir(&mut self, dir: &Path, runtime: &Path) -> Result<(), StoreError> {
        // Without a boot id the directory is taken from the environment every time.
        let Some(boot) = boot_id() else { return Ok(()) };
        let runtime = Some(Runtime { boot, directory: runtime.to_owned() });
        if self.runtime == runtime {
            return Ok(());
        }
        self.runtime = runtime;
        self.write(&dir.join(FILE))
    }
}

/// When a directory was created, if its file system records it.
fn born(directory: &fs::Metadata) -> Option<u64> {
    let since = directory.created().ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
    u64::try_from(since.as_nanos()).ok()
}

#[cfg(test)]
#[path = "instance_tests.rs"]
mod tests;
