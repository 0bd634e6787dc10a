//! Finds the daemon of a client, and starts it when none is running.

use std::path::PathBuf;

use isle_client::{Client, ClientError, Endpoint, Finder, Result};
use isle_core::Code;

use super::start::{Missing, find_or_start};
use crate::config::Settings;
use crate::paths::{DaemonAddress, Paths};

/// How often a client looks for the daemon again when it disappeared before a request was sent: others may
/// restart or kill it meanwhile.
pub(crate) const MAX_RETRIES: u32 = 5;

/// The daemon at `url`, or this user's own daemon.
pub(crate) fn endpoint(paths: &Paths, settings: &Settings) -> Result<Endpoint> {
    let endpoint = match settings.text("url").filter(|_| paths.chosen_socket.is_none()) {
        Some(url) => Endpoint::from_url(&url, &settings.text("token").unwrap_or_default())?,
        None => {
            let DaemonAddress { socket, instance } = paths.daemon_address();
            paths.check_socket_dir(&socket)?;
            Endpoint::unix(socket).serving(instance)
        }
    };
    let namespace = paths.namespace.clone().or_else(|| settings.text("namespace"));
    Ok(endpoint.within(namespace.as_deref().map(str::parse).transpose()?))
}

/// Calls `attempt` with the daemon's endpoint; starts the daemon and repeats the call when none is running.
pub(crate) async fn reach<T>(
    paths: &Paths,
    endpoint: &Endpoint,
    user_file: Option<&PathBuf>,
    attempt: impl AsyncFn(&Endpoint) -> Result<T>,
) -> Result<T> {
    let mut result = attempt(endpoint).await;
    for _ in 0..MAX_RETRIES {
        match result {
            Err(error) if has_moved(paths, endpoint, &error) => {
                result = attempt(&found(paths, endpoint, user_file, error)?).await;
            }
            other => return other,
        }
    }
    result
}

/// The same without an async runtime, for the MCP stdio bridge.
pub(crate) fn ensure_running<T>(
    paths: &Paths,
    endpoint: &Endpoint,
    user_file: Option<&PathBuf>,
    attempt: impl Fn(&Endpoint) -> Result<T>,
) -> Result<T> {
    let mut result = attempt(endpoint);
    for _ in 0..MAX_RETRIES {
        match result {
            Err(error) if has_moved(paths, endpoint, &error) => {
                result = attempt(&found(paths, endpoint, user_file, error)?);
            }
            other => return other,
        }
    }
    result
}

/// Whether the daemon is not at this endpoint, or serves another state directory: a killed daemon may have been
/// replaced.
fn has_moved(paths: &Paths, endpoint: &Endpoint, error: &ClientError) -> bool {
    let other = error.is(Code::WrongDaemon) && paths.chosen_socket.is_none();
    endpoint.socket().is_some() && (error.is_absent() || other)
}

/// The endpoint of the daemon: waits for one that is starting, and starts one unless ISLE_NO_AUTOSTART is set.
fn found(
    paths: &Paths,
    endpoint: &Endpoint,
    user_file: Option<&PathBuf>,
    error: ClientError,
) -> Result<Endpoint> {
    let disabled = std::env::var_os("ISLE_NO_AUTOSTART").is_some_and(|value| value == "1");
    let missing = if disabled { Missing::Ignore } else { Missing::Start };
    match find_or_start(paths, user_file.map(PathBuf::as_path), missing)? {
        Some(DaemonAddress { socket, instance }) => Ok(endpoint.moved(socket, instance)),
        None => Err(error),
    }
}

/// A client; its first response shows whether the daemon has the same version.
pub(crate) async fn connect(
    paths: &Paths,
    endpoint: Endpoint,
    user_file: Option<&PathBuf>,
) -> Result<Client> {
    let (paths, user_file) = (paths.clone(), user_file.cloned());
    let finder = Finder::new(move |endpoint, error| match has_moved(&paths, endpoint, &error) {
        true => found(&paths, endpoint, user_file.as_ref(), error),
        false => Err(error),
    });
    Client::connect_finding(endpoint, finder).await
}
