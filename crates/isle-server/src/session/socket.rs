//! One session: copies between the socket and the command in both directions until either side ends.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::response::IntoResponse;
use bytes::{BufMut, Bytes, BytesMut};
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt, StreamExt};
use http::StatusCode;
use http::header::HeaderMap;
use isle_api::session::{AttachRequest, ClientMessage, FirstMessage, STDERR, STDIN, STDOUT, StdinEnd};
use isle_api::shapes::RunResult;
use isle_core::{Code, Error, Result, strict_json};
use isle_engine::CallContext;
use isle_engine::engine::{Session, SessionEvent, SessionInput, SessionOutput};
use tokio::time::Instant;

use crate::app::{Peer, Shared};
use crate::reply::{self, Reply};
use crate::session::start::open_exec;

/// The first message contains the files of a one-shot, so it may be larger than the others.
const MAX_FIRST_MESSAGE: usize = 16 * 1024 * 1024;
const MAX_MESSAGE: usize = 1024 * 1024;
const FIRST_MESSAGE_TIMEOUT: Duration = Duration::from_secs(30);
/// While the socket is not read, a lost client is detected only by writing to it.
const PING_EVERY: Duration = Duration::from_secs(5);
/// Send timeout of the last message.
const FAREWELL: Duration = Duration::from_secs(5);

type Sink = SplitSink<WebSocket, Message>;
/// Borrowed: a result is serialized without a copy.
type ServerMessage<'a> = isle_api::session::ServerMessage<&'a RunResult, &'a Error>;

/// Upgrades the request to a WebSocket.
pub(crate) async fn upgrade(
    State(shared): State<Arc<Shared>>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    socket: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Reply {
    let socket = match socket {
        Ok(socket) => socket,
        Err(rejection) => {
            let status = rejection.into_response().status();
            let error = Error::new(Code::InvalidArgument, "this route requires a WebSocket")
                .next("open it with a WebSocket client, or use POST /v1/sandboxes/{sandbox}/exec");
            return reply::error_with(
                if status.is_client_error() { status } else { StatusCode::BAD_REQUEST },
                &error,
            );
        }
    };
    let context = peer.context(&headers);
    let running = shared.tasks.token();
    socket.max_message_size(MAX_FIRST_MESSAGE).max_frame_size(MAX_FIRST_MESSAGE).on_upgrade(
        move |socket| async move {
            let (mut sink, mut stream) = socket.split();
            let ended = {
                let mut talk = std::pin::pin!(converse(&shared, context, &mut sink, &mut stream));
                tokio::select! {
                    ended = &mut talk => ended,
                    // The engine kills the command shortly; its result is still sent.
                    () = shared.closing.cancelled() => tokio::time::timeout(shared.last_words, talk)
                        .await
                        .unwrap_or_else(|_| Err(Error::new(
                            Code::DaemonUnavailable, "the daemon is shutting down",
                        ).next("run the command again"))),
                }
            };
            // The client may have disconnected, or not read; do not wait for it.
            let _ = tokio::time::timeout(FAREWELL, async {
                if let Err(error) = &ended {
                    let _ = send_message(&mut sink, &ServerMessage::Error { error }).await;
                }
                let _ = sink.send(Message::Close(None)).await;
            })
            .await;
            drop(running);
        },
    )
}

/// Runs from the first message to the last. Dropping the session kills the command.
async fn converse(
    shared: &Shared,
    context: CallContext,
    sink: &mut Sink,
    stream: &mut SplitStream<WebSocket>,
) -> Result<()> {
    let (mut session, without_end): (Session, _) = match first_message(stream).await? {
        FirstMessage::Start(request) => {
            let ended = Error::internal("the command's output ended without its result");
            (shared.engine.open(context, open_exec(*request)?).await?, ended)
        }
        FirstMessage::Attach(AttachRequest { run, terminal }) => {
            let ended = Error::new(Code::DaemonUnavailable, "the daemon is shutting down; the run continues")
                .next("attach again; the next call starts the daemon");
            (shared.engine.view(&context, &run, terminal.map(Into::into))?, ended)
        }
    };
    send_message(
        sink,
        &ServerMessage::Started { run_id: session.run_id.clone(), terminal: session.terminal },
    )
    .await?;
    let input = session.input.clone();
    tokio::select! {
        ended = send_output(&mut session.output, sink, without_end) => ended,
        left = take_input(stream, &input) => left,
    }
}

async fn first_message(stream: &mut SplitStream<WebSocket>) -> Result<FirstMessage> {
    let refuse = |message: String| {
        Error::new(Code::InvalidArgument, message)
            .next("send a start or attach request as one JSON text message first")
    };
    let message = tokio::time::timeout(FIRST_MESSAGE_TIMEOUT, next_message(stream)).await;
    let message = message.map_err(|_| refuse("timed out waiting for the first message".into()))??;
    let Message::Text(text) = message else {
        return Err(refuse("the first message is not text".into()));
    };
    FirstMessage::read(strict_json::parse(text.as_bytes())?)
}

/// The next message that is not a ping or pong.
async fn next_message(stream: &mut SplitStream<WebSocket>) -> Result<Message> {
    loop {
        match stream.next().await {
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
            Some(Ok(Message::Close(_))) | None => return Err(gone("the client closed the connection")),
            Some(Ok(message)) => return Ok(message),
            Some(Err(error)) => return Err(gone(&format!("the connection failed: {error}"))),
        }
    }
}

fn gone(message: &str) -> Error {
    Error::new(Code::Cancelled, message).next("run the command again")
}

/// Sends output to the client until the command exits.
async fn send_output(output: &mut SessionOutput, sink: &mut Sink, without_end: Error) -> Result<()> {
    let mut ping = tokio::time::interval_at(Instant::now() + PING_EVERY, PING_EVERY);
    loop {
        let event = {
            let mut next = std::pin::pin!(output.next());
            loop {
                tokio::select! {
                    biased;
                    event = &mut next => break event,
                    _ = ping.tick() => send(sink, Message::Ping(Bytes::new())).await?,
                }
            }
        };
        match event {
            Some(SessionEvent::Stdout(bytes)) => send(sink, frame(STDOUT, &bytes)).await?,
            Some(SessionEvent::Stderr(bytes)) => send(sink, frame(STDERR, &bytes)).await?,
            Some(SessionEvent::Ended(result)) => {
                return send_message(sink, &ServerMessage::Ended { result: &result }).await;
            }
            Some(SessionEvent::Lost(bytes)) => send_message(sink, &ServerMessage::Lost { bytes }).await?,
            None => return Err(without_end),
        }
    }
}

/// Reads input of the client until it disconnects or sends an invalid message.
async fn take_input(stream: &mut SplitStream<WebSocket>, input: &SessionInput) -> Result<()> {
    loop {
        match next_message(stream).await? {
            Message::Binary(bytes) => {
                if bytes.len() > MAX_MESSAGE {
                    return Err(Error::new(Code::TooLarge, format!("message exceeds {MAX_MESSAGE} bytes"))
                        .next("send input in smaller messages"));
                }
                if bytes.first() != Some(&STDIN) {
                    return Err(Error::new(
                        Code::InvalidArgument,
                        "binary message does not begin with the byte 1 (stdin)",
                    )
                    .next("prefix the input with the byte 1"));
                }
                // A command that has closed its input is not an error.
                let _ = input.stdin(bytes.slice(1..)).await;
            }
            Message::Text(text) => match read_text(&text)? {
                ClientMessage::Stdin(StdinEnd::End) => drop(input.close_stdin().await),
                ClientMessage::Resize(shape) => drop(input.resize(shape.into()).await),
                ClientMessage::Signal(signal) => input.signal(signal).await?,
            },
            Message::Ping(_) | Message::Pong(_) | Message::Close(_) => {}
        }
    }
}

fn read_text(text: &str) -> Result<ClientMessage> {
    let value = strict_json::parse(text.as_bytes())?;
    serde_json::from_value(value).map_err(|error| {
        Error::new(Code::InvalidArgument, format!("invalid message: {error}"))
            .next("send {\"stdin\": \"end\"}, {\"resize\": {\"rows\": …, \"columns\": …}} or {\"signal\": …}")
    })
}

fn frame(kind: u8, payload: &[u8]) -> Message {
    let mut bytes = BytesMut::with_capacity(payload.len() + 1);
    bytes.put_u8(kind);
    bytes.put_slice(payload);
    Message::Binary(bytes.freeze())
}

async fn send_message(sink: &mut Sink, message: &ServerMessage<'_>) -> Result<()> {
    let text = serde_json::to_string(message).map_err(Error::internal)?;
    send(sink, Message::text(text)).await
}

async fn send(sink: &mut Sink, message: Message) -> Result<()> {
    sink.send(message).await.map_err(|error| gone(&format!("the connection failed: {error}")))
}
