//! Interactive sessions: a command that is started, or a run that is attached to. Standard streams, window size and
//! signals over one WebSocket.

use bytes::{BufMut, Bytes, BytesMut};
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt, StreamExt};
use hyper::Uri;
use isle_api::session::{
    ClientMessage, FirstMessage, ROUTE, STDERR, STDIN, STDOUT, ServerMessage, StdinEnd, TerminalShape,
};
use isle_api::shapes::RunResult;
use isle_core::values::RunId;
use serde::Deserialize;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::ClientRequestBuilder;
use tokio_tungstenite::tungstenite::{Error, Message};

use crate::connection::{DOOR, INSTANCE, NAMESPACE, Stream};
use crate::endpoint::Endpoint;
use crate::error::{ClientError, Result, check_instance, check_version};

/// What comes from a session.
#[derive(Debug)]
pub enum SessionEvent {
    /// The command was started, or the run was joined.
    Started {
        /// The run it is recorded as.
        run_id: RunId,
        /// Whether it has a terminal.
        terminal: bool,
    },
    /// So many bytes of output are missing here.
    Lost(u64),
    /// Standard output, or the terminal's.
    Stdout(Bytes),
    /// Standard error.
    Stderr(Bytes),
    /// It is over. Last event.
    Ended(Box<RunResult>),
}

type Notice = ServerMessage<Box<RunResult>, ClientError>;

/// Towards a session.
#[derive(Debug)]
pub struct SessionWriter(SplitSink<WebSocketStream<Stream>, Message>);

/// From a session.
#[derive(Debug)]
pub struct SessionReader(SplitStream<WebSocketStream<Stream>>);

/// Opens a session. Dropping both halves kills the process tree of a command that it started, and leaves a run that
/// it attached to as it is.
pub async fn open_session(
    endpoint: &Endpoint,
    first: &FirstMessage,
) -> Result<(SessionWriter, SessionReader)> {
    let stream = Stream::open(endpoint).await?;
    let uri: Uri = format!("ws://{}{ROUTE}", endpoint.host()).parse().map_err(ClientError::not_understood)?;
    let mut builder = ClientRequestBuilder::new(uri).with_header(DOOR.0, DOOR.1);
    if let Some(authorization) = endpoint.authorization() {
        builder = builder.with_header("authorization", authorization);
    }
    if let Some(namespace) = endpoint.namespace() {
        builder = builder.with_header(NAMESPACE, namespace);
    }
    if let Some(instance) = endpoint.instance() {
        builder = builder.with_header(INSTANCE, instance);
    }
    let (mut socket, response) = tokio_tungstenite::client_async(builder, stream).await.map_err(refused)?;
    check_version(response.headers())?;
    check_instance(endpoint, response.headers())?;
    let first = serde_json::to_string(first).map_err(ClientError::not_understood)?;
    socket.send(Message::text(first)).await.map_err(ClientError::interrupted)?;
    let (writer, reader) = socket.split();
    Ok((SessionWriter(writer), SessionReader(reader)))
}

/// A handshake the daemon answered with an ordinary error.
fn refused(error: Error) -> ClientError {
    #[derive(Deserialize)]
    struct Envelope {
        error: ClientError,
    }
    if let Error::Http(response) = &error
        && let Some(body) = response.body()
        && let Ok(envelope) = serde_json::from_slice::<Envelope>(body)
    {
        return envelope.error;
    }
    ClientError::interrupted(error)
}

impl SessionWriter {
    /// Sends standard input.
    pub async fn stdin(&mut self, bytes: &[u8]) -> Result<()> {
        let mut frame = BytesMut::with_capacity(bytes.len() + 1);
        frame.put_u8(STDIN);
        frame.put_slice(bytes);
        self.0.send(Message::Binary(frame.freeze())).await.map_err(ClientError::interrupted)
    }

    /// Ends standard input.
    pub async fn end_stdin(&mut self) -> Result<()> {
        self.text(&ClientMessage::Stdin(StdinEnd::End)).await
    }

    /// The window changed.
    pub async fn resize(&mut self, terminal: TerminalShape) -> Result<()> {
        self.text(&ClientMessage::Resize(terminal)).await
    }

    /// Sends a signal.
    pub async fn signal(&mut self, signal: i32) -> Result<()> {
        self.text(&ClientMessage::Signal(signal)).await
    }

    async fn text(&mut self, message: &ClientMessage) -> Result<()> {
        let text = serde_json::to_string(message).map_err(ClientError::not_understood)?;
        self.0.send(Message::text(text)).await.map_err(ClientError::interrupted)
    }
}

impl SessionReader {
    /// The next event. An error event, or a connection that ends before the command did, is the
    /// error.
    pub async fn next(&mut self) -> Result<SessionEvent> {
        loop {
            let message = match self.0.next().await {
                None => return Err(ClientError::interrupted("the daemon closed it")),
                Some(message) => message.map_err(ClientError::interrupted)?,
            };
            match message {
                Message::Binary(frame) => match frame.first() {
                    Some(&STDOUT) => return Ok(SessionEvent::Stdout(frame.slice(1..))),
                    Some(&STDERR) => return Ok(SessionEvent::Stderr(frame.slice(1..))),
                    first => return Err(ClientError::not_understood(format!("a frame of kind {first:?}"))),
                },
                Message::Text(text) => {
                    let message: Notice =
                        serde_json::from_str(text.as_str()).map_err(ClientError::not_understood)?;
                    return match message {
                        ServerMessage::Started { run_id, terminal } => {
                            Ok(SessionEvent::Started { run_id, terminal })
                        }
                        ServerMessage::Lost { bytes } => Ok(SessionEvent::Lost(bytes)),
                        ServerMessage::Ended { result } => Ok(SessionEvent::Ended(result)),
                        ServerMessage::Error { error } => Err(error),
                    };
                }
                Message::Close(_) => return Err(ClientError::interrupted("the daemon closed it")),
                Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
            }
        }
    }
}
