//! Finding the daemon, and starting it when a client finds none.

use std::path::PathBuf;

use isle_client::{Client, ClientError, Endpoint, Result};

use super::start::start;
use crate::config::Settings;
use crate::places::Places;

/// Which daemon: the one `url` names, else this user's own.
pub(crate) fn endpoint(places: &Places, settings: &Settings) -> Result<Endpoint> {
    let endpoint = match settings.text("url").filter(|_| !places.socket_chosen) {
        Some(url) => Endpoint::from_url(&url, &settings.text("token").unwrap_or_default())?,
        None => {
            places.check_runtime_dir()?;
            Endpoint::unix(places.socket.clone())
        }
    };
    let namespace = places.namespace.clone().or_else(|| settings.text("namespace"));
    Ok(endpoint.within(namespace.as_deref().map(str::parse).transpose()?))
}

/// Does something with the daemon; when there is none, starts it and does it then.
pub(crate) async fn reach<T>(
    places: &Places,
    endpoint: &Endpoint,
    user_file: Option<&PathBuf>,
    attempt: impl AsyncFn(&Endpoint) -> Result<T>,
) -> Result<T> {
    match attempt(endpoint).await {
        Err(error) if may_start(endpoint, &error) => {
            start(places, user_file.map(PathBuf::as_path))?;
            attempt(endpoint).await
        }
        other => other,
    }
}

/// The same without a runtime, for the MCP pipe.
pub(crate) fn ensure_running<T>(
    places: &Places,
    endpoint: &Endpoint,
    user_file: Option<&PathBuf>,
    attempt: impl Fn(&Endpoint) -> Result<T>,
) -> Result<T> {
    match attempt(endpoint) {
        Err(error) if may_start(endpoint, &error) => {
            start(places, user_file.map(PathBuf::as_path))?;
            attempt(endpoint)
        }
        other => other,
    }
}

fn may_start(endpoint: &Endpoint, error: &ClientError) -> bool {
    let refused = std::env::var_os("ISLE_NO_AUTOSTART").is_some_and(|value| value == "1");
    endpoint.socket().is_some() && error.is_absent() && !refused
}

/// A client; the first answer tells whether the daemon is of this version.
pub(crate) async fn connect(
    places: &Places,
    settings: &Settings,
    user_file: Option<&PathBuf>,
) -> Result<Client> {
    let endpoint = endpoint(places, settings)?;
    reach(places, &endpoint, user_file, async |endpoint| Client::connect(endpoint.clone()).await).await
}
