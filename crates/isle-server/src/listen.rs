//! Where the server listens: a Unix socket only its owner can open, and TCP when asked for.

use std::fs::DirBuilder;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use isle_engine::{Code, Error, Result};
use tokio::net::{TcpListener, UnixListener, UnixStream};

/// Where to listen.
#[derive(Debug, Clone, Default)]
pub struct ListenOptions {
    /// Path of the Unix socket.
    pub unix: Option<PathBuf>,
    /// Address of the TCP listener.
    pub tcp: Option<SocketAddr>,
    /// Accept addresses other machines can reach.
    pub allow_remote: bool,
}

/// Open listeners. Dropping them removes the socket file.
#[derive(Debug)]
pub struct Listeners {
    pub(crate) unix: Option<UnixListener>,
    pub(crate) tcp: Option<TcpListener>,
    unix_path: Option<PathBuf>,
}

impl Listeners {
    /// Opens what the options ask for, or nothing of it.
    pub async fn bind(options: &ListenOptions) -> Result<Self> {
        let tcp = match options.tcp {
            None => None,
            Some(address) => Some(bind_tcp(address, options.allow_remote).await?),
        };
        let unix = match &options.unix {
            None => None,
            Some(path) => Some(bind_unix(path).await?),
        };
        Ok(Self { unix, tcp, unix_path: options.unix.clone() })
    }

    /// The TCP address, with the port the system chose when 0 was asked for.
    #[must_use]
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        self.tcp.as_ref().and_then(|listener| listener.local_addr().ok())
    }
}

impl Drop for Listeners {
    fn drop(&mut self) {
        if let Some(path) = &self.unix_path {
            // Best effort: a stale file is recognised and replaced by the next start.
            let _ = std::fs::remove_file(path);
        }
    }
}

async fn bind_tcp(address: SocketAddr, allow_remote: bool) -> Result<TcpListener> {
    if !address.ip().is_loopback() && !allow_remote {
        return Err(Error::new(
            Code::ConfigInvalid,
            format!("{address} can be reached from other machines, and the traffic is not encrypted"),
        )
        .next(format!("listen on 127.0.0.1:{} and put an SSH tunnel or a TLS proxy in front", address.port()))
        .next("or allow it with `--allow-remote`"));
    }
    TcpListener::bind(address).await.map_err(|error| {
        Error::new(Code::ConfigInvalid, format!("cannot listen on {address}: {error}"))
            .next("choose another port, or end the program that uses this one")
    })
}

async fn bind_unix(path: &Path) -> Result<UnixListener> {
    let failed = |error: std::io::Error| {
        Error::new(Code::ConfigInvalid, format!("cannot listen on {}: {error}", path.display()))
            .next("choose a runtime directory that you own, with a path shorter than about 100 characters")
    };
    if let Some(directory) = path.parent() {
        private_directory(directory)?;
    }
    remove_stale(path).await?;
    let listener = UnixListener::bind(path).map_err(failed)?;
    // Nobody else can have come in before this: the directory is closed to them.
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(failed)?;
    Ok(listener)
}

/// Makes sure the directory exists, is ours and is closed to others.
fn private_directory(directory: &Path) -> Result<()> {
    let failed = |error: std::io::Error| {
        Error::new(
            Code::ConfigInvalid,
            format!("the directory {} cannot be used: {error}", directory.display()),
        )
        .next("choose a runtime directory that you own")
    };
    match DirBuilder::new().recursive(true).mode(0o700).create(directory) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(failed(error)),
        Ok(()) | Err(_) => {}
    }
    let metadata = std::fs::symlink_metadata(directory).map_err(failed)?;
    let us = rustix::process::getuid().as_raw();
    if !metadata.is_dir() || metadata.uid() != us {
        return Err(Error::new(
            Code::ConfigInvalid,
            format!("{} is not a directory that belongs to uid {us}", directory.display()),
        )
        .next("choose a runtime directory that you own"));
    }
    if metadata.mode() & 0o077 != 0 {
        std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o700)).map_err(failed)?;
    }
    Ok(())
}

/// Removes a socket nobody answers on. A file that is no socket, or a living daemon, stays.
async fn remove_stale(path: &Path) -> Result<()> {
    let Ok(metadata) = std::fs::symlink_metadata(path) else { return Ok(()) };
    if !metadata.file_type().is_socket() {
        return Err(Error::new(
            Code::ConfigInvalid,
            format!("{} exists and is not a socket", path.display()),
        )
        .next("choose another path for the socket"));
    }
    if UnixStream::connect(path).await.is_ok() {
        return Err(Error::new(
            Code::AlreadyExists,
            format!("a daemon already answers on {}", path.display()),
        )
        .next("use it, or end it first with `isle stop`"));
    }
    std::fs::remove_file(path).map_err(|error| {
        Error::new(Code::ConfigInvalid, format!("cannot remove the old socket {}: {error}", path.display()))
            .next("remove it by hand")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_socket_is_closed_to_others_and_goes_with_the_listener() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("run/isle.sock");
        let options = ListenOptions { unix: Some(path.clone()), ..ListenOptions::default() };
        let listeners = Listeners::bind(&options).await.unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(std::fs::metadata(path.parent().unwrap()).unwrap().mode() & 0o777, 0o700);
        drop(listeners);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_living_daemon_is_not_pushed_aside_but_a_dead_ones_socket_is() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("isle.sock");
        let options = ListenOptions { unix: Some(path.clone()), ..ListenOptions::default() };
        let living = Listeners::bind(&options).await.unwrap();
        assert_eq!(Listeners::bind(&options).await.unwrap_err().code, Code::AlreadyExists);
        drop(living);
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        Listeners::bind(&options).await.unwrap();
    }

    #[tokio::test]
    async fn an_address_others_can_reach_needs_an_explicit_yes() {
        let remote = ListenOptions { tcp: Some(([0, 0, 0, 0], 0).into()), ..ListenOptions::default() };
        let error = Listeners::bind(&remote).await.unwrap_err();
        assert!(error.next_steps.iter().any(|step| step.contains("--allow-remote")));
        Listeners::bind(&ListenOptions { allow_remote: true, ..remote }).await.unwrap();
    }
}
