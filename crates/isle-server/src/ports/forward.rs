//! Forwards a request to a program in a sandbox and returns its response. Each request uses a separate
//! connection; responses are untrusted, see [`super::headers`].

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use http::header::{CONNECTION, HeaderValue, UPGRADE};
use http::{Request, Response, StatusCode};
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::client::conn::http1;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use isle_core::{Code, Error, Result};
use tokio::task::AbortHandle;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::Ports;
use super::admit::{Passing as Admitted, error_reply};
use super::headers::{self, HostIs, LeavesOrigin};
use crate::reply::Reply;

/// Maximum size of the head of a response.
const READ_BUFFER: usize = 128 * 1024;
/// Maximum length of a URL quoted in an error.
const MAX_QUOTED_URL: usize = 200;

/// Forwards a request.
pub(super) async fn pass(ports: &Arc<Ports>, admitted: Admitted, request: Request<Body>) -> Reply {
    let upgrades = request.headers().contains_key(UPGRADE);
    // Ends when the daemon shuts down or the ticket is revoked.
    let over = either(&ports.closing, &admitted.pass.revoked);
    let mut reply = tokio::select! {
        answer = forward(ports, &admitted, request) => answer.unwrap_or_else(|error| error_reply(&error)),
        () = over => error_reply(
            &Error::new(Code::DaemonUnavailable, "the daemon is shutting down, or the ticket was revoked")
                .next("create another ticket when the daemon is running again"),
        ),
    };
    if upgrades && reply.status() != StatusCode::SWITCHING_PROTOCOLS {
        // Following bytes may belong to the requested protocol and must not be parsed as a request.
        reply.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    reply
}

/// Completes when one of the two is cancelled.
fn either(one: &CancellationToken, other: &CancellationToken) -> impl Future<Output = ()> + Send + 'static {
    let (one, other) = (one.clone().cancelled_owned(), other.clone().cancelled_owned());
    async move {
        tokio::select! {
            () = one => {}
            () = other => {}
        }
    }
}

async fn forward(ports: &Arc<Ports>, admitted: &Admitted, mut request: Request<Body>) -> Result<Reply> {
    let Admitted { pass, seen, host } = admitted;
    let upgrade = headers::requested_upgrade(request.method(), request.headers())
        .map(|protocol| (protocol, hyper::upgrade::on(&mut request)));
    let stream = ports.engine.reach_port(pass).await?;
    let (parts, body) = request.into_parts();
    let mut inside = Request::new(body);
    *inside.method_mut() = parts.method;
    *inside.uri_mut() = seen.target.parse().map_err(|_| {
        Error::new(Code::InvalidArgument, "invalid path")
            .next("encode every byte outside A-Z a-z 0-9 - . _ ~ as %XX")
    })?;
    *inside.headers_mut() = headers::to_program(parts.headers, seen, &|text| ports.contains_token(text));
    if let Some((protocol, _)) = &upgrade {
        inside.headers_mut().insert(CONNECTION, headers::UPGRADE_WORD);
        inside.headers_mut().insert(UPGRADE, protocol.clone());
    }
    let no_answer = |why: &dyn std::fmt::Display| no_answer(pass.sandbox(), pass.port, why);
    let (mut sender, connection) = http1::Builder::new()
        .max_buf_size(READ_BUFFER)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|error| no_answer(&error))?;
    let driving = Driving(ports.tasks.spawn(connection.with_upgrades()).abort_handle());
    let mut answer = sender.send_request(inside).await.map_err(|error| no_answer(&error))?;
    let passed = headers::to_caller(answer.status(), answer.headers(), seen, *host)
        .map_err(|leaves| leaving(&leaves, *host))?;
    if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
        let agreed = answer.headers().get(UPGRADE).cloned();
        let Some((protocol, outside)) = upgrade else {
            return Err(no_answer(&"unrequested protocol switch"));
        };
        if !agreed.is_some_and(|agreed| agreed.as_bytes().eq_ignore_ascii_case(protocol.as_bytes())) {
            return Err(no_answer(&"switched to another protocol than requested"));
        }
        let inside = hyper::upgrade::on(&mut answer);
        let over = either(&ports.closing, &pass.revoked);
        ports.tasks.spawn(async move {
            tokio::select! {
                () = tunnel(outside, inside) => {}
                () = over => {}
            }
            drop(driving);
        });
        let mut reply = Response::new(Body::empty());
        *reply.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        *reply.headers_mut() = passed;
        reply.headers_mut().insert(CONNECTION, headers::UPGRADE_WORD);
        reply.headers_mut().insert(UPGRADE, protocol);
        return Ok(reply);
    }
    let (parts, body) = answer.into_parts();
    let ended = [&ports.closing, &pass.revoked].map(|token| Box::pin(token.clone().cancelled_owned()));
    let mut reply = Response::new(Body::new(Answer { body, ended, _driving: driving }));
    *reply.status_mut() = parts.status;
    *reply.headers_mut() = passed;
    Ok(reply)
}

fn no_answer(sandbox: &str, port: u16, why: &dyn std::fmt::Display) -> Error {
    Error::new(
        Code::NothingListens,
        format!("no valid HTTP/1.1 response from port {port} of {sandbox}: {why}"),
    )
    .next("check the log of the server in the sandbox")
    .next(format!("for protocols other than HTTP, use `isle expose {sandbox} {port}`"))
}

/// A client that follows a redirect would send the ticket and its other credentials along.
fn leaving(leaves: &LeavesOrigin, host: HostIs) -> Error {
    let location = isle_mcp::truncate_escaped(&leaves.location, MAX_QUOTED_URL);
    let error = Error::new(Code::Forbidden, "the program redirects to another origin, which is not allowed")
        .detail("location", location)
        .next("open the location in `details` yourself if you trust it");
    match host {
        HostIs::Own => error,
        HostIs::Shared => {
            error.next("use the port's own host name, which absolute redirects of programs refer to")
        }
    }
}

/// Copies bytes in both directions until both sides are closed; each side is closed separately.
async fn tunnel(outside: OnUpgrade, inside: OnUpgrade) {
    let (Ok(outside), Ok(inside)) = tokio::join!(outside, inside) else { return };
    let io = |side: Upgraded| TokioIo::new(side);
    tokio::io::copy_bidirectional(&mut io(outside), &mut io(inside)).await.ok();
}

/// A connection to a program; closed when dropped.
struct Driving(AbortHandle);

impl Drop for Driving {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The body of a response.
struct Answer {
    body: Incoming,
    ended: [Pin<Box<WaitForCancellationFutureOwned>>; 2],
    _driving: Driving,
}

/// Why a body ended early.
#[derive(Debug, thiserror::Error)]
enum AnswerError {
    #[error("{0}")]
    Connection(#[from] hyper::Error),
    #[error("the daemon is shutting down, or the ticket was revoked")]
    Ended,
}

impl hyper::body::Body for Answer {
    type Data = Bytes;
    type Error = AnswerError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, AnswerError>>> {
        // An error, so that the client does not take an incomplete body for complete.
        if self.ended.iter_mut().any(|ended| ended.as_mut().poll(context).is_ready()) {
            return Poll::Ready(Some(Err(AnswerError::Ended)));
        }
        loop {
            return match Pin::new(&mut self.body).poll_frame(context) {
                // Trailers are not forwarded.
                Poll::Ready(Some(Ok(frame))) if frame.is_trailers() => continue,
                Poll::Ready(frame) => Poll::Ready(frame.map(|frame| frame.map_err(AnswerError::from))),
                Poll::Pending => Poll::Pending,
            };
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
