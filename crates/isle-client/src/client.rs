//! Calls by operation name, over connections that are kept.

use std::fmt;
use std::sync::{Mutex, OnceLock, PoisonError};

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderMap};
use hyper::{Method, Response, StatusCode};
use isle_api::Registry;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::connection::{Body, Connection, request, whole};
use crate::endpoint::Endpoint;
use crate::error::{ClientError, Result, check_instance, check_version};
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

/// How often a daemon is looked for again: others may restart or kill it meanwhile.
const TRIES: u32 = 5;

type Find = dyn Fn(&Endpoint, ClientError) -> Result<Endpoint> + Send + Sync;

/// Says where the daemon listens now, given where it did and what happened there. It may wait for a daemon that
/// starts, or start one; an error ends the call.
pub struct Finder(Box<Find>);

impl Finder {
    /// From a function.
    pub fn new(find: impl Fn(&Endpoint, ClientError) -> Result<Endpoint> + Send + Sync + 'static) -> Self {
        Self(Box::new(find))
    }

    /// A daemon that is always where it was said to be.
    #[must_use]
    pub fn none() -> Self {
        Self::new(|_, error| Err(error))
    }
}

impl fmt::Debug for Finder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Finder")
    }
}

/// A client of one daemon. Calls may go on side by side; each uses a connection of its own.
#[derive(Debug)]
pub struct Client {
    endpoint: Mutex<Endpoint>,
    finder: Finder,
    idle: Mutex<Vec<Connection>>,
    registry: OnceLock<Registry>,
}

impl Client {
    /// Connects, so that a daemon that is not there is noticed here and not at the first call.
    pub async fn connect(endpoint: Endpoint) -> Result<Self> {
        Self::connect_finding(endpoint, Finder::none()).await
    }

    /// The same, with a way to find a daemon that is not where it was. It is used for as long as the client is:
    /// what was not sent yet, and what only reads, goes to the daemon that came after.
    pub async fn connect_finding(endpoint: Endpoint, finder: Finder) -> Result<Self> {
        let client = Self {
            endpoint: Mutex::new(endpoint),
            finder,
            idle: Mutex::new(Vec::new()),
            registry: OnceLock::new(),
        };
        let connection = client.open().await?;
        client.keep(connection);
        Ok(client)
    }

    /// Where the daemon listens.
    #[must_use]
    pub fn endpoint(&self) -> Endpoint {
        self.endpoint.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn open(&self) -> Result<Connection> {
        let mut tries = TRIES;
        loop {
            let endpoint = self.endpoint();
            match Connection::open(&endpoint).await {
                Err(error) if error.is_absent() && tries > 0 => {
                    tries -= 1;
                    let found = (self.finder.0)(&endpoint, error)?;
                    *self.endpoint.lock().unwrap_or_else(PoisonError::into_inner) = found;
                }
                opened => return opened,
            }
        }
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
        self.json(Method::POST, SHUTDOWN, &[JSON], whole(Bytes::new())).await.map(drop)
    }

    /// Sends a request and reads the whole answer as JSON; an error answer becomes the error.
    pub(crate) async fn json(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Body,
    ) -> Result<Value> {
        let mut answer = self.exchange(method.clone(), path, headers, body).await;
        // What only reads may be asked of the daemon that came after.
        for _ in 0..TRIES {
            if method != Method::GET || !answer.as_ref().is_err_and(ClientError::is_interrupted) {
                break;
            }
            answer = self.exchange(method.clone(), path, headers, whole(Bytes::new())).await;
        }
        answer
    }

    async fn exchange(
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
            None => self.open().await?,
        };
        let endpoint = self.endpoint();
        let request = request(&endpoint, method, path, headers, body)?;
        let response = connection.send(request).await?;
        // A daemon of any version must be able to say which it is, and to be ended.
        if !matches!(path, VERSION | SHUTDOWN) {
            check_version(response.headers())?;
        }
        // An error says more by itself.
        if response.status().is_success() {
            check_instance(&endpoint, response.headers())?;
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
