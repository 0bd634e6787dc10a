//! HTTP POST of webhooks by the daemon: resolved once, every address checked as for sandboxes, no redirects,
//! with a timeout. Only the status of the response is read.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{HOST, HeaderName, HeaderValue};
use http::{Method, Request, Uri};
use http_body_util::Full;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::dial::check;
use crate::dial::resolver::{LookupSlots, Resolver};
use crate::policy::address_class::{AddressClass, classify};
use crate::policy::cloud_metadata::is_metadata;
use crate::policy::grant::AddressRange;
use crate::policy::host::{Host, HostError, Target};
use crate::tls::trusted_cas::TrustedCas;

/// Timeout of one address.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of the whole request.
const TOTAL_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum length of a URL.
const LONGEST: usize = 2048;

/// Why a URL cannot be used for a webhook.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WebhookUrlError {
    /// Not a URL.
    #[error("it is not a URL such as https://example.com/path")]
    Form,
    /// Another scheme than HTTP or HTTPS.
    #[error("it does not begin with https:// or http://")]
    Scheme,
    /// A user name or a password in it.
    #[error("it contains a user name or a password")]
    UserInfo,
    /// Its host is not valid.
    #[error("{0}")]
    Host(#[from] HostError),
    /// An address that events are never sent to.
    #[error("{0} is a {1} address")]
    Address(IpAddr, &'static str),
    /// Not encrypted over public networks.
    #[error("http:// to a public address is not encrypted; use https://")]
    Plain,
}

/// The URL of a webhook.
#[derive(Clone, PartialEq, Eq)]
pub struct WebhookUrl {
    text: String,
    target: Target,
    /// The Host header of requests.
    authority: HeaderValue,
    path: Uri,
    encrypted: bool,
}

impl fmt::Debug for WebhookUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Paths and queries of such URLs are often secrets.
        write!(formatter, "WebhookUrl({})", self.target)
    }
}

impl WebhookUrl {
    /// Parses a URL. A literal address is accepted, loopback and private ones included.
    pub fn parse(text: &str) -> Result<Self, WebhookUrlError> {
        if text.len() > LONGEST || text.contains('#') || text.bytes().any(|byte| byte <= b' ') {
            return Err(WebhookUrlError::Form);
        }
        let uri: Uri = text.parse().map_err(|_| WebhookUrlError::Form)?;
        let encrypted = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(WebhookUrlError::Scheme),
        };
        let authority = uri.authority().ok_or(WebhookUrlError::Form)?;
        if authority.as_str().contains('@') {
            return Err(WebhookUrlError::UserInfo);
        }
        let target = Target::parse(authority.as_str(), Some(if encrypted { 443 } else { 80 }))?;
        if let Host::Address(address) = target.host {
            let class = classify(address);
            match class {
                AddressClass::Public if !encrypted => return Err(WebhookUrlError::Plain),
                AddressClass::Public | AddressClass::Loopback | AddressClass::Private => {}
                AddressClass::LinkLocal
                | AddressClass::Metadata
                | AddressClass::Multicast
                | AddressClass::Reserved => {
                    return Err(WebhookUrlError::Address(address, class.as_str()));
                }
            }
        }
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        Ok(Self {
            text: text.to_owned(),
            authority: HeaderValue::from_str(authority.as_str()).map_err(|_| WebhookUrlError::Form)?,
            path: path.parse().map_err(|_| WebhookUrlError::Form)?,
            target,
            encrypted,
        })
    }

    /// The text it was parsed from.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Its host and port.
    #[must_use]
    pub fn target(&self) -> &Target {
        &self.target
    }
}

/// Why a webhook was not delivered.
#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    /// The name cannot be resolved, or resolves to a forbidden address.
    #[error("{0}")]
    Denied(String),
    /// Connecting failed.
    #[error("could not connect to {target}: {why}")]
    UpstreamError {
        /// Where.
        target: Target,
        /// Why.
        why: String,
    },
    /// A response that is not a success.
    #[error("the receiver responded with status {0}")]
    Status(u16),
    /// A redirect.
    #[error("the receiver responded with status {0}: redirects are not followed")]
    Redirect(u16),
    /// No response in time.
    #[error("no response within {} seconds", TOTAL_TIMEOUT.as_secs())]
    TimedOut,
}

/// Sends webhooks.
#[derive(Debug, Clone)]
pub struct WebhookClient {
    resolver: Arc<Resolver>,
    lookup_slots: LookupSlots,
    trusted_cas: Arc<TrustedCas>,
}

impl WebhookClient {
    /// A client with this resolver that trusts these CAs.
    #[must_use]
    pub fn new(resolver: Arc<Resolver>, trusted_cas: Arc<TrustedCas>) -> Self {
        Self { resolver, lookup_slots: LookupSlots::default(), trusted_cas }
    }

    /// Sends a body; fails unless the response is a success. A name may resolve to public addresses and to
    /// those of `opened`; one other address forbids them all.
    pub async fn post(
        &self,
        url: &WebhookUrl,
        opened: &[AddressRange],
        headers: Vec<(HeaderName, HeaderValue)>,
        body: Bytes,
    ) -> Result<(), WebhookError> {
        let posting = async {
            let stream = self.dial(url, opened).await?;
            let mut request = Request::new(Full::new(body));
            *request.method_mut() = Method::POST;
            *request.uri_mut() = url.path.clone();
            request.headers_mut().insert(HOST, url.authority.clone());
            request.headers_mut().extend(headers);
            if !url.encrypted {
                return send(url, stream, request).await;
            }
            let failed = |error: &dyn fmt::Display| WebhookError::UpstreamError {
                target: url.target.clone(),
                why: format!("TLS: {error}"),
            };
            let config = self.trusted_cas.config().map_err(|error| failed(&error))?;
            let server = match &url.target.host {
                Host::Address(address) => ServerName::from(*address),
                Host::Name(name) => ServerName::try_from(name.to_string()).map_err(|error| failed(&error))?,
            };
            let connector = TlsConnector::from(config);
            let connecting = connector.with_alpn(vec![b"http/1.1".to_vec()]).connect(server, stream);
            let stream = connecting.await.map_err(|error| failed(&error))?;
            send(url, stream, request).await
        };
        let status =
            tokio::time::timeout(TOTAL_TIMEOUT, posting).await.map_err(|_| WebhookError::TimedOut)??;
        match status {
            200..300 => Ok(()),
            300..400 => Err(WebhookError::Redirect(status)),
            _ => Err(WebhookError::Status(status)),
        }
    }

    async fn dial(&self, url: &WebhookUrl, opened: &[AddressRange]) -> Result<TcpStream, WebhookError> {
        let target = &url.target;
        let addresses = match &target.host {
            Host::Address(address) => vec![*address],
            Host::Name(name) => {
                let found = self.resolver.resolve(name, &self.lookup_slots).await;
                let found = found
                    .map_err(|error| WebhookError::Denied(format!("{name} cannot be resolved: {error}")))?;
                // A range that is opened for webhooks does not include metadata services.
                let may =
                    |address| !is_metadata(address) && opened.iter().any(|range| range.contains(address));
                check(target, &found, may).map_err(|denial| WebhookError::Denied(denial.sentence()))?
            }
        };
        if !url.encrypted && addresses.iter().any(|&address| classify(address) == AddressClass::Public) {
            return Err(WebhookError::Denied(WebhookUrlError::Plain.to_string()));
        }
        let mut why = "it has no addresses".to_owned();
        for address in addresses {
            let connecting = TcpStream::connect(SocketAddr::new(address, target.port));
            match tokio::time::timeout(CONNECT_TIMEOUT, connecting).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) => why = error.to_string(),
                Err(_) => why = "connection timed out".to_owned(),
            }
        }
        Err(WebhookError::UpstreamError { target: target.clone(), why })
    }
}

/// Sends one request over a new connection; returns the status.
async fn send<S>(url: &WebhookUrl, stream: S, request: Request<Full<Bytes>>) -> Result<u16, WebhookError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let failed = |error: hyper::Error| WebhookError::UpstreamError {
        target: url.target.clone(),
        why: format!("HTTP: {error}"),
    };
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
    let sending = async move { sender.send_request(request).await.map(|answer| answer.status().as_u16()) };
    tokio::pin!(connection, sending);
    // Both are polled until there is a response; dropping the connection then closes it.
    tokio::select! {
        biased;
        answer = &mut sending => answer.map_err(failed),
        ended = &mut connection => match ended {
            Ok(()) => sending.await.map_err(failed),
            Err(error) => Err(failed(error)),
        },
    }
}

#[cfg(test)]
#[path = "webhook_post_tests.rs"]
mod tests;
