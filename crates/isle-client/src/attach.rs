//! An interactive command: standard streams, window size and signals over one WebSocket.

use std::collections::BTreeMap;

use bytes::{BufMut, Bytes, BytesMut};
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt, StreamExt};
use hyper::Uri;
use isle_engine::engine::RunLimits;
use isle_engine::ops::shapes::RunResult;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::ClientRequestBuilder;
use tokio_tungstenite::tungstenite::{Error, Message};

use crate::connection::{DOOR, NAMESPACE, Stream};
use crate::endpoint::Endpoint;
use crate::error::{ClientError, Result, check_version};

const STDIN: u8 = 1;
const STDOUT: u8 = 2;
const STDERR: u8 = 3;

/// What to run, and where. Exactly one of `command`, `argv` and `code` is set.
#[derive(Debug, Clone, Serialize)]
pub struct AttachRequest {
    /// Where.
    pub target: AttachTarget,
    /// Shell text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Program and arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub argv: Option<Vec<String>>,
    /// Code in a language.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<Code>,
    /// Working directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Extra environment.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// As whom: `sandbox` or `root`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Time limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<String>,
    /// Limits of its own, inside those of the sandbox.
    pub limits: RunLimits,
    /// Whether a named sandbox made by this call may hold less than its tier promises.
    pub allow_downgrade: bool,
    /// The profile of a sandbox made by this call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// Run alone among runs with lock, in order.
    pub lock: bool,
    /// What it may reach while it runs, such as `example.com:443`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<String>,
    /// Secrets it has as placeholders, such as `KEY` or `KEY=VARIABLE`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
    /// Secrets it has as values, masked in its output.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub expose_secrets: Vec<String>,
    /// A terminal instead of pipes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminal: Option<Terminal>,
    /// Whether standard input will be sent.
    pub stdin: bool,
}

/// A look at a run that goes on.
#[derive(Debug, Clone, Serialize)]
pub struct ViewRequest {
    /// Which, by id or by job.
    pub view: String,
    /// The viewer's window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminal: Option<Terminal>,
}

/// Where an interactive command runs.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AttachTarget {
    /// In a named sandbox, made when missing.
    Sandbox(String),
    /// In a fresh one that is gone afterwards.
    OneShot(OneShot),
}

/// A sandbox for one command; what is not set is the daemon's default.
#[derive(Debug, Clone, Default, Serialize)]
pub struct OneShot {
    /// Tier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
    /// Image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
    /// CPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<f64>,
    /// Processes and threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pids: Option<u32>,
    /// Writable layer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<String>,
    /// Accept less than the tier promises.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_downgrade: Option<bool>,
    /// Files placed before the command starts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<PlacedFile>,
}

/// A file that is there before the command starts.
#[derive(Debug, Clone, Serialize)]
pub struct PlacedFile {
    /// Where in the sandbox.
    pub path: String,
    /// What is in it.
    pub content_base64: String,
}

/// Code in a language.
#[derive(Debug, Clone, Serialize)]
pub struct Code {
    /// Language; found out from the code when `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
    /// The code.
    pub code: String,
}

/// Size of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Terminal {
    /// Lines.
    pub rows: u16,
    /// Columns.
    pub columns: u16,
}

/// What comes from an open command.
#[derive(Debug)]
pub enum AttachEvent {
    /// The command was started.
    Started {
        /// The run it is recorded as.
        run_id: String,
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

#[derive(Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Notice {
    Started {
        run_id: String,
        #[serde(default)]
        terminal: bool,
    },
    Lost {
        bytes: u64,
    },
    Ended {
        result: Box<RunResult>,
    },
    Error {
        error: ClientError,
    },
}

/// Towards an open command.
#[derive(Debug)]
pub struct AttachWriter(SplitSink<WebSocketStream<Stream>, Message>);

/// From an open command.
#[derive(Debug)]
pub struct AttachReader(SplitStream<WebSocketStream<Stream>>);

impl AttachRequest {
    /// Opens the command. Dropping both halves ends its whole tree.
    pub async fn open(&self, endpoint: &Endpoint) -> Result<(AttachWriter, AttachReader)> {
        converse(endpoint, self).await
    }
}

impl ViewRequest {
    /// Opens the view. Dropping both halves leaves the run as it is.
    pub async fn open(&self, endpoint: &Endpoint) -> Result<(AttachWriter, AttachReader)> {
        converse(endpoint, self).await
    }
}

async fn converse(endpoint: &Endpoint, first: &impl Serialize) -> Result<(AttachWriter, AttachReader)> {
    let stream = Stream::open(endpoint).await?;
    let uri: Uri =
        format!("ws://{}/v1/attach", endpoint.host()).parse().map_err(ClientError::not_understood)?;
    let mut builder = ClientRequestBuilder::new(uri).with_header(DOOR.0, DOOR.1);
    if let Some(authorization) = endpoint.authorization() {
        builder = builder.with_header("authorization", authorization);
    }
    if let Some(namespace) = endpoint.namespace() {
        builder = builder.with_header(NAMESPACE, namespace);
    }
    let (mut socket, response) = tokio_tungstenite::client_async(builder, stream).await.map_err(refused)?;
    check_version(response.headers())?;
    let first = serde_json::to_string(first).map_err(ClientError::not_understood)?;
    socket.send(Message::text(first)).await.map_err(ClientError::interrupted)?;
    let (writer, reader) = socket.split();
    Ok((AttachWriter(writer), AttachReader(reader)))
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

impl AttachWriter {
    /// Sends standard input.
    pub async fn stdin(&mut self, bytes: &[u8]) -> Result<()> {
        let mut frame = BytesMut::with_capacity(bytes.len() + 1);
        frame.put_u8(STDIN);
        frame.put_slice(bytes);
        self.0.send(Message::Binary(frame.freeze())).await.map_err(ClientError::interrupted)
    }

    /// Ends standard input.
    pub async fn end_stdin(&mut self) -> Result<()> {
        self.text(&json!({"stdin": "end"})).await
    }

    /// The window changed.
    pub async fn resize(&mut self, terminal: Terminal) -> Result<()> {
        self.text(&json!({"resize": terminal})).await
    }

    /// Sends a signal.
    pub async fn signal(&mut self, signal: i32) -> Result<()> {
        self.text(&json!({"signal": signal})).await
    }

    async fn text(&mut self, value: &serde_json::Value) -> Result<()> {
        self.0.send(Message::text(value.to_string())).await.map_err(ClientError::interrupted)
    }
}

impl AttachReader {
    /// The next event. An error event, or a connection that ends before the command did, is the
    /// error.
    pub async fn next(&mut self) -> Result<AttachEvent> {
        loop {
            let message = match self.0.next().await {
                None => return Err(ClientError::interrupted("the daemon closed it")),
                Some(message) => message.map_err(ClientError::interrupted)?,
            };
            match message {
                Message::Binary(frame) => match frame.first() {
                    Some(&STDOUT) => return Ok(AttachEvent::Stdout(frame.slice(1..))),
                    Some(&STDERR) => return Ok(AttachEvent::Stderr(frame.slice(1..))),
                    first => return Err(ClientError::not_understood(format!("a frame of kind {first:?}"))),
                },
                Message::Text(text) => {
                    let notice = serde_json::from_str(text.as_str()).map_err(ClientError::not_understood)?;
                    return match notice {
                        Notice::Started { run_id, terminal } => Ok(AttachEvent::Started { run_id, terminal }),
                        Notice::Lost { bytes } => Ok(AttachEvent::Lost(bytes)),
                        Notice::Ended { result } => Ok(AttachEvent::Ended(result)),
                        Notice::Error { error } => Err(error),
                    };
                }
                Message::Close(_) => return Err(ClientError::interrupted("the daemon closed it")),
                Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
            }
        }
    }
}
