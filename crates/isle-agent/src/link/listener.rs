//! A listening Unix socket: a daemon that was restarted connects here again.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use tokio::net::UnixListener;

use super::Connection;
use crate::serve::{self, Shared};

/// Delay after a failed `accept`, which happens when no descriptor is free.
const RETRY: Duration = Duration::from_millis(20);

/// Listens at a path, for the user of the agent only. A socket that an earlier agent left there is replaced.
pub(crate) fn listen_at(path: &Path) -> io::Result<OwnedFd> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let listener = std::os::unix::net::UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener.into())
}

/// Accepts connections for as long as the agent runs.
pub(super) async fn serve(socket: OwnedFd, agent: Shared) {
    let listener = std::os::unix::net::UnixListener::from(socket);
    let Ok(listener) = listener.set_nonblocking(true).and_then(|()| UnixListener::from_std(listener)) else {
        return;
    };
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(RETRY).await;
            continue;
        };
        if let Ok(connection) = stream.into_std().and_then(Connection::socket) {
            tokio::task::spawn_local(serve::connection(connection, agent.clone()));
        }
    }
}
