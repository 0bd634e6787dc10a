//! The side of an opened connection that faces the world: dialed and checked as every connection is, with
//! TLS of the gate's own, and dialed again when the other side has closed it between two requests.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::authority::Spoken;
use crate::denial::{Denial, Reason};
use crate::dial::{Dialed, Undialed, dial};
use crate::gate::State;
use crate::grant::GrantId;
use crate::host::{Host, Target};
use crate::meter::{Meter, Metered};
use crate::resolve::{Resolver, Turns};
use crate::roots::Roots;

/// How long the other side may take to agree on encryption.
const HANDSHAKE: Duration = Duration::from_secs(20);
/// What may be on its way unread, of one answer and of all.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 4 << 20;

/// Why the other side was not reached.
#[derive(Debug, Clone)]
pub(crate) enum Unreached {
    /// It may not be.
    Denied(Denial),
    /// It may be, and it did not work; in words.
    Failed(String),
}

/// What connecting needs to know.
#[derive(Debug)]
pub(crate) struct Outside {
    pub(crate) target: Target,
    pub(crate) resolver: Arc<Resolver>,
    pub(crate) turns: Turns,
    pub(crate) dialed: Dialed,
    pub(crate) state: Arc<Mutex<State>>,
    pub(crate) roots: Arc<Roots>,
    pub(crate) meter: Arc<Meter>,
    /// The grant that allowed the connection.
    pub(crate) by: GrantId,
}

/// A connection that takes requests. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Connected {
    sender: Sender,
    task: AbortHandle,
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[derive(Debug)]
enum Sender {
    One(http1::SendRequest<Incoming>),
    Two(http2::SendRequest<Incoming>),
}

impl Outside {
    /// Dials and agrees on encryption and on what is spoken, which is one of `offered`.
    pub(crate) async fn reach(&self, offered: &[Spoken]) -> Result<(TlsStream<Metered>, Spoken), Unreached> {
        let Host::Name(name) = &self.target.host else {
            return Err(Unreached::Denied(Denial::of(&self.target, Reason::WrongServerName)));
        };
        let stream = self.dial().await.map_err(|undialed| match undialed {
            Undialed::Denied(denial) => Unreached::Denied(denial),
            Undialed::Failed(error) => Unreached::Failed(format!(
                "{} is granted to this sandbox and could not be reached: {error}",
                self.target
            )),
        })?;
        let failed = |error: &dyn std::fmt::Display| {
            Unreached::Failed(format!("the TLS connection to {} could not be made: {error}", self.target))
        };
        let config = self.roots.config().map_err(|error| failed(&error))?;
        let server = ServerName::try_from(name.to_string()).map_err(|error| failed(&error))?;
        let offered_names: Vec<Vec<u8>> = offered.iter().map(|spoken| spoken.alpn()).collect();
        let connector = TlsConnector::from(config);
        let metered = Metered::new(stream, Arc::clone(&self.meter));
        let connecting = connector.with_alpn(offered_names).connect(server, metered);
        let stream = match tokio::time::timeout(HANDSHAKE, connecting).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(self.untrusted(&error)),
            Err(_) => return Err(failed(&"it took too long")),
        };
        let spoken = match stream.get_ref().1.alpn_protocol() {
            Some(b"h2") => Spoken::Two,
            Some(_) | None => Spoken::One,
        };
        Ok((stream, spoken))
    }

    async fn dial(&self) -> Result<TcpStream, Undialed> {
        let began = Instant::now();
        let stream = dial(&self.target, &self.resolver, &self.turns, &self.dialed).await?;
        self.meter.tally.dialed(began.elapsed());
        Ok(stream)
    }

    /// What went wrong, with a certificate or otherwise.
    fn untrusted(&self, error: &io::Error) -> Unreached {
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        let target = &self.target;
        Unreached::Failed(match inner {
            Some(rustls::Error::InvalidCertificate(problem)) => {
                format!("the certificate of {target} is not accepted: {}", certificate_problem(problem))
            }
            Some(other) => format!("the TLS connection to {target} could not be made: {other}"),
            None => format!("the TLS connection to {target} could not be made: {error}"),
        })
    }
}

/// A certificate's problem, in words that help.
fn certificate_problem(problem: &rustls::CertificateError) -> String {
    use rustls::CertificateError;
    match problem {
        CertificateError::UnknownIssuer => {
            "it is signed by nobody the host of the sandbox trusts (unknown issuer); \
             `network_ca_files` in its configuration adds authorities"
                .into()
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "it has expired".into(),
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "it is not valid yet".into()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "it is for another name".into()
        }
        CertificateError::BadSignature => "its signature does not hold".into(),
        CertificateError::Revoked => "it was revoked".into(),
        // Of what has no name of its own, this is what people meet: a server that signed for itself.
        other if other.to_string().contains("CaUsedAsEndEntity") => {
            "it is that of an authority, as one that signs itself is, and none of a server; \
             have an authority sign one for the server"
                .into()
        }
        other => other.to_string(),
    }
}

impl Connected {
    /// Speaks HTTP over a connection.
    pub(crate) async fn over(stream: TlsStream<Metered>, spoken: Spoken) -> Result<Self, hyper::Error> {
        let io = TokioIo::new(stream);
        match spoken {
            Spoken::One => {
                let (sender, connection) =
                    http1::Builder::new().preserve_header_case(true).handshake(io).await?;
                let task = tokio::spawn(async move {
                    // Requests hear of its errors.
                    connection.with_upgrades().await.ok();
                });
                Ok(Self { sender: Sender::One(sender), task: task.abort_handle() })
            }
            Spoken::Two => {
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

    /// Whether it takes another request; waits until that is known.
    pub(crate) async fn is_ready(&mut self) -> bool {
        match &mut self.sender {
            Sender::One(sender) => sender.ready().await.is_ok(),
            Sender::Two(sender) => sender.ready().await.is_ok(),
        }
    }

    /// Sends a request. One that certainly was not sent comes back.
    pub(crate) fn send(
        &mut self,
        request: Request<Incoming>,
    ) -> impl Future<Output = Result<Response<Incoming>, Unsent>> + Send + use<> {
        let (one, two) = match &mut self.sender {
            Sender::One(sender) => (Some(sender.try_send_request(request)), None),
            Sender::Two(sender) => (None, Some(sender.try_send_request(request))),
        };
        async move {
            let sent = match (one, two) {
                (Some(sent), _) => sent.await,
                (None, Some(sent)) => sent.await,
                (None, None) => return Err(Unsent { request: None, why: "it was not sent".into() }),
            };
            sent.map_err(|mut error| Unsent {
                request: error.take_message().map(Box::new),
                why: in_words(error.error()),
            })
        }
    }
}

/// A request that failed.
#[derive(Debug)]
pub(crate) struct Unsent {
    pub(crate) request: Option<Box<Request<Incoming>>>,
    pub(crate) why: String,
}

/// An error and what is behind it.
fn in_words(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text.push_str(&format!(": {inner}"));
        source = inner.source();
    }
    text
}
