//! One intercepted connection: its two HTTP servers, and the answer to each request.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::header::{self, HeaderValue};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{Request, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::upgrade::Upgraded;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::time::Instant;
use tokio_rustls::server::TlsStream;

use crate::accounting::connection_log::ConnectionResult;
use crate::gate::locked;
use crate::http::guarded_stream::{GuardedStream, SharedGuard};
use crate::http::strict_head::HeadDefect;
use crate::masking::response::ResponseMasker;
use crate::masking::websocket::MaskedSocket;
use crate::policy::denial::{Denial, Reason};
use crate::secret_substitution::{ReflectedIn, SecretSource};
use crate::tls::certificate_authority::HttpVersion;
use crate::tls_intercept::cancelled_requests::CancelledRequests;
use crate::tls_intercept::replay_stream::ReplayStream;
use crate::tls_intercept::reply::{Answer, RequestFailure, gate_response};
use crate::tls_intercept::upstream::{Upstream, UpstreamConnection, UpstreamError};

/// Maximum number of concurrent requests of one connection.
pub(super) const MOST_STREAMS: u32 = 128;

/// Maximum length of a request head.
pub(super) const LONGEST_HEAD: u32 = 64 * 1024;

/// Timeout of closing a connection that misbehaves.
pub(super) const CLOSING: Duration = Duration::from_secs(1);

pub(super) const CANCELLED: &str = "the program cancelled too many requests on one connection";

pub(super) const STREAM_WINDOW: u32 = 1 << 20;

pub(super) const CONNECTION_WINDOW: u32 = 4 << 20;

/// One intercepted connection.
pub(super) struct InterceptedConnection {
    pub(super) outside: Upstream,
    pub(super) secrets: Option<Arc<dyn SecretSource>>,
    pub(super) http_version: HttpVersion,
    /// The connection to the server, made again when the server has closed it; or why there is none.
    pub(super) connected: tokio::sync::Mutex<Result<Option<UpstreamConnection>, UpstreamError>>,
    /// The server side of a connection that was upgraded, and what masks it.
    pub(super) upgraded: Mutex<Option<(Upgraded, Option<ResponseMasker>)>>,
    /// The strict parser of HTTP/1 requests, beside hyper's.
    pub(super) guard: SharedGuard,
    /// HTTP/2 requests that the program cancels.
    pub(super) cancels: CancelledRequests,
}

impl InterceptedConnection {
    pub(super) fn new(
        outside: Upstream,
        secrets: Option<Arc<dyn SecretSource>>,
        http_version: HttpVersion,
        reached: Result<UpstreamConnection, UpstreamError>,
    ) -> Self {
        let connected = tokio::sync::Mutex::new(reached.map(Some));
        Self {
            outside,
            secrets,
            http_version,
            connected,
            upgraded: Mutex::default(),
            guard: SharedGuard::default(),
            cancels: CancelledRequests::default(),
        }
    }

    pub(super) async fn serve_http1<S>(self: Arc<Self>, stream: S) -> Result<(), String>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let connection = Arc::clone(&self);
        let service = service_fn(move |request| Box::pin(Arc::clone(&connection).answer(request)));
        let stream = GuardedStream::new(stream, self.guard.clone());
        let serving = http1::Builder::new()
            .preserve_header_case(true)
            .max_buf_size(LONGEST_HEAD as usize)
            .serve_connection(TokioIo::new(stream), service);
        let parts = serving.without_shutdown().await.map_err(|error| error.to_string())?;
        let mut stream = parts.io.into_inner().stream;
        let upgraded = self.upgraded.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        if let Some((upgraded, reflections)) = upgraded {
            let mut inside = ReplayStream { first: parts.read_buf, stream: &mut stream };
            let mut outside = TokioIo::new(upgraded);
            let copied = match reflections {
                None => tokio::io::copy_bidirectional(&mut inside, &mut outside).await,
                Some(reflections) => {
                    let finder = Arc::clone(&reflections.finder);
                    let report = move |found| reflections.report(found, ReflectedIn::Message);
                    let mut outside = MaskedSocket::new(outside, finder, report);
                    tokio::io::copy_bidirectional(&mut inside, &mut outside).await
                }
            };
            return copied.map(drop).map_err(|error| error.to_string());
        }
        // Errors of the final shutdown are irrelevant.
        stream.shutdown().await.ok();
        Ok(())
    }

    pub(super) async fn serve_http2<S>(self: Arc<Self>, stream: TlsStream<S>) -> Result<(), String>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let connection = Arc::clone(&self);
        let service = service_fn(move |request| Arc::clone(&connection).answer(request));
        let serving = http2::Builder::new(TokioExecutor::new())
            .max_concurrent_streams(MOST_STREAMS)
            .max_header_list_size(LONGEST_HEAD)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .serve_connection(TokioIo::new(stream), service);
        let mut serving = std::pin::pin!(serving);
        tokio::select! {
            ended = serving.as_mut() => ended.map_err(|error| error.to_string()),
            () = self.cancels.used_up() => {
                // Sends GOAWAY, so that a well-behaved program opens another connection.
                serving.as_mut().graceful_shutdown();
                tokio::time::timeout(CLOSING, serving).await.ok();
                Err(CANCELLED.into())
            }
        }
    }

    /// Whether both parsers have read the same request.
    pub(super) fn check_parsers_agree(&self, parts: &Parts) -> Result<(), Denial> {
        if self.http_version == HttpVersion::Http2 {
            return Ok(());
        }
        let seen = self.guard.lock().next_verdict();
        let path = parts.uri.path_and_query().map(PathAndQuery::as_str);
        let ambiguous =
            |detail: String| Err(Denial::of(&self.outside.target, Reason::AmbiguousRequest).detail(detail));
        match seen {
            Some(Ok(seen)) if seen.is(parts.method.as_str(), path) => Ok(()),
            Some(Ok(_)) | None => ambiguous("the start of the request is ambiguous".into()),
            Some(Err(flaw @ HeadDefect::Hosts)) => {
                Err(Denial::of(&self.outside.target, Reason::WrongHostHeader).detail(flaw.to_string()))
            }
            Some(Err(flaw)) => ambiguous(flaw.to_string()),
        }
    }

    /// Answers a request: with the response of the server, or with one of the gate.
    pub(super) async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Result<Answer, Infallible> {
        let began = Instant::now();
        if self.cancels.are_used_up() {
            return Ok(gate_response(StatusCode::TOO_MANY_REQUESTS, format!("{CANCELLED}\n"), None));
        }
        let answering = self.cancels.begin();
        let forwarded = self.forward(request).await;
        answering.answered();
        Ok(match forwarded {
            Ok(response) => response,
            Err(RequestFailure::Denied(denial)) => {
                self.outside.meter.counters.ended(&ConnectionResult::Denied(denial.clone()));
                locked(&self.outside.state).note_request(&denial, began.elapsed());
                let mut response =
                    gate_response(StatusCode::FORBIDDEN, denial.http_body(), Some(denial.reason));
                if denial.reason == Reason::AmbiguousRequest {
                    // What follows could be part of it.
                    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
                }
                response
            }
            // Logged with its connection.
            Err(RequestFailure::UpstreamError(UpstreamError::Denied(denial))) => {
                gate_response(StatusCode::FORBIDDEN, denial.http_body(), Some(denial.reason))
            }
            Err(RequestFailure::UpstreamError(UpstreamError::Failed(why))) => {
                gate_response(StatusCode::BAD_GATEWAY, format!("{why}\n"), None)
            }
        })
    }
}
