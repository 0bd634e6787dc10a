//! MCP over a byte stream: newline-separated JSON, as on stdio. `isle mcp` pipes its stdin and
//! stdout here, so the session lives in the daemon.

use std::collections::HashSet;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use rmcp::model::{ClientJsonRpcMessage, ClientNotification, JsonRpcMessage, RequestId};
use rmcp::service::{RxJsonRpcMessage, ServerInitializeError, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::{RoleServer, ServiceExt};
use tokio::io::{AsyncRead, AsyncWrite, Empty};
use tokio_util::sync::CancellationToken;

use crate::handler::{McpHandler, McpPeer};
use crate::lines::{Line, Lines};

/// The longest line a client may send. Longer ones are refused, the connection stays.
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
    peer: McpPeer,
    shutdown: CancellationToken,
) -> Result<(), StreamError>
where
    T: AsyncRead + AsyncWrite + Send + 'static,
{
    let state = Arc::new(StreamState::default());
    let (read, write) = tokio::io::split(io);
    let lines = Lines::new(read, MAX_LINE);
    let answers = AsyncRwTransport::new_server(tokio::io::empty(), write);
    let handler = handler.for_stream(peer, state.clone());
    let service = tokio::select! {
        service = handler.serve(Watched { lines, answers, refusing: None, state: state.clone() }) => match service {
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

/// Both directions, noting cancellations and the end before the service loop acts on them.
struct Watched<R: AsyncRead, W: AsyncWrite> {
    lines: Lines<R>,
    answers: AsyncRwTransport<RoleServer, Empty, W>,
    /// The answer to a line that was refused, on its way. The next line is read after it is gone, so that a
    /// client that does not listen cannot pile them up.
    refusing: Option<Pin<Box<dyn Future<Output = std::io::Result<()>> + Send>>>,
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
        self.answers.send(item)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            // This future is dropped whenever something else is ready first, so what it waits for is kept.
            if let Some(refusing) = &mut self.refusing {
                // A client that is gone shows in the next line.
                let _ = refusing.await;
                self.refusing = None;
            }
            match self.lines.next().await {
                Some(Line::Message(message)) => {
                    if let Some(id) = cancelled_request(&message) {
                        self.state.cancel(id);
                    }
                    return Some(*message);
                }
                Some(Line::Refused(refused)) => {
                    self.refusing = Some(Box::pin(self.answers.send(refused.into_message())));
                }
                None => {
                    self.state.end();
                    return None;
                }
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.answers.close().await
    }
}

fn cancelled_request(message: &ClientJsonRpcMessage) -> Option<RequestId> {
    let JsonRpcMessage::Notification(notification) = message else { return None };
    match &notification.notification {
        ClientNotification::CancelledNotification(cancelled) => cancelled.params.request_id.clone(),
        _ => None,
    }
}
