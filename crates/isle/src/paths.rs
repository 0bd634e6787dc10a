//! Paths of state and sockets. What a daemon has outside its state directory is named after the identity
//! of that directory, and its socket is recorded in its lock file there: a client finds its daemon by the
//! state directory alone, whatever its environment contains.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use isle_client::Result;
use isle_core::{Code, Error};
use isle_store::{Instance, InstanceId, LockHolder};
use rustix::io::Errno;

use crate::arguments::Global;

/// Paths shared by one daemon and its clients.
#[derive(Debug, Clone)]
pub(crate) struct Paths {
    /// State directory: sandboxes, runs, audit log, token, log.
    pub(crate) state_dir: PathBuf,
    /// Sockets of a daemon started here; private to this user, removed by a reboot.
    pub(crate) runtime_dir: PathBuf,
    /// The socket given with `--socket`; the user is responsible for its directory.
    pub(crate) chosen_socket: Option<PathBuf>,
    /// Name an earlier version used for its sockets in the runtime directory, derived from the state path.
    earlier_name: String,
    /// The namespace given on the command line.
    pub(crate) namespace: Option<String>,
}

impl Paths {
    /// Determines the paths from flags, environment and user.
    pub(crate) fn find(global: &Global) -> Result<Self> {
        let default = default_state_dir();
        let chosen = global.state_dir.clone().or_else(|| path_from("ISLE_STATE_DIR"));
        let state_dir = match (&chosen, &default) {
            (Some(chosen), _) => resolved(chosen)?,
            (None, Some(default)) => resolved(default)?,
            (None, None) => {
                return Err(Error::new(
                    Code::InvalidPath,
                    "cannot determine the state directory: HOME is not set",
                )
                .next("set HOME, or pass a directory with --state-dir or ISLE_STATE_DIR")
                .into());
            }
        };
        let runtime_dir = match path_from("ISLE_RUNTIME_DIR") {
            Some(chosen) => resolved(&chosen)?,
            None => runtime_dir(),
        };
        let is_default = match &default {
            Some(default) => resolved(default)? == state_dir,
            None => false,
        };
        let chosen_socket = global.socket.clone().or_else(|| path_from("ISLE_SOCKET"));
        let chosen_socket = chosen_socket.as_deref().map(resolved).transpose()?;
        let earlier_name =
            if is_default { "isle".to_owned() } else { format!("{:016x}", fingerprint(&state_dir)) };
        let namespace = global.namespace.clone();
        Ok(Self { state_dir, runtime_dir, chosen_socket, earlier_name, namespace })
    }

    /// The socket of the daemon of this state directory, running or not, and the identity it must have.
    pub(crate) fn daemon_address(&self) -> DaemonAddress {
        // A read error is reported by the daemon, which fails to start because of it.
        let instance = Instance::current(&self.state_dir).ok().flatten().map(|instance| instance.id);
        let recorded = || {
            let holder = LockHolder::last(&self.state_dir)?;
            // A copied state directory contains the record of the original, and a socket given by path may belong
            // to another daemon by now.
            let ours = instance.is_some() && holder.instance == instance;
            let named = holder.socket.as_deref().and_then(Path::file_stem)
                == instance.as_ref().map(|id| id.as_str().as_ref());
            if ours && (named || !holder.is_gone()) { holder.socket } else { None }
        };
        let socket = self.chosen_socket.clone().or_else(recorded);
        let name = instance.as_ref().map_or(NO_INSTANCE, InstanceId::as_str);
        let socket = socket.unwrap_or_else(|| self.runtime_dir.join(format!("{name}.sock")));
        DaemonAddress { socket, instance: name.to_owned() }
    }

    /// The socket of a daemon with this identity.
    pub(crate) fn socket_of(&self, instance: &InstanceId) -> PathBuf {
        let chosen = self.chosen_socket.clone();
        chosen.unwrap_or_else(|| self.runtime_dir.join(format!("{instance}.sock")))
    }

    /// Creates the directory of the sandboxes' sockets. Running sandboxes are bound to their directory, so an
    /// existing one is reused.
    pub(crate) fn create_instance_dir(&self, instance: &Instance) -> Result<PathBuf> {
        let usable = |known: &&Path| known.ends_with(instance.id.as_str()) && is_private(known);
        let known = instance.runtime_dir().filter(usable).map(Path::to_owned);
        let directory = known.unwrap_or_else(|| self.runtime_dir.join(instance.id.as_str()));
        create_private(&directory)?;
        check_private(&directory)?;
        Ok(directory)
    }

    /// Directory in which an earlier version has the sockets of sandboxes.
    pub(crate) fn earlier_instance_dir(&self) -> PathBuf {
        self.runtime_dir.join(&self.earlier_name)
    }

    /// Socket of a daemon of an earlier version.
    pub(crate) fn earlier_socket(&self) -> PathBuf {
        self.runtime_dir.join(format!("{}.sock", self.earlier_name))
    }

    /// Log file of the daemon.
    pub(crate) fn log(&self) -> PathBuf {
        self.state_dir.join("daemon.log")
    }

    /// Creates the directories, private to this user. The directory of a socket given with `--socket` is not
    /// changed, so it must already be private.
    pub(crate) fn prepare(&self) -> Result<()> {
        create_private(&self.state_dir)?;
        create_private(&self.runtime_dir)?;
        check_private(&self.runtime_dir)?;
        match self.chosen_socket.as_deref().and_then(Path::parent) {
            Some(directory) => check_private(directory),
            None => Ok(()),
        }
    }

    /// For clients: rejects a directory not owned by this user, because its owner could impersonate the daemon.
    pub(crate) fn check_socket_dir(&self, socket: &Path) -> Result<()> {
        match socket.parent().filter(|_| self.chosen_socket.is_none()) {
            Some(directory) => check_private(directory),
            None => Ok(()),
        }
    }
}

/// The socket of a daemon and the identity of the state directory it must serve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DaemonAddress {
    pub(crate) socket: PathBuf,
    pub(crate) instance: String,
}

/// Stands for the identity of a state directory that has none yet; no daemon has this identity.
const NO_INSTANCE: &str = "none";

fn is_private(directory: &Path) -> bool {
    directory.is_dir() && check_private(directory).is_ok()
}

/// A missing directory passes.
fn check_private(directory: &Path) -> Result<()> {
    let found = match fs::symlink_metadata(directory) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(cannot("stat", directory, &error)),
    };
    let ours =
        found.is_dir() && found.uid() == rustix::process::geteuid().as_raw() && found.mode() & 0o077 == 0;
    if ours {
        return Ok(());
    }
    let path = directory.display();
    Err(Error::new(Code::Forbidden, format!("{path} is not a directory owned by and private to this user"))
        .next(format!("use another directory, or run `chmod 700 {path}` if you own it"))
        .into())
}

fn create_private(directory: &Path) -> Result<()> {
    match fs::DirBuilder::new().recursive(true).mode(0o700).create(directory) {
        Ok(()) => Ok(()),
        Err(error) => Err(cannot("create", directory, &error)),
    }
}

pub(crate) fn cannot(what: &str, path: &Path, error: &io::Error) -> isle_client::ClientError {
    let code = match Errno::from_io_error(error) {
        Some(Errno::NOSPC) => Code::NoSpace,
        Some(Errno::IO | Errno::UCLEAN | Errno::BADMSG) => Code::DiskBroken,
        _ => Code::InvalidPath,
    };
    Error::new(code, format!("cannot {what} {}: {error}", path.display()))
        .next("check that the path exists and that you have permission to access it")
        .into()
}

fn path_from(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from)
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn default_state_dir() -> Option<PathBuf> {
    if is_root() {
        return Some("/var/lib/isle".into());
    }
    let state_home =
        absolute_from("XDG_STATE_HOME").or_else(|| Some(absolute_from("HOME")?.join(".local/state")));
    state_home.map(|home| home.join("isle"))
}

/// `~/.config/isle/config.toml`.
pub(crate) fn user_config() -> Option<PathBuf> {
    let home = absolute_from("XDG_CONFIG_HOME").or_else(|| Some(absolute_from("HOME")?.join(".config")));
    home.map(|home| home.join("isle/config.toml"))
}

fn absolute_from(variable: &str) -> Option<PathBuf> {
    path_from(variable).filter(|path| path.is_absolute())
}

fn runtime_dir() -> PathBuf {
    // As root, XDG_RUNTIME_DIR may be inherited from the user who called sudo: ignore it.
    if is_root() {
        return "/run/isle".into();
    }
    match absolute_from("XDG_RUNTIME_DIR").filter(|directory| directory.is_dir()) {
        Some(directory) => directory.join("isle"),
        None => std::env::temp_dir().join(format!("isle-{}", rustix::process::geteuid().as_raw())),
    }
}

/// The path with symbolic links resolved as far as it exists, so that every spelling of a directory yields
/// the same socket, before and after the directory is created.
fn resolved(path: &Path) -> Result<PathBuf> {
    let absolute = std::path::absolute(path).map_err(|error| cannot("resolve", path, &error))?;
    let mut missing: Vec<OsString> = Vec::new();
    let mut existing = absolute.as_path();
    loop {
        if let Ok(found) = existing.canonicalize() {
            return Ok(missing.iter().rev().fold(found, |path, part| path.join(part)));
        }
        match (existing.parent(), existing.file_name()) {
            (Some(parent), Some(name)) => {
                missing.push(name.to_owned());
                existing = parent;
            }
            _ => return Ok(absolute),
        }
    }
}

/// FNV-1a: the same for every build, which the standard hasher is not.
fn fingerprint(path: &Path) -> u64 {
    path.as_os_str().as_encoded_bytes().iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
