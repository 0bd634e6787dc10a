//! MCP over a byte stream: newline-separated JSON, as on stdio. `isle mcp` pipes its stdin and
//! stdout here, so the session lives in the daemon.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use rmcp::model::{ClientJsonRpcMessage, ClientNotification, JsonRpcMessage, RequestId};
use rmcp::service::{RxJsonRpcMessage, ServerInitializeError, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::{RoleServer, ServiceExt};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use crate::handler::McpHandler;

/// The longest line a client may send. Longer ones are dropped, the connection stays.
pub const MAX_LINE: usize = 16 * 1024 * 1024;

/// A client that cancels more requests than this before they notice is not remembered in full.
const REMEMBERED_CANCELLATIONS: usize = 1024;

/// Why a stream was not served to its end.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// The client did not open the session as the protocol wants it.
    #[error("the MCP session could not be opened: {0}")]
    Handshake(#[from] Box<ServerInitializeError>),
}

/// Serves one client until it closes the stream or `shutdown` fires. Calls still waiting then are
/// let go of, not killed; what they wait for stays reachable through `wait` and `logs`.
pub async fn serve_stream<T>(
    handler: &McpHandler,
    io: T,
    peer_actor: &str,
    shutdown: CancellationToken,
) -> Result<(), StreamError>
where
    T: AsyncRead + AsyncWrite + Send + 'static,
{
    let state = Arc::new(StreamState::default());
    let (read, write) = tokio::io::split(io);
    let lines = AsyncRwTransport::new_server(read, write).with_max_line_length(MAX_LINE);
    let handler = handler.for_stream(peer_actor, state.clone());
    let service = tokio::select! {
        service = handler.serve(Watched { lines, state: state.clone() }) => match service {
            Ok(service) => service,
            // A client that connects and leaves again has done nothing wrong.
            Err(ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
            Err(error) => return Err(Box::new(error).into()),
        },
        () = shutdown.cancelled() => return Ok(()),
    };
    let stop = service.cancellation_token();
    let mut ended = std::pin::pin!(service.waiting());
    tokio::select! {
        _ = &mut ended => {}
        () = shutdown.cancelled() => {
            state.end();
            stop.cancel();
            let _ = ended.await;
        }
    }
    Ok(())
}

/// What the handler must know about its stream to tell a wish to cancel from a lost client.
#[derive(Debug, Default)]
pub(crate) struct StreamState {
    inner: Mutex<StreamInner>,
}

#[derive(Debug, Default)]
struct StreamInner {
    ended: bool,
    cancelled: HashSet<RequestId>,
}

impl StreamState {
    fn lock(&self) -> std::sync::MutexGuard<'_, StreamInner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self) {
        self.lock().ended = true;
    }

    fn cancel(&self, id: RequestId) {
        let mut inner = self.lock();
        if inner.cancelled.len() >= REMEMBERED_CANCELLATIONS {
            inner.cancelled.clear();
        }
        inner.cancelled.insert(id);
    }

    pub(crate) fn ended_without_cancelling(&self, id: &RequestId) -> bool {
        let mut inner = self.lock();
        let wished = inner.cancelled.remove(id);
        inner.ended && !wished
    }
}

/// The line transport, noting cancellations and the end before the service loop acts on them.
struct Watched<R: AsyncRead, W: AsyncWrite> {
    lines: AsyncRwTransport<RoleServer, R, W>,
    state: Arc<StreamState>,
}

impl<R, W> Transport<RoleServer> for Watched<R, W>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    type Error = std::io::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.lines.send(item)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        let message = self.lines.receive().await;
        match &message {
            Some(message) => {
                if let Some(id) = cancelled_request(message) {
                    self.state.cancel(id);
                }
            }
            None => self.state.end(),
        }
        message
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.lines.close().await
    }
}

fn cancelled_request(message: &ClientJsonRpcMessage) -> Option<RequestId> {
    let JsonRpcMessage::Notification(notification) = message else { return None };
    match &notification.notification {
        ClientNotification::CancelledNotification(cancelled) => cancelled.params.request_id.clone(),
        _ => None,
    }
}
