//! TLS interception: a connection that the gate decrypts, because a secret is sent to its host or only some
//! requests to it are granted. Both sides use the same HTTP version; every request is checked separately
//! against the granted host. Request bodies are passed on unchanged; if a secret is sent to the host, its
//! responses are masked, also over unencrypted connections.

mod cancelled_requests;
mod connection;
mod forward;
mod replay_stream;
mod reply;
mod request;
pub(crate) mod upstream;

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::LazyConfigAcceptor;

use crate::gate::Outcome;
use crate::policy::denial::{Denial, Reason};
use crate::policy::host::{Host, Name};
use crate::secret_substitution::SecretSource;
use crate::tls::certificate_authority::{CertificateAuthority, HttpVersion};
use crate::tls_intercept::connection::InterceptedConnection;
use crate::tls_intercept::replay_stream::ReplayStream;
use crate::tls_intercept::upstream::{Upstream, UpstreamError};

/// Timeout of the TLS handshake with the program.
const HANDSHAKE: Duration = Duration::from_secs(20);

/// Serves a connection whose ClientHello, `first`, was already read.
pub(crate) async fn serve<S>(
    inside: &mut S,
    first: Vec<u8>,
    authority: &CertificateAuthority,
    outside: Upstream,
    secrets: Option<Arc<dyn SecretSource>>,
) -> Outcome
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let Host::Name(name) = outside.target.host.clone() else {
        return Outcome::Denied(Denial::of(&outside.target, Reason::WrongServerName));
    };
    let inside = ReplayStream { first: first.into(), stream: inside };
    let accepting = LazyConfigAcceptor::new(rustls::server::Acceptor::default(), inside);
    let hello = match tokio::time::timeout(HANDSHAKE, accepting).await {
        Ok(Ok(hello)) => hello,
        Ok(Err(error)) => return Outcome::Denied(not_tls(&outside, error.to_string())),
        Err(_) => return Outcome::Denied(not_tls(&outside, "timed out".into())),
    };
    // Parsed a second time, by rustls: both parsers have to agree.
    let client_hello = hello.client_hello();
    let named = client_hello.server_name().and_then(|text| Name::parse(text).ok());
    if named.as_ref() != Some(&name) {
        return Outcome::Denied(Denial::of(&outside.target, Reason::WrongServerName));
    }
    let wanted: Vec<Vec<u8>> = client_hello.alpn().into_iter().flatten().map(<[u8]>::to_vec).collect();
    let offered: Vec<HttpVersion> = [HttpVersion::Http2, HttpVersion::Http1]
        .into_iter()
        .filter(|http_version| wanted.contains(&http_version.alpn()))
        .collect();
    let offered = if offered.is_empty() { vec![HttpVersion::Http1] } else { offered };
    let (reached, http_version) = outside.connect(&offered).await;
    // A failure is reported in HTTP, in the version the program prefers.
    let http_version = http_version.unwrap_or(offered[0]);
    let failure = reached.as_ref().err().cloned();
    let config = match authority.server_config(&name, http_version) {
        Ok(config) => config,
        Err(error) => return Outcome::Failed(error.to_string()),
    };
    let accepting = hello.into_stream(config);
    let stream = match tokio::time::timeout(HANDSHAKE, accepting).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            return Outcome::Failed(format!(
                "the program aborted the TLS handshake ({error}): it does not trust the sandbox's certificate authority, or has no TLS version or cipher in common"
            ));
        }
        Err(_) => return Outcome::Failed("the TLS handshake of the program timed out".into()),
    };
    let connection = Arc::new(InterceptedConnection::new(outside, secrets, http_version, reached));
    let ended = match http_version {
        HttpVersion::Http1 => Arc::clone(&connection).serve_http1(stream).await,
        HttpVersion::Http2 => Arc::clone(&connection).serve_http2(stream).await,
    };
    outcome(failure, ended)
}

/// Serves an unencrypted connection with a single request that begins with `first` and was already permitted.
/// Its response is masked like that of an encrypted one.
pub(crate) async fn serve_plain<S>(
    inside: &mut S,
    first: Vec<u8>,
    outside: Upstream,
    secrets: Option<Arc<dyn SecretSource>>,
) -> Outcome
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (reached, http_version) = outside.connect(&[HttpVersion::Http1]).await;
    let failure = reached.as_ref().err().cloned();
    let http_version = http_version.unwrap_or(HttpVersion::Http1);
    let connection = Arc::new(InterceptedConnection::new(outside, secrets, http_version, reached));
    let ended = connection.serve_http1(ReplayStream { first: first.into(), stream: inside }).await;
    outcome(failure, ended)
}

fn outcome(failure: Option<UpstreamError>, ended: Result<(), String>) -> Outcome {
    match (failure, ended) {
        (Some(UpstreamError::Denied(denial)), _) => Outcome::Denied(denial),
        (Some(UpstreamError::Failed(why)), _) => Outcome::Failed(why),
        (None, Ok(())) => Outcome::Closed,
        (None, Err(why)) => Outcome::Failed(why),
    }
}

fn not_tls(outside: &Upstream, detail: String) -> Denial {
    Denial::of(&outside.target, Reason::NotTls).detail(detail)
}
