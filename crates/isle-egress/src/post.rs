//! One request on the daemon's own behalf: resolved once, every address checked as the gate checks those of
//! sandboxes, no redirect followed, bounded in time. Whoever answers is heard no further than its status.

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

use crate::address::{Class, classify};
use crate::dial::check;
use crate::grant::AddressRange;
use crate::host::{Host, HostError, Target};
use crate::resolve::{Resolver, Turns};
use crate::roots::Roots;

/// How long one address may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long all of it may take.
const ALTOGETHER: Duration = Duration::from_secs(30);
/// Longest address of the web that is taken.
const LONGEST: usize = 2048;

/// Why a text is no address to post to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// Not an address of the web at all.
    #[error("it is not an address such as https://example.com/path")]
    Form,
    /// Neither of the two that are spoken.
    #[error("it begins neither with https:// nor with http://")]
    Scheme,
    /// A user or a password in it.
    #[error("it holds a user or a password")]
    UserInfo,
    /// Its host is none.
    #[error("{0}")]
    Host(#[from] HostError),
    /// An address that is nobody's to write to.
    #[error("{0} is a {1} address")]
    Address(IpAddr, &'static str),
    /// Not encrypted over networks of strangers.
    #[error("what is sent over http:// can be read by everybody on the way")]
    Plain,
}

/// An address of the web that can be posted to.
#[derive(Clone, PartialEq, Eq)]
pub struct Url {
    text: String,
    target: Target,
    /// As the host is named in requests.
    authority: HeaderValue,
    path: Uri,
    encrypted: bool,
}

impl fmt::Debug for Url {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Paths and queries of such addresses are often secrets.
        write!(formatter, "Url({})", self.target)
    }
}

impl Url {
    /// Reads one. An address written in it is meant, loopback and private ones included.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        if text.len() > LONGEST || text.contains('#') || text.bytes().any(|byte| byte <= b' ') {
            return Err(UrlError::Form);
        }
        let uri: Uri = text.parse().map_err(|_| UrlError::Form)?;
        let encrypted = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(UrlError::Scheme),
        };
        let authority = uri.authority().ok_or(UrlError::Form)?;
        if authority.as_str().contains('@') {
            return Err(UrlError::UserInfo);
        }
        let target = Target::parse(authority.as_str(), Some(if encrypted { 443 } else { 80 }))?;
        if let Host::Address(address) = target.host {
            let class = classify(address);
            match class {
                Class::Public if !encrypted => return Err(UrlError::Plain),
                Class::Public | Class::Loopback | Class::Private => {}
                Class::LinkLocal | Class::Metadata | Class::Multicast | Class::Reserved => {
                    return Err(UrlError::Address(address, class.as_str()));
                }
            }
        }
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        Ok(Self {
            text: text.to_owned(),
            authority: HeaderValue::from_str(authority.as_str()).map_err(|_| UrlError::Form)?,
            path: path.parse().map_err(|_| UrlError::Form)?,
            target,
            encrypted,
        })
    }

    /// As it was written.
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

/// Why nothing was delivered.
#[derive(Debug, thiserror::Error)]
pub enum PostError {
    /// The name leads nowhere, or where it may not.
    #[error("{0}")]
    Denied(String),
    /// Nobody could be reached there.
    #[error("{target} could not be reached: {why}")]
    Unreached {
        /// Where.
        target: Target,
        /// Why.
        why: String,
    },
    /// It answered, and not with success.
    #[error("it answered {0}")]
    Status(u16),
    /// It answered with another place to go to.
    #[error("it answered {0}: redirects are not followed")]
    Redirect(u16),
    /// It took too long.
    #[error("it did not answer within {} seconds", ALTOGETHER.as_secs())]
    TimedOut,
}

/// Posts.
#[derive(Debug, Clone)]
pub struct Poster {
    resolver: Arc<Resolver>,
    turns: Turns,
    roots: Arc<Roots>,
}

impl Poster {
    /// One that asks this resolver and believes these authorities.
    #[must_use]
    pub fn new(resolver: Arc<Resolver>, roots: Arc<Roots>) -> Self {
        Self { resolver, turns: Turns::default(), roots }
    }

    /// Sends a body; a status of success is the answer. A name leads to public addresses and to those of
    /// `opened`, and one address it may not lead to forbids them all.
    pub async fn post(
        &self,
        url: &Url,
        opened: &[AddressRange],
        headers: Vec<(HeaderName, HeaderValue)>,
        body: Bytes,
    ) -> Result<(), PostError> {
        let posting = async {
            let stream = self.dial(url, opened).await?;
            let mut request = Request::new(Full::new(body));
            *request.method_mut() = Method::POST;
            *request.uri_mut() = url.path.clone();
            request.headers_mut().insert(HOST, url.authority.clone());
            request.headers_mut().extend(headers);
            if !url.encrypted {
                return answered(url, stream, request).await;
            }
            let failed = |error: &dyn fmt::Display| PostError::Unreached {
                target: url.target.clone(),
                why: format!("TLS: {error}"),
            };
            let config = self.roots.config().map_err(|error| failed(&error))?;
            let server = match &url.target.host {
                Host::Address(address) => ServerName::from(*address),
                Host::Name(name) => ServerName::try_from(name.to_string()).map_err(|error| failed(&error))?,
            };
            let connector = TlsConnector::from(config);
            let connecting = connector.with_alpn(vec![b"http/1.1".to_vec()]).connect(server, stream);
            let stream = connecting.await.map_err(|error| failed(&error))?;
            answered(url, stream, request).await
        };
        let status = tokio::time::timeout(ALTOGETHER, posting).await.map_err(|_| PostError::TimedOut)??;
        match status {
            200..300 => Ok(()),
            300..400 => Err(PostError::Redirect(status)),
            _ => Err(PostError::Status(status)),
        }
    }

    async fn dial(&self, url: &Url, opened: &[AddressRange]) -> Result<TcpStream, PostError> {
        let target = &url.target;
        let addresses = match &target.host {
            Host::Address(address) => vec![*address],
            Host::Name(name) => {
                let found = self.resolver.resolve(name, &self.turns).await;
                let found = found
                    .map_err(|error| PostError::Denied(format!("{name} leads to no address: {error}")))?;
                let may = |address| opened.iter().any(|range| range.contains(address));
                check(target, &found, may).map_err(|denial| PostError::Denied(denial.sentence()))?
            }
        };
        if !url.encrypted && addresses.iter().any(|&address| classify(address) == Class::Public) {
            return Err(PostError::Denied(UrlError::Plain.to_string()));
        }
        let mut why = "it has no address".to_owned();
        for address in addresses {
            let connecting = TcpStream::connect(SocketAddr::new(address, target.port));
            match tokio::time::timeout(PATIENCE, connecting).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) => why = error.to_string(),
                Err(_) => why = "it took too long".to_owned(),
            }
        }
        Err(PostError::Unreached { target: target.clone(), why })
    }
}

/// Sends a request over a connection that is for nothing else; its status.
async fn answered<S>(url: &Url, stream: S, request: Request<Full<Bytes>>) -> Result<u16, PostError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let failed = |error: hyper::Error| PostError::Unreached {
        target: url.target.clone(),
        why: format!("HTTP: {error}"),
    };
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
    let sending = async move { sender.send_request(request).await.map(|answer| answer.status().as_u16()) };
    tokio::pin!(connection, sending);
    // Both, until there is an answer: dropping the connection then ends it, whatever else it has to say.
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
mod tests {
    use super::*;

    #[test]
    fn an_address_to_post_to_is_one_that_is_meant_and_safe() {
        for text in [
            "https://example.com",
            "https://example.com:8443/a/b?c=d",
            "http://127.0.0.1:9000/hook",
            "http://[::1]:9000/",
            "https://10.0.0.5/x",
            "http://inside.example/",
        ] {
            assert_eq!(Url::parse(text).unwrap().as_str(), text);
        }
        for (text, error) in [
            ("example.com", UrlError::Scheme),
            ("ftp://example.com/", UrlError::Scheme),
            ("https://user:word@example.com/", UrlError::UserInfo),
            ("https://example.com/#part", UrlError::Form),
            ("https://example.com/a b", UrlError::Form),
            ("https:///path", UrlError::Form),
            ("http://1.1.1.1/", UrlError::Plain),
        ] {
            assert_eq!(Url::parse(text), Err(error), "{text}");
        }
        for text in ["http://169.254.169.254/", "http://0.0.0.0/", "http://[ff02::1]/", "https://2130706433/"]
        {
            assert!(Url::parse(text).is_err(), "{text}");
        }
        assert!(!format!("{:?}", Url::parse("https://example.com/token").unwrap()).contains("token"));
    }

    #[tokio::test]
    async fn a_name_leads_only_where_it_may() {
        let name = |text: &str| crate::host::Name::parse(text).unwrap();
        let table = [
            (name("inside.test"), vec!["127.0.0.1".parse().unwrap()]),
            (name("both.test"), vec!["1.1.1.1".parse().unwrap(), "127.0.0.1".parse().unwrap()]),
            (name("outside.test"), vec!["1.1.1.1".parse().unwrap()]),
        ];
        let poster = Poster::new(Arc::new(Resolver::new(table.into())), Arc::default());
        let post = async |text: &str, opened: &[AddressRange]| {
            let url = Url::parse(text).unwrap();
            poster.post(&url, opened, Vec::new(), Bytes::new()).await.unwrap_err()
        };
        assert!(matches!(post("https://inside.test:1/", &[]).await, PostError::Denied(_)));
        assert!(matches!(post("https://both.test:1/", &[]).await, PostError::Denied(_)));
        // Not encrypted on the internet: nothing is dialed.
        assert!(matches!(post("http://outside.test:1/", &[]).await, PostError::Denied(_)));
        let opened = [AddressRange::one("127.0.0.1".parse().unwrap())];
        assert!(matches!(post("http://inside.test:1/", &opened).await, PostError::Unreached { .. }));
    }
}
