//! What is written down about sandboxes and volumes so that a later daemon can find and remove
//! them: one small file per sandbox, made first and removed last, and one number per volume.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use isle_core::backend::{SandboxSpec, Tier};
use isle_core::values::{Address, SandboxId};
use isle_core::{Error, Result};
use isle_wire::FdStream;
use serde::{Deserialize, Serialize};

use super::{NativeConfig, failed};

/// A named sandbox, as written down.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) volume: Address,
    pub(super) slot: u32,
    #[serde(default = "container")]
    pub(super) tier: Tier,
    /// Whether the volume was created with this sandbox: it is removed with a sandbox that was never
    /// confirmed.
    #[serde(default)]
    pub(super) fresh: bool,
    /// Whether the engine recorded it as running.
    #[serde(default)]
    pub(super) confirmed: bool,
    /// Its spec, in case the engine's record is lost.
    #[serde(default)]
    pub(super) spec: Option<SandboxSpec>,
}

/// The tier of records that name none.
fn container() -> Tier {
    Tier::Container
}

/// The directories.
#[derive(Debug)]
pub(super) struct Records {
    state: PathBuf,
    sockets: PathBuf,
    /// Where an earlier version has the sockets of sandboxes that may still run.
    earlier_sockets: Option<PathBuf>,
    scratch: PathBuf,
}

impl Records {
    pub(super) fn open(config: &NativeConfig) -> Result<Self> {
        let records = Self {
            state: config.state_dir.join("native"),
            sockets: config.runtime_dir.join("sandboxes"),
            earlier_sockets: config
                .identity
                .earlier_runtime_dir
                .as_ref()
                .map(|runtime| runtime.join("sandboxes"))
                .filter(|sockets| sockets.is_dir()),
            scratch: config.runtime_dir.join("staging"),
        };
        let directories = [
            &records.state,
            &records.state.join("records"),
            &records.state.join("volumes"),
            &records.sockets,
            &records.scratch,
        ];
        for directory in directories {
            // Searchable by the ids of sandboxes, whose set-up walks to its own layer; the directories
            // above are closed to everybody.
            let made = fs::DirBuilder::new().recursive(true).mode(0o711).create(directory);
            made.map_err(|error| failed(&format!("create {}", directory.display()), error))?;
        }
        // Images that were being made when an earlier daemon died; this daemon makes none yet.
        let volumes = fs::read_dir(records.state.join("volumes")).into_iter().flatten().flatten();
        let directories = volumes
            .map(|volume| volume.path())
            .chain([records.state.join("images"), records.state.join("records")]);
        for entry in directories.filter_map(|directory| fs::read_dir(directory).ok()).flatten().flatten() {
            if entry.path().extension() == Some("part".as_ref()) {
                fs::remove_file(entry.path()).ok();
            }
        }
        Ok(records)
    }

    /// The backend's own part of the state directory.
    pub(super) fn state(&self) -> PathBuf {
        self.state.clone()
    }

    /// An empty directory for the fork server to build on.
    pub(super) fn scratch(&self) -> PathBuf {
        self.scratch.clone()
    }

    /// What an earlier version named cgroups and directories after: the path of the state directory. Another
    /// daemon may have the same path elsewhere, so only what is recorded here is looked for under it.
    pub(super) fn earlier_name(&self) -> String {
        let path = fs::canonicalize(&self.state).unwrap_or_else(|_| self.state.clone());
        // FNV-1a: a name, not a secret.
        let hash =
            path.as_os_str().as_encoded_bytes().iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
                (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
            });
        format!("isle-{hash:016x}")
    }

    fn record_path(&self, id: &SandboxId) -> PathBuf {
        self.state.join("records").join(id.as_str())
    }

    pub(super) fn write(&self, id: &SandboxId, record: &Record) -> Result<()> {
        let text = serde_json::to_vec(record).map_err(Error::internal)?;
        let write = || -> io::Result<()> {
            let path = self.record_path(id);
            let part = path.with_extension("part");
            let mut file =
                fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&part)?;
            let written = io::Write::write_all(&mut file, &text).and_then(|()| fs::rename(&part, path));
            if written.is_err() {
                fs::remove_file(&part).ok();
            }
            written
        };
        write().map_err(|error| failed("write the record of a sandbox", error))
    }

    pub(super) fn read(&self, id: &SandboxId) -> Option<Record> {
        serde_json::from_slice(&fs::read(self.record_path(id)).ok()?).ok()
    }

    pub(super) fn remove(&self, id: &SandboxId) -> Result<()> {
        remove_file(&self.record_path(id)).map_err(|error| failed("remove the record of a sandbox", error))
    }

    pub(super) fn list(&self) -> Vec<SandboxId> {
        let entries = fs::read_dir(self.state.join("records")).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
    }

    /// The directory of a volume, below the state directory.
    pub(super) fn volume_name(volume: &Address) -> String {
        format!("volumes/{}", volume.file_name())
    }

    pub(super) fn volume_path(&self, volume: &Address) -> PathBuf {
        self.state.join(Self::volume_name(volume))
    }

    pub(super) fn volume_slot(&self, volume: &Address) -> Option<u32> {
        fs::read_to_string(self.volume_path(volume).join("slot")).ok()?.trim().parse().ok()
    }

    pub(super) fn set_volume_slot(&self, volume: &Address, slot: u32) -> io::Result<()> {
        let directory = self.volume_path(volume);
        fs::DirBuilder::new().recursive(true).mode(0o711).create(&directory)?;
        fs::write(directory.join("slot"), slot.to_string())
    }

    /// Slots of all volumes, in use or not.
    pub(super) fn reserved_slots(&self) -> Vec<u32> {
        let entries = fs::read_dir(self.state.join("volumes")).into_iter().flatten().flatten();
        entries
            .filter_map(|entry| fs::read_to_string(entry.path().join("slot")).ok()?.trim().parse().ok())
            .collect()
    }

    /// A Unix socket address is short; going through the open directory keeps it short.
    fn short_socket(&self, id: &SandboxId) -> io::Result<(OwnedFd, PathBuf)> {
        let directory: OwnedFd = fs::File::open(self.sockets_of(id))?.into();
        let path = Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string()).join(id.as_str());
        Ok((directory, path))
    }

    /// Ids are random, so a socket with this one is this sandbox's, in whichever directory it is.
    fn sockets_of(&self, id: &SandboxId) -> &Path {
        match &self.earlier_sockets {
            Some(earlier) if earlier.join(id.as_str()).exists() => earlier,
            _ => &self.sockets,
        }
    }

    /// Binds the socket later daemons find a sandbox by; the agent itself listens on it.
    pub(super) fn bind_socket(&self, id: &SandboxId) -> io::Result<OwnedFd> {
        self.remove_socket(id)?;
        let (_directory, path) = self.short_socket(id)?;
        let flags = rustix::net::SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(
            rustix::net::AddressFamily::UNIX,
            rustix::net::SocketType::STREAM,
            flags,
            None,
        )?;
        rustix::net::bind(&socket, &rustix::net::SocketAddrUnix::new(&path)?)?;
        Ok(socket)
    }

    pub(super) async fn connect(&self, id: &SandboxId) -> io::Result<FdStream> {
        let (_directory, path) = self.short_socket(id)?;
        let stream = tokio::net::UnixStream::connect(path).await?;
        FdStream::socket_receiving(stream.into_std()?)
    }

    pub(super) fn remove_socket(&self, id: &SandboxId) -> io::Result<()> {
        remove_file(&self.sockets_of(id).join(id.as_str()))
    }

    /// Sandboxes that have a socket.
    pub(super) fn list_sockets(&self) -> Vec<SandboxId> {
        let entries = fs::read_dir(&self.sockets).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
    }
}

fn remove_file(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
