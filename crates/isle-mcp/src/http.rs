//! The streamable HTTP transport, put together once for every handler: the product's and the
//! conformance fixtures' go through this same function.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use rmcp::ServerHandler;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use tokio_util::sync::CancellationToken;

/// The service that is mounted at `/mcp`.
pub type HttpService<H> = StreamableHttpService<H, LocalSessionManager>;

/// Sessions of the older revisions are ended after this silence. The SDK counts a long call as
/// silence too, so it has to be longer than any call.
const SESSION_KEEP_ALIVE: Duration = Duration::from_secs(24 * 3600);

/// Most sessions at once. Those of clients that went without a word count until they are forgotten.
pub const MAX_SESSIONS: usize = 2048;

/// How the transport is set up.
#[derive(Debug, Clone)]
pub struct HttpOptions {
    /// Ends every open stream when it fires.
    pub shutdown: CancellationToken,
    /// Largest request.
    pub max_body_bytes: usize,
}

/// A service that answers MCP over HTTP: sessions and event streams for the revisions up to
/// 2025-11-25, self-contained requests for 2026-07-28. The listener in front of it has already
/// checked `Host`, `Origin` and the token, for all routes in one place, so it is not done again
/// here by a second parser.
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
        // A plain JSON answer is one write and one read less than an event stream; the transport
        // still streams as soon as a call reports progress first.
        .with_json_response(true);
    let sessions = Arc::new(sessions);
    let service = StreamableHttpService::new(move || Ok(handler.clone()), sessions.clone(), config);
    (service, Sessions(sessions))
}

/// The sessions a service has open.
#[derive(Debug, Clone)]
pub struct Sessions(Arc<LocalSessionManager>);

impl Sessions {
    /// Whether there is room for another one.
    pub async fn has_room(&self) -> bool {
        self.0.sessions.read().await.len() < MAX_SESSIONS
    }

    /// Of these, the sessions that are open.
    pub async fn open_among<'a>(&self, ids: impl Iterator<Item = &'a String> + Send) -> HashSet<String> {
        let open = self.0.sessions.read().await;
        ids.filter(|id| open.contains_key(id.as_str())).cloned().collect()
    }
}
