//! HTTP proxy for sandbox ports, on a listener without API routes. Every port of every sandbox has its own
//! origin, `PORT-LABEL.localhost`, and clients authenticate with a ticket for that port only: whatever a program
//! responds, it cannot use other credentials.

mod admit;
mod forward;
pub mod headers;
mod urls;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::body::Body;
use futures::future::BoxFuture;
use http::{Request, Response};
use hyper::body::Incoming;
use isle_core::{Code, Error, Result};
use isle_engine::Engine;
use isle_engine::engine::{PortsAddress, PortsListener};
use tokio::net::TcpListener;
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::accept::{Acceptor, Service};
use crate::body::RequestBody;
use crate::connection::ConnectionState;
use crate::log::RequestLog;
use crate::token::Token;
use admit::Hosts;

/// Address and domain of the proxy.
#[derive(Debug, Clone)]
pub struct PortsConfig {
    /// Address of the listener.
    pub listen: SocketAddr,
    /// Allow addresses other than loopback.
    pub allow_remote: bool,
    /// Parent domain of the host names of ports.
    pub domain: String,
    /// The operator's token, which must not reach a program.
    pub token: Option<Token>,
}

/// The service of the listener.
pub(crate) struct Ports {
    pub(crate) engine: Engine,
    pub(crate) hosts: Hosts,
    pub(crate) token: Option<Token>,
    pub(crate) log_http: bool,
    pub(crate) tasks: TaskTracker,
    pub(crate) closing: CancellationToken,
}

impl Ports {
    /// Handles one request.
    pub(crate) async fn answer(
        self: &Arc<Self>,
        request: Request<Incoming>,
        connection: Arc<ConnectionState>,
    ) -> Response<Body> {
        if let Some(flaw) = connection.next_flaw(&request) {
            return crate::app::reject_ambiguous(flaw, &connection);
        }
        let logged = self.log_http.then(|| RequestLog::begin(request.method(), request.uri()));
        let (parts, body) = request.into_parts();
        let body = Body::new(RequestBody::rate_limited(body, connection));
        let mut actor = None;
        let reply = match admit::admit(self, &parts) {
            Ok(admit::Admitted::Pass(pass)) => {
                actor = logged.is_some().then(|| pass.pass.actor().to_owned());
                forward::pass(self, *pass, Request::from_parts(parts, body)).await
            }
            Ok(admit::Admitted::Answer(reply)) => *reply,
            Err(error) => admit::error_reply(&error),
        };
        if let Some(logged) = logged {
            logged.end(actor.as_deref().unwrap_or("ticket:none"), reply.status());
        }
        reply
    }

    /// Whether a text contains a token or ticket, also percent-encoded.
    pub(crate) fn contains_token(&self, text: &[u8]) -> bool {
        /// Programs behind proxies may decode this often.
        const ROUNDS: usize = 3;
        let mut text = std::borrow::Cow::Borrowed(text);
        for _ in 0..ROUNDS {
            if self.contains_plain_token(&text) {
                return true;
            }
            let decoded = percent_decoded(&text);
            if decoded == *text {
                return false;
            }
            text = std::borrow::Cow::Owned(decoded);
        }
        self.contains_plain_token(&text)
    }

    fn contains_plain_token(&self, text: &[u8]) -> bool {
        let operators = self.token.as_ref().is_some_and(|token| {
            let token = token.reveal().as_bytes();
            text.windows(token.len()).any(|part| part == token)
        });
        operators || isle_engine::engine::holds_tenant_token(text) || self.contains_ticket(text)
    }

    /// Whether a text contains a valid ticket.
    fn contains_ticket(&self, text: &[u8]) -> bool {
        /// 32 bytes as base64 without padding.
        const LENGTH: usize = 43;
        /// Longer runs of such characters are not checked.
        const MAX_RUN: usize = 256;
        text.split(|byte| !byte.is_ascii_alphanumeric() && !b"-_".contains(byte))
            .filter(|run| (LENGTH..=MAX_RUN).contains(&run.len()))
            .flat_map(|run| run.windows(LENGTH))
            .any(|part| self.engine.port_pass(part).is_some())
    }
}

/// Percent-decodes; invalid sequences are kept.
fn percent_decoded(text: &[u8]) -> Vec<u8> {
    let digit = |byte: Option<&u8>| byte.and_then(|&byte| char::from(byte).to_digit(16));
    let mut decoded = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        match (byte, digit(text.get(at + 1)), digit(text.get(at + 2))) {
            (b'%', Some(high), Some(low)) => {
                decoded.extend(u8::try_from(high * 16 + low));
                at += 3;
            }
            _ => {
                decoded.push(byte);
                at += 1;
            }
        }
    }
    decoded
}

/// The listener, opened when the first ticket is created.
pub(crate) struct LazyListener {
    opened: OnceCell<SocketAddr>,
    config: PortsConfig,
    allowed_hosts: Vec<String>,
    log_http: bool,
    max_connections: usize,
    engine: Engine,
    tasks: TaskTracker,
    closing: CancellationToken,
}

impl LazyListener {
    pub(crate) fn new(
        engine: &Engine,
        config: PortsConfig,
        server: &crate::ServerConfig,
        tasks: &TaskTracker,
        closing: &CancellationToken,
    ) -> Self {
        Self {
            opened: OnceCell::new(),
            config,
            allowed_hosts: server.allowed_hosts.clone(),
            log_http: server.log_http,
            max_connections: server.max_connections,
            engine: engine.clone(),
            tasks: tasks.clone(),
            closing: closing.clone(),
        }
    }

    async fn bind(&self) -> Result<SocketAddr> {
        if self.closing.is_cancelled() {
            return Err(
                Error::new(Code::DaemonUnavailable, "the daemon is shutting down").next("retry in a moment")
            );
        }
        let listener = crate::listen::bind_tcp(self.config.listen, self.config.allow_remote).await?;
        let address = listener.local_addr().map_err(Error::internal)?;
        let ports = Arc::new(Ports {
            engine: self.engine.clone(),
            hosts: Hosts::new(address.port(), &self.config.domain, &self.allowed_hosts),
            token: self.config.token.clone(),
            log_http: self.log_http,
            tasks: self.tasks.clone(),
            closing: self.closing.clone(),
        });
        let acceptor = Acceptor {
            service: Service::Ports(ports),
            connections: self.tasks.clone(),
            max_connections: self.max_connections,
            closing: self.closing.clone(),
        };
        tracing::info!(ports = %address, "listening for sandbox ports");
        self.tasks.spawn(serve(acceptor, listener));
        Ok(address)
    }
}

async fn serve(acceptor: Acceptor, listener: TcpListener) {
    acceptor.tcp(&listener, None).await;
}

impl PortsListener for LazyListener {
    fn open(&self) -> BoxFuture<'_, Result<PortsAddress>> {
        Box::pin(async {
            let address = *self.opened.get_or_try_init(|| self.bind()).await?;
            Ok(PortsAddress { address, domain: self.config.domain.clone() })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_signs_are_undone_and_others_stay() {
        for (text, plain) in
            [("a%62c", "abc"), ("%2562", "%62"), ("100%", "100%"), ("%zz%4", "%zz%4"), ("", "")]
        {
            assert_eq!(percent_decoded(text.as_bytes()), plain.as_bytes(), "{text}");
        }
    }
}
