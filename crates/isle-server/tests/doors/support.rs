//! A server over an engine without backends, and a client that sends exactly the bytes it is told.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use isle_engine::engine::DenyList;
use isle_engine::{Engine, EngineConfig};
use isle_server::{ListenOptions, Listeners, ServerConfig, Token, serve};
use isle_store::Store;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub struct Server {
    pub socket: PathBuf,
    pub address: SocketAddr,
    pub token: Token,
    pub engine: Engine,
    pub shutdown: CancellationToken,
    pub ended: JoinHandle<isle_core::Result<()>>,
    _state: tempfile::TempDir,
}

impl Server {
    pub async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    pub async fn start_with(change: impl FnOnce(&mut ServerConfig)) -> Self {
        let state = tempfile::tempdir().unwrap();
        let store = Store::open(&state.path().join("state")).unwrap();
        let deny = DenyList::new(&["forbidden".to_owned()]).unwrap();
        let config = EngineConfig { deny, ..EngineConfig::default() };
        let engine = Engine::start(config, store, Vec::new()).await.unwrap();
        let socket = state.path().join("run/isle.sock");
        let options = ListenOptions {
            unix: Some(socket.clone()),
            tcp: Some(([127, 0, 0, 1], 0).into()),
            allow_remote: false,
        };
        let listeners = Listeners::bind(&options).await.unwrap();
        let address = listeners.tcp_address().unwrap();
        let token = Token::load_or_create(&state.path().join("token")).unwrap();
        let mut config = ServerConfig::new("9.9.9", state.path());
        config.token = Some(token.clone());
        change(&mut config);
        let shutdown = CancellationToken::new();
        let ended = tokio::spawn(serve(engine.clone(), listeners, config, shutdown.clone()));
        Self { socket, address, token, engine, shutdown, ended, _state: state }
    }

    pub fn bearer(&self) -> String {
        format!("Authorization: Bearer {}", self.token.reveal())
    }

    /// Over TCP, with the right `Host` unless another is among the headers.
    pub async fn tcp(&self, line: &str, headers: &[&str], body: &[u8]) -> Answer {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let host = format!("Host: {}", self.address);
        let names_host = headers.iter().any(|header| header.starts_with("Host:"));
        let headers: Vec<&str> =
            headers.iter().copied().chain((!names_host).then_some(host.as_str())).collect();
        exchange(stream, line, &headers, body).await
    }

    /// Over the Unix socket.
    pub async fn unix(&self, line: &str, headers: &[&str], body: &[u8]) -> Answer {
        let headers: Vec<&str> = headers.iter().copied().chain(["Host: localhost"]).collect();
        exchange(connect(&self.socket).await, line, &headers, body).await
    }

    /// A JSON body over the Unix socket.
    pub async fn post(&self, path: &str, body: &str) -> Answer {
        self.unix(&format!("POST {path}"), &["Content-Type: application/json"], body.as_bytes()).await
    }
}

pub async fn connect(socket: &Path) -> UnixStream {
    UnixStream::connect(socket).await.unwrap()
}

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub fn code(&self) -> String {
        self.json()["error"]["code"].as_str().unwrap().to_owned()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.head
            .lines()
            .filter_map(|line| line.split_once(": "))
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    }
}

/// One request, and everything that comes back until the server closes.
async fn exchange<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    line: &str,
    headers: &[&str],
    body: &[u8],
) -> Answer {
    let mut request = format!("{line} HTTP/1.1\r\n");
    for header in headers {
        request.push_str(&format!("{header}\r\n"));
    }
    if !headers.iter().any(|header| header.starts_with("Connection:")) {
        request.push_str("Connection: close\r\n");
    }
    if !body.is_empty() {
        request.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    request.push_str("\r\n");
    let mut bytes = request.into_bytes();
    bytes.extend_from_slice(body);
    stream.write_all(&bytes).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").expect("an HTTP answer");
    let head = String::from_utf8(answer[..end].to_vec()).unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let body = answer.split_off(end + 4);
    Answer { status, head, body }
}
