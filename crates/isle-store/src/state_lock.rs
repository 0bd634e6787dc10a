//! The lock of a state directory: flock(2) on `isle.lock`. The file records which process has the lock, its
//! phase and its socket, so that a client finds its daemon with the state directory alone. Process ids in it
//! may be those of another pid namespace or another boot, so no decision depends on them alone.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal};
use serde::{Deserialize, Serialize};

use crate::error::StoreError;
use crate::files::{options, tighten};
use crate::instance::{Instance, InstanceId};
use isle_core::clock::{boot_id, wall_clock_ms};

/// The lock file in the state directory.
pub const LOCK_FILE: &str = "isle.lock";

/// The phase of the process that has the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// It is starting; its socket does not answer yet.
    Starting,
    /// Its socket answers.
    Running,
    /// It is shutting down.
    Stopping,
}

impl Phase {
    /// The name in messages.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Stopping => "shutting down",
        }
    }
}

/// The record of the process that has the lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockHolder {
    /// Its process id, in its own pid namespace.
    pub pid: u32,
    /// When the process started, in clock ticks since boot; detects a reused process id.
    start_ticks: u64,
    /// The boot id.
    boot: Option<String>,
    /// The pid namespace.
    pid_namespace: u64,
    /// Since when it has been in its phase, in milliseconds since the epoch.
    pub since_ms: i64,
    /// What it is doing.
    pub phase: Phase,
    /// The identity of the state directory.
    pub instance: Option<InstanceId>,
    /// The full identity: restored from here when the file `instance` is missing or damaged.
    #[serde(default)]
    pub(crate) identity: Option<Instance>,
    /// Its socket.
    #[serde(with = "path_bytes")]
    pub socket: Option<PathBuf>,
}

/// The state of the lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LockState {
    /// Not locked.
    Free,
    /// Locked, with a record.
    HeldBy(Box<LockHolder>),
    /// Locked, with a process id only or no record yet.
    Unknown {
        /// The process id.
        pid: Option<u32>,
    },
}

impl LockHolder {
    fn this_process() -> Self {
        let pid = std::process::id();
        Self {
            pid,
            start_ticks: start_ticks(pid).unwrap_or(0),
            boot: boot_id(),
            pid_namespace: pid_namespace(),
            since_ms: wall_clock_ms(),
            phase: Phase::Starting,
            instance: None,
            identity: None,
            socket: None,
        }
    }

    /// The last record, whether or not its process still has the lock: enough to try its socket, which is
    /// cheaper than testing the lock.
    #[must_use]
    pub fn last(dir: &Path) -> Option<Self> {
        match read_record(&mut File::open(dir.join(LOCK_FILE)).ok()?) {
            Written::Record(holder) => Some(*holder),
            Written::Number(_) | Written::Nothing => None,
        }
    }

    /// Its process id, if it is the same process in this pid namespace and boot.
    #[must_use]
    pub fn process(&self) -> Option<u32> {
        let here = self.boot == boot_id() && self.pid_namespace == pid_namespace();
        (here && start_ticks(self.pid) == Some(self.start_ticks)).then_some(self.pid)
    }

    /// Sends SIGTERM, if it is the same process in this pid namespace and boot. The process is verified after
    /// its pidfd was opened, so a reused process id is never signalled.
    pub fn terminate(&self) -> io::Result<()> {
        let elsewhere =
            || io::Error::new(io::ErrorKind::NotFound, "its process is not visible in this pid namespace");
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw).ok_or_else(elsewhere)?;
        let process = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
        self.process().ok_or_else(elsewhere)?;
        Ok(rustix::process::pidfd_send_signal(&process, Signal::TERM)?)
    }

    /// Whether its process has certainly exited. In another pid namespace that is unknown.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.boot == boot_id() && self.pid_namespace == pid_namespace() && self.process().is_none()
    }
}

impl LockState {
    /// Reads the state of the lock of a state directory.
    pub fn read(dir: &Path) -> Result<Self, StoreError> {
        let path = dir.join(LOCK_FILE);
        let mut file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::Free),
            Err(error) => return Err(StoreError::io("open", &path, error)),
        };
        // Shared, and released at once: a process that wants the lock meanwhile retries.
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => {
                rustix::fs::flock(&file, FlockOperation::Unlock).ok();
                Ok(Self::Free)
            }
            Err(Errno::WOULDBLOCK) => Ok(match read_record(&mut file) {
                Written::Record(holder) => Self::HeldBy(holder),
                Written::Number(pid) => Self::Unknown { pid: Some(pid) },
                Written::Nothing => Self::Unknown { pid: None },
            }),
            Err(error) => Err(StoreError::io("lock", &path, error.into())),
        }
    }
}

/// A lock that this process has. The kernel releases it when the process dies.
#[derive(Debug)]
pub(crate) struct StateLock {
    path: PathBuf,
    record: Mutex<Record>,
}

#[derive(Debug)]
struct Record {
    file: File,
    holder: LockHolder,
}

impl StateLock {
    /// Records the phase and the socket.
    pub(crate) fn announce(
        &self,
        phase: Phase,
        instance: Option<&Instance>,
        socket: Option<&Path>,
    ) -> io::Result<()> {
        let mut record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        let Record { file, holder } = &mut *record;
        holder.phase = phase;
        holder.since_ms = wall_clock_ms();
        if let Some(instance) = instance {
            holder.instance = Some(instance.id.clone());
            holder.identity = Some(instance.clone());
        }
        if let Some(socket) = socket {
            holder.socket = Some(socket.to_owned());
        }
        // A file that was removed meanwhile is created again, so that other commands see the phase.
        relock(file, &self.path)?;
        write(file, holder)
    }

    /// Stores a changed identity for the next record.
    pub(crate) fn identify(&self, instance: &Instance) {
        let mut record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        record.holder.identity = Some(instance.clone());
    }

    /// The identity that the previous process recorded.
    pub(crate) fn identity(&self) -> Option<Instance> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner).holder.identity.clone()
    }

    /// Checks that the file exists, is locked and is intact; restores it if not. Returns whether it was
    /// restored.
    pub(crate) fn restore(&self) -> io::Result<bool> {
        let mut record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        let Record { file, holder } = &mut *record;
        let replaced = relock(file, &self.path)?;
        let mut found = Vec::new();
        io::Seek::rewind(file).and_then(|()| file.read_to_end(&mut found))?;
        if found == text(holder)?.as_bytes() {
            return Ok(replaced);
        }
        write(file, holder)?;
        Ok(true)
    }
}

/// Creates and locks the file again if it is not the locked one. Returns whether it did.
fn relock(file: &mut File, path: &Path) -> io::Result<bool> {
    let held = file.metadata()?;
    let is_same = |found: &fs::Metadata| (found.dev(), found.ino()) == (held.dev(), held.ino());
    match fs::symlink_metadata(path) {
        Ok(found) if is_same(&found) => return Ok(false),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let again = options().create(true).truncate(false).open(path)?;
    rustix::fs::flock(&again, FlockOperation::NonBlockingLockExclusive)?;
    tighten(&again)?;
    *file = again;
    Ok(true)
}

impl Drop for StateLock {
    fn drop(&mut self) {
        // Closing is not enough: a child between fork and exec has the file open as well and would keep the
        // lock.
        let record = self.record.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = rustix::fs::flock(&record.file, FlockOperation::Unlock) {
            tracing::warn!(%error, "could not unlock the state directory");
        }
    }
}

/// How long to wait for the lock of a dead process: a child between fork and exec may still have it.
const DEAD_HOLDER: Duration = Duration::from_secs(5);
/// How long to wait for a process that only reads the state of the lock.
const INSPECTION: Duration = Duration::from_millis(200);
/// How long to wait for a process that is shutting down.
const SHUTDOWN: Duration = Duration::from_secs(20);

/// Takes the lock of the directory. Waits only for a process that is shutting down or dead.
pub(crate) fn lock(dir: &Path) -> Result<StateLock, StoreError> {
    let path = dir.join(LOCK_FILE);
    let mut file = options()
        .create(true)
        .truncate(false)
        .open(&path)
        .map_err(|error| StoreError::io("open", &path, error))?;
    let begun = Instant::now();
    loop {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => break,
            Err(Errno::WOULDBLOCK) => {
                let (pid, patience) = match read_record(&mut file) {
                    Written::Record(holder) if holder.is_gone() => (Some(holder.pid), DEAD_HOLDER),
                    Written::Record(holder) if holder.phase == Phase::Stopping => {
                        (Some(holder.pid), SHUTDOWN)
                    }
                    Written::Record(holder) => (Some(holder.pid), INSPECTION),
                    Written::Number(pid) if !exists(pid) => (Some(pid), DEAD_HOLDER),
                    Written::Number(pid) => (Some(pid), INSPECTION),
                    Written::Nothing => (None, INSPECTION),
                };
                if begun.elapsed() > patience {
                    return Err(StoreError::Locked { pid });
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(error) => return Err(StoreError::io("lock", &path, error.into())),
        }
    }
    // The identity is carried over from the previous record.
    let identity = match read_record(&mut file) {
        Written::Record(last) => last.identity,
        Written::Number(_) | Written::Nothing => None,
    };
    let holder = LockHolder { identity, ..LockHolder::this_process() };
    let written = tighten(&file).and_then(|()| write(&file, &holder));
    written.map_err(|error| StoreError::io("write", &path, error))?;
    Ok(StateLock { path, record: Mutex::new(Record { file, holder }) })
}

enum Written {
    Record(Box<LockHolder>),
    /// By a version that wrote its process id only.
    Number(u32),
    Nothing,
}

/// Written in place, so that a full disk does not prevent a daemon from recording that it stops. A reader
/// detects an incomplete record by the checksum in the second line.
fn write(file: &File, holder: &LockHolder) -> io::Result<()> {
    let text = text(holder)?;
    file.write_all_at(text.as_bytes(), 0)?;
    file.set_len(text.len() as u64)
}

fn text(holder: &LockHolder) -> io::Result<String> {
    let record = serde_json::to_string(holder).map_err(io::Error::other)?;
    Ok(format!("{record}\n{:016x}\n", sum(&record)))
}

fn read_record(file: &mut File) -> Written {
    // A record is written in microseconds; a file that stays malformed is not being written.
    for _ in 0..20 {
        let mut text = String::new();
        let whole = io::Seek::rewind(file).and_then(|()| file.read_to_string(&mut text));
        if whole.is_err() {
            return Written::Nothing;
        }
        if let Ok(pid) = text.trim().parse() {
            return Written::Number(pid);
        }
        let mut lines = text.lines();
        if let (Some(record), Some(written)) = (lines.next(), lines.next())
            && u64::from_str_radix(written, 16) == Ok(sum(record))
            && let Ok(holder) = serde_json::from_str(record)
        {
            return Written::Record(Box::new(holder));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Written::Nothing
}

/// FNV-1a: detects accidents, not attacks.
fn sum(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

fn exists(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| rustix::process::test_kill_process(pid) != Err(Errno::SRCH))
}

/// The 22nd field of `/proc/PID/stat`. The second may hold spaces and brackets.
fn start_ticks(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

fn pid_namespace() -> u64 {
    fs::metadata("/proc/self/ns/pid").map_or(0, |found| found.ino())
}

/// Paths are bytes, and JSON is text.
mod path_bytes {
    use super::{OsStrExt, OsStringExt, PathBuf};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    #[serde(untagged)]
    enum Written {
        Text(String),
        Bytes(Vec<u8>),
    }

    pub(super) fn serialize<S: Serializer>(path: &Option<PathBuf>, to: S) -> Result<S::Ok, S::Error> {
        let written = path.as_ref().map(|path| match path.to_str() {
            Some(text) => Written::Text(text.to_owned()),
            None => Written::Bytes(path.as_os_str().as_bytes().to_vec()),
        });
        written.serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<PathBuf>, D::Error> {
        let written = Option::<Written>::deserialize(from)?;
        Ok(written.map(|written| match written {
            Written::Text(text) => PathBuf::from(text),
            Written::Bytes(bytes) => std::ffi::OsString::from_vec(bytes).into(),
        }))
    }
}

#[cfg(test)]
#[path = "state_lock_tests.rs"]
mod tests;
