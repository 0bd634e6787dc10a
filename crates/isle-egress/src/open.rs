//! A TLS connection that the gate opens, because a secret goes to its host or only some requests to it
//! are granted. Both sides speak the same version of HTTP; every request is held to the granted host and
//! looked at by itself, and bodies pass as they are.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::uri::{Authority as UriAuthority, PathAndQuery, Scheme, Uri};
use http::{Method, Request, Response, StatusCode, Version};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::upgrade::Upgraded;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::time::Instant;
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;

use crate::account::Fate;
use crate::ask::permit;
use crate::authority::{Authority, Spoken};
use crate::denial::{Denial, Reason};
use crate::gate::{Outcome, locked};
use crate::grant::Protocol;
use crate::host::{Host, Name};
use crate::http::is_target;
use crate::outside::{Connected, Outside, Unreached};
use crate::policy::RequestLine;
use crate::swap::{self, Swaps, tell_strays};

/// How long a program may take to agree on encryption.
const HANDSHAKE: Duration = Duration::from_secs(20);
/// Requests of one connection at a time.
const MOST_STREAMS: u32 = 128;
/// Longest head of a request over HTTP/2.
const LONGEST_HEAD: u32 = 64 * 1024;
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 4 << 20;

/// What is told in place of an answer, or the answer itself.
type Answer = Response<Either<Incoming, Full<Bytes>>>;

/// Serves a connection whose first message, `first`, has been heard.
pub(crate) async fn serve<S>(
    inside: &mut S,
    first: Vec<u8>,
    authority: &Authority,
    outside: Outside,
    swaps: Option<Arc<dyn Swaps>>,
) -> Outcome
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let Host::Name(name) = outside.target.host.clone() else {
        return Outcome::Denied(Denial::of(&outside.target, Reason::WrongServerName));
    };
    let inside = Heard { first: first.into(), stream: inside };
    let accepting = LazyConfigAcceptor::new(rustls::server::Acceptor::default(), inside);
    let hello = match tokio::time::timeout(HANDSHAKE, accepting).await {
        Ok(Ok(hello)) => hello,
        Ok(Err(error)) => return Outcome::Denied(not_tls(&outside, error.to_string())),
        Err(_) => return Outcome::Denied(not_tls(&outside, "it was too slow".into())),
    };
    // Read a second time, by the one who answers: both have to have read the same.
    let client_hello = hello.client_hello();
    let named = client_hello.server_name().and_then(|text| Name::parse(text).ok());
    if named.as_ref() != Some(&name) {
        return Outcome::Denied(Denial::of(&outside.target, Reason::WrongServerName));
    }
    let wanted: Vec<Vec<u8>> = client_hello.alpn().into_iter().flatten().map(<[u8]>::to_vec).collect();
    let offered: Vec<Spoken> =
        [Spoken::Two, Spoken::One].into_iter().filter(|spoken| wanted.contains(&spoken.alpn())).collect();
    let offered = if offered.is_empty() { vec![Spoken::One] } else { offered };
    let (reached, spoken) = match outside.reach(&offered).await {
        Ok((stream, spoken)) => match Connected::over(stream, spoken).await {
            Ok(connected) => (Ok(connected), spoken),
            Err(error) => (Err(Unreached::Failed(error.to_string())), spoken),
        },
        // The program is told in HTTP, in whatever it would have liked to speak.
        Err(unreached) => (Err(unreached), offered[0]),
    };
    let failure = reached.as_ref().err().cloned();
    let config = match authority.answering_for(&name, spoken) {
        Ok(config) => config,
        Err(error) => return Outcome::Failed(error.to_string()),
    };
    let accepting = hello.into_stream(config);
    let stream = match tokio::time::timeout(HANDSHAKE, accepting).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            return Outcome::Failed(format!(
                "the program ended the TLS handshake ({error}): it does not trust the sandbox's certificate authority, or speaks nothing the gate speaks"
            ));
        }
        Err(_) => return Outcome::Failed("the program took too long for the TLS handshake".into()),
    };
    let conversation = Arc::new(Conversation {
        outside,
        swaps,
        spoken,
        connected: tokio::sync::Mutex::new(reached.map(Some)),
        upgraded: Mutex::default(),
    });
    let ended = match spoken {
        Spoken::One => Arc::clone(&conversation).speak_one(stream).await,
        Spoken::Two => Arc::clone(&conversation).speak_two(stream).await,
    };
    match (failure, ended) {
        (Some(Unreached::Denied(denial)), _) => Outcome::Denied(denial),
        (Some(Unreached::Failed(why)), _) => Outcome::Failed(why),
        (None, Ok(())) => Outcome::Closed,
        (None, Err(why)) => Outcome::Failed(why),
    }
}

fn not_tls(outside: &Outside, detail: String) -> Denial {
    Denial::of(&outside.target, Reason::NotTls).detail(detail)
}

/// One opened connection.
struct Conversation {
    outside: Outside,
    swaps: Option<Arc<dyn Swaps>>,
    spoken: Spoken,
    /// The way out, made anew when the other side has closed it; or why there is none.
    connected: tokio::sync::Mutex<Result<Option<Connected>, Unreached>>,
    /// The other side of a connection that has become something else than HTTP.
    upgraded: Mutex<Option<Upgraded>>,
}

impl Conversation {
    async fn speak_one<S>(self: Arc<Self>, stream: TlsStream<S>) -> Result<(), String>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let conversation = Arc::clone(&self);
        let service = service_fn(move |request| Box::pin(Arc::clone(&conversation).answer(request)));
        let serving =
            http1::Builder::new().preserve_header_case(true).serve_connection(TokioIo::new(stream), service);
        let parts = serving.without_shutdown().await.map_err(|error| error.to_string())?;
        let mut stream = parts.io.into_inner();
        let upgraded = self.upgraded.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        if let Some(upgraded) = upgraded {
            let mut inside = Heard { first: parts.read_buf, stream: &mut stream };
            let mut outside = TokioIo::new(upgraded);
            return tokio::io::copy_bidirectional(&mut inside, &mut outside)
                .await
                .map(drop)
                .map_err(|error| error.to_string());
        }
        // Whether the last word is heard changes nothing.
        stream.shutdown().await.ok();
        Ok(())
    }

    async fn speak_two<S>(self: Arc<Self>, stream: TlsStream<S>) -> Result<(), String>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let service = service_fn(move |request| Arc::clone(&self).answer(request));
        http2::Builder::new(TokioExecutor::new())
            .max_concurrent_streams(MOST_STREAMS)
            .max_header_list_size(LONGEST_HEAD)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .serve_connection(TokioIo::new(stream), service)
            .await
            .map_err(|error| error.to_string())
    }

    /// Answers a request: with the other side's word, or with ours.
    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Result<Answer, Infallible> {
        let began = Instant::now();
        Ok(match self.forward(request).await {
            Ok(response) => response,
            Err(Refusal::Denied(denial)) => {
                self.outside.meter.tally.ended(&Fate::Denied(denial.clone()));
                locked(&self.outside.state).note_request(&denial, began.elapsed());
                told(StatusCode::FORBIDDEN, denial.http_body(), Some(denial.reason))
            }
            // On record with its connection.
            Err(Refusal::Unreached(Unreached::Denied(denial))) => {
                told(StatusCode::FORBIDDEN, denial.http_body(), Some(denial.reason))
            }
            Err(Refusal::Unreached(Unreached::Failed(why))) => {
                told(StatusCode::BAD_GATEWAY, format!("{why}\n"), None)
            }
        })
    }

    async fn forward(&self, request: Request<Incoming>) -> Result<Answer, Refusal> {
        let (mut parts, body) = request.into_parts();
        self.check_host(&parts)?;
        let target = &self.outside.target;
        let (method, path) = (parts.method.as_str(), parts.uri.path());
        let request = RequestLine { target, protocol: Protocol::Tls, method, path };
        permit(&self.outside.state, request, self.outside.by).await?;
        if let Some(swaps) = &self.swaps {
            let swapped = swap::swap(&mut parts, &target.host, &swaps.current()).map_err(|error| {
                Unreached::Failed(format!("the request to {target} was not sent: {error}"))
            })?;
            tell_strays(&**swaps, swapped.strayed, target, false);
        }
        let upgrades = self.tidy(&mut parts);
        parts.uri = self.outward(&parts.uri)?;
        let mut response = self.send(Request::from_parts(parts, body)).await?;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            if !upgrades {
                return Err(Unreached::Failed(format!("{target} changed the protocol unasked")).into());
            }
            let upgraded = hyper::upgrade::on(&mut response).await.map_err(|error| {
                Unreached::Failed(format!("{target} changed the protocol and went away: {error}"))
            })?;
            *self.upgraded.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(upgraded);
        }
        Ok(response.map(Either::Left))
    }

    /// Every request names the granted host, and no other: in its address, and in its field.
    fn check_host(&self, parts: &Parts) -> Result<(), Denial> {
        let target = &self.outside.target;
        let wrong = |detail: &str| Err(Denial::of(target, Reason::WrongHostHeader).detail(detail.to_owned()));
        if parts.method == Method::CONNECT {
            return wrong("CONNECT");
        }
        let mut named = 0;
        if let Some(authority) = parts.uri.authority() {
            if is_target(authority.as_str(), target).is_err() {
                return wrong(authority.as_str());
            }
            named += 1;
        }
        let mut fields = parts.headers.get_all(header::HOST).iter();
        if let Some(field) = fields.next() {
            let text = field.to_str().unwrap_or_default();
            if is_target(text, target).is_err() || fields.next().is_some() {
                return wrong(text);
            }
            named += 1;
        }
        let needed = match parts.version {
            Version::HTTP_2 => parts.uri.authority().is_some(),
            _ => parts.headers.contains_key(header::HOST),
        };
        if named == 0 || !needed { wrong("none") } else { Ok(()) }
    }

    /// Takes out what is between two neighbours only; says whether the connection may become a WebSocket.
    fn tidy(&self, parts: &mut Parts) -> bool {
        let headers = &mut parts.headers;
        if self.spoken == Spoken::Two {
            headers.remove(header::HOST);
            return false;
        }
        let words = |name: &HeaderName, headers: &HeaderMap| -> Vec<String> {
            let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
            values.flat_map(|value| value.split(',')).map(|word| word.trim().to_ascii_lowercase()).collect()
        };
        let connection = words(&header::CONNECTION, headers);
        let upgrades = connection.iter().any(|word| word == "upgrade")
            && words(&header::UPGRADE, headers) == ["websocket"];
        for word in &connection {
            // What a request is about cannot be declared to be for neighbours.
            let kept = ["upgrade", "te", "host", "authorization", "content-length", "transfer-encoding"];
            if !kept.contains(&word.as_str()) {
                headers.remove(word.as_str());
            }
        }
        for name in ["connection", "keep-alive", "proxy-connection", "proxy-authorization", "http2-settings"]
        {
            headers.remove(name);
        }
        if upgrades {
            headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        } else {
            headers.remove(header::UPGRADE);
        }
        // The encoding says where a body ends; what the length says beside it is for nobody.
        if headers.contains_key(header::TRANSFER_ENCODING) {
            headers.remove(header::CONTENT_LENGTH);
        }
        parts.version = Version::HTTP_11;
        upgrades
    }

    /// The address as the other side takes it.
    fn outward(&self, uri: &Uri) -> Result<Uri, Unreached> {
        let unusable = |_| Unreached::Failed("the request has no valid address".into());
        let path = uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
        let mut parts = http::uri::Parts::default();
        if self.spoken == Spoken::Two {
            let target = &self.outside.target;
            let text = if target.port == 443 { target.host.to_string() } else { target.to_string() };
            parts.scheme = Some(Scheme::HTTPS);
            parts.authority = Some(
                UriAuthority::try_from(text)
                    .map_err(|_| Unreached::Failed("the request has no valid address".into()))?,
            );
        }
        parts.path_and_query = Some(path);
        Uri::from_parts(parts).map_err(unusable)
    }

    /// Sends a request, over a new connection where the old one is gone.
    async fn send(&self, mut request: Request<Incoming>) -> Result<Response<Incoming>, Unreached> {
        let target = &self.outside.target;
        for _ in 0..2 {
            let sending = {
                let mut connected = self.connected.lock().await;
                let way = match &mut *connected {
                    Ok(way) => way,
                    Err(unreached) => return Err(unreached.clone()),
                };
                let alive = match way {
                    Some(connected) => connected.is_ready().await,
                    None => false,
                };
                if !alive {
                    *way = None;
                    *way = Some(self.reconnect().await?);
                }
                match way {
                    Some(connected) => connected.send(request),
                    None => return Err(Unreached::Failed(format!("{target} could not be reached"))),
                }
            };
            match sending.await {
                Ok(response) => return Ok(response),
                Err(unsent) => match unsent.request {
                    Some(again) => request = *again,
                    None => {
                        return Err(Unreached::Failed(format!("{target} did not answer: {}", unsent.why)));
                    }
                },
            }
        }
        Err(Unreached::Failed(format!("{target} closes every connection before it takes a request")))
    }

    async fn reconnect(&self) -> Result<Connected, Unreached> {
        let (stream, spoken) = self.outside.reach(&[self.spoken]).await?;
        if spoken != self.spoken {
            return Err(Unreached::Failed(format!("{} speaks another protocol now", self.outside.target)));
        }
        Connected::over(stream, spoken).await.map_err(|error| Unreached::Failed(error.to_string()))
    }
}

/// Why a request does not go.
enum Refusal {
    Denied(Denial),
    Unreached(Unreached),
}

impl From<Denial> for Refusal {
    fn from(denial: Denial) -> Self {
        Self::Denied(denial)
    }
}

impl From<Unreached> for Refusal {
    fn from(unreached: Unreached) -> Self {
        Self::Unreached(unreached)
    }
}

/// An answer of the gate's own.
fn told(status: StatusCode, body: String, reason: Option<Reason>) -> Answer {
    let mut response = Response::new(Either::Right(Full::new(Bytes::from(body))));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    if let Some(reason) = reason {
        headers.insert("x-isle-denied", HeaderValue::from_static(reason.as_str()));
    }
    response
}

/// A stream of which something was heard already.
struct Heard<'s, S> {
    first: Bytes,
    stream: &'s mut S,
}

impl<S: AsyncRead + Unpin> AsyncRead for Heard<'_, S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.first.is_empty() {
            let count = self.first.len().min(buffer.remaining());
            buffer.put_slice(&self.first.split_to(count));
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut *self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Heard<'_, S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.stream).poll_shutdown(context)
    }
}
