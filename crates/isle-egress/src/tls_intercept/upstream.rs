//! The server side of an intercepted connection: dialed and checked as every connection, with TLS of the
//! gate, and dialed again when the server has closed it between two requests.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::accounting::metered_stream::{Meter, Metered};
use crate::dial::resolver::{LookupSlots, Resolver};
use crate::dial::{DialError, DialedAddresses, dial};
use crate::gate::State;
use crate::http::trailers::FilteredBody;
use crate::policy::denial::{Denial, Reason};
use crate::policy::grant::GrantId;
use crate::policy::host::{Host, Target};
use crate::tls::certificate_authority::HttpVersion;
use crate::tls::trusted_cas::TrustedCas;

/// Timeout of the TLS handshake with the server.
const HANDSHAKE: Duration = Duration::from_secs(20);
/// Maximum length of a response head.
const LONGEST_HEAD: usize = 128 * 1024;
/// HTTP/2 flow-control windows, of one response and of all.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 4 << 20;

/// Why the server was not reached.
#[derive(Debug, Clone)]
pub(crate) enum UpstreamError {
    /// Denied.
    Denied(Denial),
    /// Granted, but connecting failed; the reason.
    Failed(String),
}

/// What is needed to connect.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub(crate) target: Target,
    pub(crate) resolver: Arc<Resolver>,
    pub(crate) lookup_slots: LookupSlots,
    pub(crate) dialed: DialedAddresses,
    pub(crate) state: Arc<Mutex<State>>,
    pub(crate) trusted_cas: Arc<TrustedCas>,
    pub(crate) meter: Arc<Meter>,
    /// The grant that allowed the connection.
    pub(crate) by: GrantId,
    pub(crate) transport: Transport,
}

/// The layer below HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    Tls,
    /// None: no secret is sent, but responses are masked.
    Plain,
}

/// A connection for requests. It is closed when dropped.
#[derive(Debug)]
pub(crate) struct UpstreamConnection {
    sender: Sender,
    task: AbortHandle,
}

impl Drop for UpstreamConnection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[derive(Debug)]
enum Sender {
    One(http1::SendRequest<FilteredBody>),
    Two(http2::SendRequest<FilteredBody>),
}

impl Upstream {
    /// Connects, and negotiates one of `offered`.
    pub(crate) async fn connect(
        &self,
        offered: &[HttpVersion],
    ) -> (Result<UpstreamConnection, UpstreamError>, Option<HttpVersion>) {
        let failed = |error: hyper::Error| UpstreamError::Failed(error.to_string());
        match self.transport {
            Transport::Tls => match self.reach(offered).await {
                Ok((stream, http_version)) => {
                    (UpstreamConnection::over(stream, http_version).await.map_err(failed), Some(http_version))
                }
                Err(unreached) => (Err(unreached), None),
            },
            Transport::Plain => match self.dial().await {
                Ok(stream) => {
                    let metered = Metered::new(stream, Arc::clone(&self.meter));
                    (
                        UpstreamConnection::over(metered, HttpVersion::Http1).await.map_err(failed),
                        Some(HttpVersion::Http1),
                    )
                }
                Err(undialed) => (Err(self.undialed(undialed)), None),
            },
        }
    }

    fn undialed(&self, undialed: DialError) -> UpstreamError {
        match undialed {
            DialError::Denied(denial) => UpstreamError::Denied(denial),
            DialError::Failed(error) => UpstreamError::Failed(format!(
                "{} is granted to this sandbox, but could not be reached: {error}",
                self.target
            )),
        }
    }

    /// Dials, and negotiates TLS and an HTTP version of `offered`.
    async fn reach(
        &self,
        offered: &[HttpVersion],
    ) -> Result<(TlsStream<Metered>, HttpVersion), UpstreamError> {
        let Host::Name(name) = &self.target.host else {
            return Err(UpstreamError::Denied(Denial::of(&self.target, Reason::WrongServerName)));
        };
        let stream = self.dial().await.map_err(|undialed| self.undialed(undialed))?;
        let failed = |error: &dyn std::fmt::Display| {
            UpstreamError::Failed(format!("TLS connection to {} failed: {error}", self.target))
        };
        let config = self.trusted_cas.config().map_err(|error| failed(&error))?;
        let server = ServerName::try_from(name.to_string()).map_err(|error| failed(&error))?;
        let offered_names: Vec<Vec<u8>> = offered.iter().map(|http_version| http_version.alpn()).collect();
        let connector = TlsConnector::from(config);
        let metered = Metered::new(stream, Arc::clone(&self.meter));
        let connecting = connector.with_alpn(offered_names).connect(server, metered);
        let stream = match tokio::time::timeout(HANDSHAKE, connecting).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(self.handshake_error(&error)),
            Err(_) => return Err(failed(&"the handshake timed out")),
        };
        let http_version = match stream.get_ref().1.alpn_protocol() {
            Some(b"h2") => HttpVersion::Http2,
            Some(_) | None => HttpVersion::Http1,
        };
        Ok((stream, http_version))
    }

    async fn dial(&self) -> Result<TcpStream, DialError> {
        let began = Instant::now();
        let stream = dial(&self.target, &self.resolver, &self.lookup_slots, &self.dialed).await?;
        self.meter.counters.dialed(began.elapsed());
        Ok(stream)
    }

    /// The reason of a failed handshake.
    fn handshake_error(&self, error: &io::Error) -> UpstreamError {
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        let target = &self.target;
        UpstreamError::Failed(match inner {
            Some(rustls::Error::InvalidCertificate(problem)) => {
                format!("the certificate of {target} is not accepted: {}", certificate_problem(problem))
            }
            Some(other) => format!("TLS connection to {target} failed: {other}"),
            None => format!("TLS connection to {target} failed: {error}"),
        })
    }
}

/// The problem with a certificate, with a remedy.
fn certificate_problem(problem: &rustls::CertificateError) -> String {
    use rustls::CertificateError;
    match problem {
        CertificateError::UnknownIssuer => {
            "it is not signed by a CA that this machine trusts (unknown issuer); \
             add the CA with `network_ca_files` in the configuration"
                .into()
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "it has expired".into(),
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "it is not valid yet".into()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "it is for another name".into()
        }
        CertificateError::BadSignature => "its signature is not valid".into(),
        CertificateError::Revoked => "it was revoked".into(),
        // The most common of the other errors: a self-signed server certificate.
        other if other.to_string().contains("CaUsedAsEndEntity") => {
            "it is a self-signed CA certificate, not a server certificate; \
             use a certificate signed by a CA"
                .into()
        }
        other => other.to_string(),
    }
}

impl UpstreamConnection {
    /// Starts HTTP on a connection.
    async fn over<S>(stream: S, http_version: HttpVersion) -> Result<Self, hyper::Error>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let io = TokioIo::new(stream);
        match http_version {
            HttpVersion::Http1 => {
                let (sender, connection) = http1::Builder::new()
                    .preserve_header_case(true)
                    .max_buf_size(LONGEST_HEAD)
                    .handshake(io)
                    .await?;
                let task = tokio::spawn(async move {
                    // Errors are reported by the requests.
                    connection.with_upgrades().await.ok();
                });
                Ok(Self { sender: Sender::One(sender), task: task.abort_handle() })
            }
            HttpVersion::Http2 => {
                let (sender, connection) = http2::Builder::new(TokioExecutor::new())
                    .initial_stream_window_size(STREAM_WINDOW)
                    .initial_connection_window_size(CONNECTION_WINDOW)
                    .handshake(io)
                    .await?;
                let task = tokio::spawn(async move {
                    connection.await.ok();
                });
                Ok(Self { sender: Sender::Two(sender), task: task.abort_handle() })
            }
        }
    }

    /// Waits until it can send another request; returns whether it can.
    pub(crate) async fn is_ready(&mut self) -> bool {
        match &mut self.sender {
            Sender::One(sender) => sender.ready().await.is_ok(),
            Sender::Two(sender) => sender.ready().await.is_ok(),
        }
    }

    /// Sends a request. One that was certainly not sent is returned.
    pub(crate) fn send(
        &mut self,
        request: Request<FilteredBody>,
    ) -> impl Future<Output = Result<Response<Incoming>, SendError>> + Send + use<> {
        let (one, two) = match &mut self.sender {
            Sender::One(sender) => (Some(sender.try_send_request(request)), None),
            Sender::Two(sender) => (None, Some(sender.try_send_request(request))),
        };
        async move {
            let sent = match (one, two) {
                (Some(sent), _) => sent.await,
                (None, Some(sent)) => sent.await,
                (None, None) => return Err(SendError { request: None, why: "not sent".into() }),
            };
            sent.map_err(|mut error| SendError {
                request: error.take_message().map(Box::new),
                why: error_chain(error.error()),
            })
        }
    }
}

/// A request that failed.
#[derive(Debug)]
pub(crate) struct SendError {
    pub(crate) request: Option<Box<Request<FilteredBody>>>,
    pub(crate) why: String,
}

/// An error with its sources.
fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text.push_str(&format!(": {inner}"));
        source = inner.source();
    }
    text
}
