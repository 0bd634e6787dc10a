//! The listeners: a Unix socket that only its owner can open, and TCP if configured.

use std::fs::DirBuilder;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use isle_core::{Code, Error, Result, SocketPath};
use tokio::net::{TcpListener, UnixListener, UnixStream};

/// Addresses to listen on.
#[derive(Debug, Clone, Default)]
pub struct ListenOptions {
    /// Path of the Unix socket.
    pub unix: Option<PathBuf>,
    /// Address of the TCP listener.
    pub tcp: Option<SocketAddr>,
    /// Allow addresses other than loopback.
    pub allow_remote: bool,
}

/// Open listeners. Dropping them removes the socket file.
#[derive(Debug)]
pub struct Listeners {
    pub(crate) unix: Option<UnixSocket>,
    pub(crate) tcp: Option<TcpListener>,
}

impl Listeners {
    /// Opens all configured listeners, or none on failure.
    pub async fn bind(options: &ListenOptions) -> Result<Self> {
        let tcp = match options.tcp {
            None => None,
            Some(address) => Some(bind_tcp(address, options.allow_remote).await?),
        };
        let unix = match &options.unix {
            None => None,
            Some(path) => Some(UnixSocket::bind(path).await?),
        };
        Ok(Self { unix, tcp })
    }

    /// The TCP address, with the assigned port when 0 was configured.
    #[must_use]
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        self.tcp.as_ref().and_then(|listener| listener.local_addr().ok())
    }
}

/// How often the socket file is checked.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The Unix socket and its file, which a cleanup of temporary directories may remove.
#[derive(Debug)]
pub(crate) struct UnixSocket {
    pub(crate) listener: UnixListener,
    path: PathBuf,
    file: (u64, u64),
}

impl UnixSocket {
    async fn bind(path: &Path) -> Result<Self> {
        let listener = bind_unix(path).await?;
        let file = file_of(path).ok_or_else(|| {
            Error::new(
                Code::ConfigInvalid,
                format!("the socket {} was removed immediately after it was created", path.display()),
            )
            .next("use a runtime directory that you own")
        })?;
        Ok(Self { listener, path: path.to_owned(), file })
    }

    /// Waits until the file was removed or replaced, and creates the socket again; retries until it succeeds.
    pub(crate) async fn rebind(&self) -> Self {
        let mut logged = None;
        loop {
            tokio::time::sleep(CHECK_INTERVAL).await;
            if file_of(&self.path) == Some(self.file) {
                continue;
            }
            match Self::bind(&self.path).await {
                Ok(again) => {
                    tracing::warn!(socket = %self.path.display(), "another process removed the socket; created it again");
                    return again;
                }
                Err(error) if logged.as_ref() == Some(&error.message) => {}
                Err(error) => {
                    tracing::error!(error = %error.message, "the socket was removed and cannot be created again");
                    logged = Some(error.message);
                }
            }
        }
    }
}

impl Drop for UnixSocket {
    fn drop(&mut self) {
        if file_of(&self.path) == Some(self.file) {
            // Best effort: the next start replaces a stale file.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn file_of(path: &Path) -> Option<(u64, u64)> {
    std::fs::symlink_metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

pub(crate) async fn bind_tcp(address: SocketAddr, allow_remote: bool) -> Result<TcpListener> {
    if !address.ip().is_loopback() && !allow_remote {
        return Err(Error::new(
            Code::ConfigInvalid,
            format!("{address} is not a loopback address, and the traffic is not encrypted"),
        )
        .next(format!("listen on 127.0.0.1:{} behind an SSH tunnel or a TLS proxy", address.port()))
        .next("or pass `--allow-remote`"));
    }
    TcpListener::bind(address).await.map_err(|error| {
        Error::new(Code::ConfigInvalid, format!("cannot listen on {address}: {error}"))
            .next("use another port, or stop the program that uses this one")
    })
}

async fn bind_unix(path: &Path) -> Result<UnixListener> {
    let failed = |error: std::io::Error| {
        Error::new(Code::ConfigInvalid, format!("cannot listen on {}: {error}", path.display()))
            .next("use a runtime directory that you own")
    };
    if let Some(directory) = path.parent() {
        private_directory(directory)?;
    }
    remove_stale(path).await?;
    let listener = SocketPath::new(path).and_then(|address| UnixListener::bind(&address)).map_err(failed)?;
    // No other user can have connected before this: the directory is private.
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(failed)?;
    Ok(listener)
}

/// Ensures that the directory exists, is owned by this user and is private.
fn private_directory(directory: &Path) -> Result<()> {
    let failed = |error: std::io::Error| {
        Error::new(Code::ConfigInvalid, format!("cannot use directory {}: {error}", directory.display()))
            .next("use a runtime directory that you own")
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
            format!("{} is not a directory owned by uid {us}", directory.display()),
        )
        .next("use a runtime directory that you own"));
    }
    if metadata.mode() & 0o077 != 0 {
        std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o700)).map_err(failed)?;
    }
    Ok(())
}

/// Removes a stale socket. Fails for a file that is not a socket, and for a running daemon.
async fn remove_stale(path: &Path) -> Result<()> {
    let Ok(metadata) = std::fs::symlink_metadata(path) else { return Ok(()) };
    if !metadata.file_type().is_socket() {
        return Err(Error::new(
            Code::ConfigInvalid,
            format!("{} exists and is not a socket", path.display()),
        )
        .next("use another path for the socket"));
    }
    let address = SocketPath::new(path).map_err(|error| {
        Error::new(Code::ConfigInvalid, format!("cannot stat {}: {error}", path.display()))
            .next("use a runtime directory that you own")
    })?;
    if UnixStream::connect(&address).await.is_ok() {
        return Err(Error::new(
            Code::AlreadyExists,
            format!("a daemon is already listening on {}", path.display()),
        )
        .next("use it, or stop it with `isle stop`"));
    }
    std::fs::remove_file(path).map_err(|error| {
        Error::new(Code::ConfigInvalid, format!("cannot remove the stale socket {}: {error}", path.display()))
            .next("remove it manually")
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
