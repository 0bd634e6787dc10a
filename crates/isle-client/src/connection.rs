//! Byte streams to the daemon, and HTTP/1.1 over them.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::stream::BoxStream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{AUTHORIZATION, HOST};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

use isle_core::SocketPath;

use crate::endpoint::Endpoint;
use crate::error::{ClientError, Result};

/// Says through which door a call came, for the audit.
pub(crate) const DOOR: (&str, &str) = ("isle-door", "cli");

/// Chooses the namespace, when somebody may.
pub(crate) const NAMESPACE: &str = "isle-namespace";

/// Says which state directory is meant, and in an answer, which is served.
pub(crate) const INSTANCE: &str = "isle-instance";

/// Body of a request: whole, or a stream.
pub(crate) type Body = UnsyncBoxBody<Bytes, io::Error>;

/// A body that is all there.
pub(crate) fn whole(bytes: impl Into<Bytes>) -> Body {
    http_body_util::Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// A body that comes in pieces.
pub(crate) fn pieces(stream: BoxStream<'static, io::Result<Bytes>>) -> Body {
    use futures::TryStreamExt;
    StreamBody::new(stream.map_ok(Frame::data)).boxed_unsync()
}

/// A connected byte stream, whichever kind.
#[derive(Debug)]
pub(crate) enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Stream {
    pub(crate) async fn open(endpoint: &Endpoint) -> Result<Self> {
        let opened = match endpoint.socket() {
            Some(path) => match SocketPath::new(path) {
                Ok(address) => UnixStream::connect(&address).await.map(Self::Unix),
                Err(error) => Err(error),
            },
            None => match TcpStream::connect(endpoint.host()).await {
                // Small messages in both directions: waiting to fill a packet only adds latency.
                Ok(stream) => stream.set_nodelay(true).map(|()| Self::Tcp(stream)),
                Err(error) => Err(error),
            },
        };
        opened.map_err(|error| ClientError::unreachable(&endpoint.to_string(), &error))
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Unix(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Tcp(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Unix(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Unix(stream) => Pin::new(stream).poll_flush(context),
            Self::Tcp(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}

/// One HTTP connection; kept for the next request when the answer was read to its end.
#[derive(Debug)]
pub(crate) struct Connection {
    sender: SendRequest<Body>,
}

impl Connection {
    pub(crate) async fn open(endpoint: &Endpoint) -> Result<Self> {
        let stream = Stream::open(endpoint).await?;
        let (sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(ClientError::interrupted)?;
        // An error here also reaches whoever waits for a response; nobody else needs it.
        tokio::spawn(async move { drop(connection.await) });
        Ok(Self { sender })
    }

    pub(crate) fn is_open(&self) -> bool {
        !self.sender.is_closed()
    }

    pub(crate) async fn send(&mut self, request: Request<Body>) -> Result<Response<Incoming>> {
        self.sender.ready().await.map_err(ClientError::interrupted)?;
        self.sender.send_request(request).await.map_err(ClientError::interrupted)
    }
}

/// A request with the headers every request has. `path` starts with `/`.
pub(crate) fn request(
    endpoint: &Endpoint,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
    body: Body,
) -> Result<Request<Body>> {
    let mut builder =
        Request::builder().method(method).uri(path).header(HOST, endpoint.host()).header(DOOR.0, DOOR.1);
    if let Some(authorization) = endpoint.authorization() {
        builder = builder.header(AUTHORIZATION, authorization);
    }
    if let Some(namespace) = endpoint.namespace() {
        builder = builder.header(NAMESPACE, namespace);
    }
    if let Some(instance) = endpoint.instance() {
        builder = builder.header(INSTANCE, instance);
    }
    for (name, value) in headers {
        builder = builder.header(*name, *value);
    }
    builder.body(body).map_err(|error| {
        isle_core::Error::new(
            isle_core::Code::InvalidArgument,
            format!("the request cannot be written: {error}"),
        )
        .next("remove control characters from the arguments")
        .into()
    })
}
