//! MCP over a byte stream: newline-delimited JSON, as on stdio. `isle mcp` copies its stdin and stdout here, so
//! the session runs in the daemon.

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
use crate::message_reader::{MessageReader, Received};

/// Maximum length of a line. Longer ones are rejected; the connection stays open.
pub const MAX_LINE: usize = 16 * 1024 * 1024;

/// Maximum number of cancellations stored until their requests handle them.
const MAX_CANCELLATIONS: usize = 1024;

/// Why a stream could not be served.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// The initialization failed.
    #[error("cannot open the MCP session: {0}")]
    Handshake(#[from] Box<ServerInitializeError>),
}

/// Serves one client until it closes the stream or `shutdown` is cancelled. Pending calls are detached then, not
/// killed; their runs remain available through `wait` and `logs`.
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
    let lines = MessageReader::new(read, MAX_LINE);
    let answers = AsyncRwTransport::new_server(tokio::io::empty(), write);
    let handler = handler.for_stream(peer, state.clone());
    let service = tokio::select! {
        service = handler.serve(Watched { lines, answers, rejecting: None, state: state.clone() }) => match service {
            Ok(service) => service,
            // Not an error: the client connected and disconnected.
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

/// State of a stream that distinguishes a cancelled request from a lost client.
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
        if inner.cancelled.len() >= MAX_CANCELLATIONS {
            inner.cancelled.clear();
        }
        inner.cancelled.insert(id);
    }

    pub(crate) fn ended_without_cancelling(&self, id: &RequestId) -> bool {
        let mut inner = self.lock();
        let was_cancelled = inner.cancelled.remove(id);
        inner.ended && !was_cancelled
    }
}

/// Both directions; records cancellations and the end of the stream before the service loop handles them.
struct Watched<R: AsyncRead, W: AsyncWrite> {
    lines: MessageReader<R>,
    answers: AsyncRwTransport<RoleServer, Empty, W>,
    /// The pending error response to an invalid line. The next line is read after it was sent, so that a client
    /// that does not read cannot accumulate responses.
    rejecting: Option<Pin<Box<dyn Future<Output = std::io::Result<()>> + Send>>>,
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
            // This future may be dropped at any await, so the pending response is stored.
            if let Some(rejecting) = &mut self.rejecting {
                // A lost client is detected when the next line is read.
                let _ = rejecting.await;
                self.rejecting = None;
            }
            match self.lines.next().await {
                Some(Received::Message(message)) => {
                    if let Some(id) = cancelled_request(&message) {
                        self.state.cancel(id);
                    }
                    return Some(*message);
                }
                Some(Received::Rejected(rejected)) => {
                    self.rejecting = Some(Box::pin(self.answers.send(rejected.into_message())));
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
