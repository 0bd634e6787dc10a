//! The streamable HTTP transport, configured once for every handler: the daemon's and the conformance
//! fixtures'.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use rmcp::ServerHandler;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use tokio_util::sync::CancellationToken;

/// The service that is mounted at `/mcp`.
pub type HttpService<H> = StreamableHttpService<H, LocalSessionManager>;

/// Idle timeout of sessions of the older revisions. The SDK counts a long call as idle time, so it must be longer
/// than any call.
const SESSION_KEEP_ALIVE: Duration = Duration::from_secs(24 * 3600);

/// Maximum number of sessions. Sessions of clients that disconnected count until they time out.
pub const MAX_SESSIONS: usize = 2048;

/// Options of the transport.
#[derive(Debug, Clone)]
pub struct HttpOptions {
    /// Closes all open streams when it is cancelled.
    pub shutdown: CancellationToken,
    /// Maximum size of a request body.
    pub max_body_bytes: usize,
}

/// A service for MCP over HTTP: sessions and event streams for the revisions up to 2025-11-25, self-contained
/// requests for 2026-07-28. The server has already checked `Host`, `Origin` and the token for all routes, so they
/// are not parsed a second time here.
pub fn http_service<H>(handler: H, options: HttpOptions) -> (HttpService<H>, Sessions)
where
    H: ServerHandler + Clone,
{
    let mut sessions = LocalSessionManager::default();
    sessions.session_config.keep_alive = Some(SESSION_KEEP_ALIVE);
    let config = StreamableHttpServerConfig::default()
        .disable_allowed_hosts()
        .with_cancellation_token(options.shutdown)
        .with_max_request_body_bytes(options.max_body_bytes)
        // A plain JSON response saves one write and one read; the transport still streams when a call
        // reports progress.
        .with_json_response(true);
    let sessions = Arc::new(sessions);
    let service = StreamableHttpService::new(move || Ok(handler.clone()), sessions.clone(), config);
    (service, Sessions(sessions))
}

/// The open sessions of a service.
#[derive(Debug, Clone)]
pub struct Sessions(Arc<LocalSessionManager>);

impl Sessions {
    /// Whether another session may be opened.
    pub async fn has_room(&self) -> bool {
        self.0.sessions.read().await.len() < MAX_SESSIONS
    }

    /// Of these, the sessions that are open.
    pub async fn open_among<'a>(&self, ids: impl Iterator<Item = &'a String> + Send) -> HashSet<String> {
        let open = self.0.sessions.read().await;
        ids.filter(|id| open.contains_key(id.as_str())).cloned().collect()
    }
}
