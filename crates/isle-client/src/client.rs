//! Calls by operation name, over connections that are kept.

use std::sync::{Mutex, OnceLock, PoisonError};

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderMap};
use hyper::{Method, Response, StatusCode};
use isle_engine::ops::Registry;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::connection::{Body, Connection, request, whole};
use crate::endpoint::Endpoint;
use crate::error::{ClientError, Result, check_version};
use crate::follow::EventStream;
use crate::route::{Planned, plan};

const VERSION: &str = "/v1/version";
const SHUTDOWN: &str = "/v1/shutdown";
const JSON: (&str, &str) = ("content-type", "application/json");

/// What the daemon says about itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaemonVersion {
    /// Version of the program.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// When it started, as text.
    pub started_at: String,
    /// Where it keeps its state.
    pub state_dir: String,
    /// Version of the HTTP interface.
    pub api: u32,
}

/// A client of one daemon. Calls may go on side by side; each uses a connection of its own.
#[derive(Debug)]
pub struct Client {
    endpoint: Endpoint,
    idle: Mutex<Vec<Connection>>,
    registry: OnceLock<Registry>,
}

impl Client {
    /// Connects, so that a daemon that is not there is noticed here and not at the first call.
    pub async fn connect(endpoint: Endpoint) -> Result<Self> {
        let connection = Connection::open(&endpoint).await?;
        Ok(Self { endpoint, idle: Mutex::new(vec![connection]), registry: OnceLock::new() })
    }

    /// Where the daemon listens.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The operations of this version.
    #[must_use]
    pub fn registry(&self) -> &Registry {
        self.registry.get_or_init(Registry::standard)
    }

    /// Calls an operation.
    pub async fn call(&self, operation: &str, input: Value) -> Result<Value> {
        let (planned, body) = self.planned(operation, input)?;
        self.json(planned.method, &planned.path, &[JSON], whole(body)).await
    }

    /// Calls an operation and hands on what it says while it goes on.
    pub async fn call_watched(
        &self,
        operation: &str,
        input: Value,
        mut told: impl FnMut(&str),
    ) -> Result<Value> {
        let (planned, body) = self.planned(operation, input)?;
        let headers = [JSON, (ACCEPT.as_str(), "text/event-stream")];
        let response = self.stream(planned.method, &planned.path, &headers, whole(body)).await?;
        let mut events = EventStream::of(response);
        while let Some(event) = events.next().await? {
            match event.name.as_str() {
                "progress" => told(event.data["message"].as_str().unwrap_or_default()),
                "result" => return Ok(event.data),
                "error" => return Err(read_envelope(event.data).unwrap_or_else(ClientError::not_understood)),
                _ => {}
            }
        }
        Err(ClientError::interrupted("the daemon ended the answer"))
    }

    fn planned(&self, operation: &str, input: Value) -> Result<(Planned, Bytes)> {
        let route = self.registry().get(operation)?.route;
        let planned = plan(operation, route, input)?;
        let body = match &planned.body {
            None => Bytes::new(),
            Some(body) => serde_json::to_vec(body).map_err(ClientError::not_understood)?.into(),
        };
        Ok((planned, body))
    }

    /// Calls an operation and reads the answer into its type.
    pub async fn call_as<T: for<'de> Deserialize<'de>>(&self, operation: &str, input: Value) -> Result<T> {
        serde_json::from_value(self.call(operation, input).await?).map_err(ClientError::not_understood)
    }

    /// What the daemon says about itself.
    pub async fn version(&self) -> Result<DaemonVersion> {
        let value = self.json(Method::GET, VERSION, &[], whole(Bytes::new())).await?;
        serde_json::from_value(value).map_err(ClientError::not_understood)
    }

    /// Asks the daemon to end. Named sandboxes live on.
    pub async fn shutdown(&self) -> Result<()> {
        self.json(Method::POST, SHUTDOWN, &[], whole(Bytes::new())).await.map(drop)
    }

    /// Sends a request and reads the whole answer as JSON; an error answer becomes the error.
    pub(crate) async fn json(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Body,
    ) -> Result<Value> {
        let (connection, response) = self.send(method, path, headers, body).await?;
        let (head, body) = response.into_parts();
        let bytes = collect(body).await?;
        self.keep(connection);
        read_answer(head.status, &head.headers, &bytes)
    }

    /// Sends a request whose answer is read piece by piece; an error answer becomes the error.
    pub(crate) async fn stream(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Body,
    ) -> Result<Response<Incoming>> {
        let (_, response) = self.send(method, path, headers, body).await?;
        if response.status().is_success() {
            return Ok(response);
        }
        let (head, body) = response.into_parts();
        let bytes = collect(body).await?;
        Err(read_error(head.status, &bytes))
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Body,
    ) -> Result<(Connection, Response<Incoming>)> {
        let mut connection = match self.take() {
            Some(connection) => connection,
            None => Connection::open(&self.endpoint).await?,
        };
        let request = request(&self.endpoint, method, path, headers, body)?;
        let response = connection.send(request).await?;
        // A daemon of any version must be able to say which it is, and to be ended.
        if !matches!(path, VERSION | SHUTDOWN) {
            check_version(response.headers())?;
        }
        Ok((connection, response))
    }

    fn take(&self) -> Option<Connection> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(connection) = idle.pop() {
            if connection.is_open() {
                return Some(connection);
            }
        }
        None
    }

    fn keep(&self, connection: Connection) {
        if connection.is_open() {
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        }
    }
}

async fn collect(body: Incoming) -> Result<Bytes> {
    Ok(body.collect().await.map_err(ClientError::interrupted)?.to_bytes())
}

fn read_answer(status: StatusCode, headers: &HeaderMap, bytes: &[u8]) -> Result<Value> {
    if !status.is_success() {
        return Err(read_error(status, bytes));
    }
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    let is_json = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .is_some_and(|value| value.starts_with("application/json"));
    if !is_json {
        return Err(ClientError::not_understood("it is not JSON"));
    }
    serde_json::from_slice(bytes).map_err(ClientError::not_understood)
}

/// The body of an error answer is `{"error": {code, message, …}}`.
fn read_error(status: StatusCode, bytes: &[u8]) -> ClientError {
    let answer = serde_json::from_slice(bytes).unwrap_or_default();
    read_envelope(answer).unwrap_or_else(|_| ClientError::not_understood(format!("HTTP status {status}")))
}

fn read_envelope(answer: Value) -> serde_json::Result<ClientError> {
    #[derive(Deserialize)]
    struct Envelope {
        error: ClientError,
    }
    serde_json::from_value(answer).map(|envelope: Envelope| envelope.error)
}
