//! Where state and sockets are. Every state directory has one socket, found from its path alone,
//! so that a client needs nothing but the state directory to find its daemon.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use isle_client::Result;
use isle_engine::{Code, Error};
use rustix::io::Errno;

use crate::arguments::Global;

/// Where one daemon and its clients meet.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    /// Sandboxes, runs, audit, token, log.
    pub(crate) state_dir: PathBuf,
    /// Sockets; private to this user and gone after a reboot.
    pub(crate) runtime_dir: PathBuf,
    /// The part of it that belongs to this state directory alone, whatever the daemon's socket is.
    pub(crate) instance_dir: PathBuf,
    /// The daemon's socket.
    pub(crate) socket: PathBuf,
    /// Whether the user chose the socket; then its directory is the user's affair too.
    pub(crate) socket_chosen: bool,
    /// The namespace the user chose on the command line.
    pub(crate) namespace: Option<String>,
}

impl Places {
    /// Finds them from flags, environment and the kind of user.
    pub(crate) fn find(global: &Global) -> Result<Self> {
        let default = default_state_dir();
        let chosen = global.state_dir.clone().or_else(|| path_from("ISLE_STATE_DIR"));
        let state_dir = match (&chosen, &default) {
            (Some(chosen), _) => real(chosen)?,
            (None, Some(default)) => real(default)?,
            (None, None) => {
                return Err(Error::new(
                    Code::InvalidPath,
                    "there is no place for the state: HOME is not set",
                )
                .next("set HOME, or name a directory with --state-dir or ISLE_STATE_DIR")
                .into());
            }
        };
        let runtime_dir = match path_from("ISLE_RUNTIME_DIR") {
            Some(chosen) => real(&chosen)?,
            None => runtime_dir(),
        };
        let is_default = match &default {
            Some(default) => real(default)? == state_dir,
            None => false,
        };
        let chosen_socket = global.socket.clone().or_else(|| path_from("ISLE_SOCKET"));
        let socket_chosen = chosen_socket.is_some();
        let name = if is_default { "isle".to_owned() } else { format!("{:016x}", fingerprint(&state_dir)) };
        let socket = match chosen_socket {
            Some(socket) => real(&socket)?,
            None => runtime_dir.join(format!("{name}.sock")),
        };
        let instance_dir = runtime_dir.join(name);
        let namespace = global.namespace.clone();
        Ok(Self { state_dir, runtime_dir, instance_dir, socket, socket_chosen, namespace })
    }

    /// The daemon's log.
    pub(crate) fn log(&self) -> PathBuf {
        self.state_dir.join("daemon.log")
    }

    /// Makes the directories, private to this user. The directory of a socket the user chose is
    /// left as it is, and therefore must be private already.
    pub(crate) fn prepare(&self) -> Result<()> {
        make_private(&self.state_dir)?;
        make_private(&self.runtime_dir)?;
        check_private(&self.runtime_dir)?;
        make_private(&self.instance_dir)?;
        match self.socket.parent().filter(|_| self.socket_chosen) {
            Some(directory) => check_private(directory),
            None => Ok(()),
        }
    }

    /// For clients: refuses a runtime directory somebody else could have put there, because whoever
    /// owns it could pose as the daemon.
    pub(crate) fn check_runtime_dir(&self) -> Result<()> {
        if self.socket_chosen { Ok(()) } else { check_private(&self.runtime_dir) }
    }
}

/// A directory that is missing is private enough.
fn check_private(directory: &Path) -> Result<()> {
    let found = match fs::symlink_metadata(directory) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(cannot("look at", directory, &error)),
    };
    let ours =
        found.is_dir() && found.uid() == rustix::process::geteuid().as_raw() && found.mode() & 0o077 == 0;
    if ours {
        return Ok(());
    }
    let place = directory.display();
    Err(Error::new(Code::Forbidden, format!("{place} is not a directory that only this user can use"))
        .next(format!("choose another, or `chmod 700 {place}` when it is yours alone"))
        .into())
}

fn make_private(directory: &Path) -> Result<()> {
    match fs::DirBuilder::new().recursive(true).mode(0o700).create(directory) {
        Ok(()) => Ok(()),
        Err(error) => Err(cannot("make", directory, &error)),
    }
}

pub(crate) fn cannot(what: &str, path: &Path, error: &io::Error) -> isle_client::ClientError {
    let code = match Errno::from_io_error(error) {
        Some(Errno::NOSPC) => Code::NoSpace,
        Some(Errno::IO | Errno::UCLEAN | Errno::BADMSG) => Code::DiskBroken,
        _ => Code::InvalidPath,
    };
    Error::new(code, format!("cannot {what} {}: {error}", path.display()))
        .next("check that it exists and that this user may use it")
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
    // As root the variable may be what is left of the user who called sudo: never use it then.
    if is_root() {
        return "/run/isle".into();
    }
    match absolute_from("XDG_RUNTIME_DIR").filter(|directory| directory.is_dir()) {
        Some(directory) => directory.join("isle"),
        None => std::env::temp_dir().join(format!("isle-{}", rustix::process::geteuid().as_raw())),
    }
}

/// The path with links resolved as far as it exists, so that every spelling of a directory leads to
/// the same socket, before and after it is made.
fn real(path: &Path) -> Result<PathBuf> {
    let absolute = std::path::absolute(path).map_err(|error| cannot("find", path, &error))?;
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
