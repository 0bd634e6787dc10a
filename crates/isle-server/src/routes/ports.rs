//! Ports of a sandbox below `/v1/sandboxes/{sandbox}/ports/{port}/`: a reverse proxy for whoever may work
//! in the sandbox's namespace. Each request is a connection of its own to the program inside. What the
//! program answers is a stranger's word, so it gets no say about this server: see [`headers`].

mod headers;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::extract::{Request, State};
use bytes::Bytes;
use http::header::{CONNECTION, UPGRADE};
use http::{Response, StatusCode, Uri};
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::client::conn::http1;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use isle_engine::values::SandboxName;
use isle_engine::{Code, Error, Result};
use tokio::task::AbortHandle;
use tokio_util::sync::WaitForCancellationFutureOwned;

use crate::app::{Peer, Shared};
use crate::reply::{self, Reply};

/// Bounds the head of an answer.
const READ_BUFFER: usize = 128 * 1024;

/// Any request below a port.
pub(crate) async fn pass(State(shared): State<Arc<Shared>>, request: Request) -> Reply {
    let closing = shared.closing.clone();
    tokio::select! {
        answer = forward(&shared, request) => answer.unwrap_or_else(|error| reply::error(&error)),
        () = closing.cancelled() => reply::error(
            &Error::new(Code::DaemonUnavailable, "the daemon goes down").next("ask again when it is back"),
        ),
    }
}

/// Which port of which sandbox a request is for, and what it asks there.
#[derive(Debug, PartialEq, Eq)]
struct Target {
    sandbox: SandboxName,
    port: u16,
    /// Path and query below, as they were written.
    below: String,
}

impl Target {
    /// From a path `/v1/sandboxes/{sandbox}/ports/{port}/…`.
    fn of(uri: &Uri) -> Result<Self> {
        let mut parts = uri.path().splitn(7, '/').skip(3);
        let mut part = || parts.next().unwrap_or_default();
        let (sandbox, _, port, path) = (part().parse()?, part(), part(), part());
        let digits = !port.starts_with('0') && port.bytes().all(|byte| byte.is_ascii_digit());
        let number = port.parse().ok().filter(|_| digits);
        let port = number.ok_or_else(|| {
            Error::new(
                Code::InvalidArgument,
                format!("{:?} is no port of a sandbox", isle_mcp::shorten(port, 50)),
            )
            .next("give a port from 1 to 65535")
        })?;
        let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
        Ok(Self { sandbox, port, below: format!("/{path}{query}") })
    }

    /// The path everything of this port is below.
    fn prefix(&self) -> String {
        format!("/v1/sandboxes/{}/ports/{}", self.sandbox, self.port)
    }
}

async fn forward(shared: &Arc<Shared>, mut request: Request) -> Result<Reply> {
    let target = Target::of(request.uri())?;
    let Some(context) = request.extensions().get::<Peer>().map(|peer| peer.context(request.headers())) else {
        return Err(Error::internal("the request came through no known door"));
    };
    let upgrade = headers::asks_to_upgrade(request.headers())
        .map(|protocol| (protocol, hyper::upgrade::on(&mut request)));
    let stream = shared.engine.reach_port(&context, &target.sandbox, target.port).await?;
    let (parts, body) = request.into_parts();
    let mut inside = http::Request::new(body);
    *inside.method_mut() = parts.method;
    *inside.uri_mut() = target.below.parse().map_err(|_| {
        Error::new(Code::InvalidArgument, "the path below the port cannot be passed on")
            .next("encode every byte outside A-Z a-z 0-9 - . _ ~ as %XX")
    })?;
    *inside.headers_mut() = headers::to_program(parts.headers, target.port, &target.prefix());
    if let Some((protocol, _)) = &upgrade {
        inside.headers_mut().insert(CONNECTION, headers::UPGRADE_WORD);
        inside.headers_mut().insert(UPGRADE, protocol.clone());
    }
    let (mut sender, connection) = http1::Builder::new()
        .max_buf_size(READ_BUFFER)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|error| no_answer(&target, &error))?;
    let driving = Driving(shared.tasks.spawn(connection.with_upgrades()).abort_handle());
    let mut answer = sender.send_request(inside).await.map_err(|error| no_answer(&target, &error))?;
    if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
        let Some((_, outside)) = upgrade else {
            return Err(no_answer(&target, &"it changed the protocol, which nobody asked for"));
        };
        let inside = hyper::upgrade::on(&mut answer);
        let ours = shared.clone();
        shared.tasks.spawn(async move {
            tokio::select! {
                () = tunnel(outside, inside) => {}
                () = ours.closing.cancelled() => {}
            }
            drop(driving);
        });
        let protocol = answer.headers().get(UPGRADE).cloned();
        let mut reply = Response::new(Body::empty());
        *reply.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        *reply.headers_mut() =
            headers::to_caller(answer.into_parts().0.headers, &target.prefix(), target.port);
        reply.headers_mut().insert(CONNECTION, headers::UPGRADE_WORD);
        reply.headers_mut().extend(protocol.map(|protocol| (UPGRADE, protocol)));
        return Ok(reply);
    }
    let (parts, body) = answer.into_parts();
    let closing = Box::pin(shared.closing.clone().cancelled_owned());
    let mut reply = Response::new(Body::new(Passing { body, closing, _driving: driving }));
    *reply.status_mut() = parts.status;
    *reply.headers_mut() = headers::to_caller(parts.headers, &target.prefix(), target.port);
    Ok(reply)
}

fn no_answer(target: &Target, why: &dyn std::fmt::Display) -> Error {
    let Target { sandbox, port, .. } = target;
    Error::new(
        Code::NothingListens,
        format!("what listens on port {port} of {sandbox} gave no answer in HTTP/1.1: {why}"),
    )
    .next("look at what the server in the sandbox says")
    .next(format!("for other protocols than HTTP use `isle expose {sandbox} {port}`"))
}

/// Bytes both ways, until both sides have ended; each end is told to the other side by itself.
async fn tunnel(outside: OnUpgrade, inside: OnUpgrade) {
    let (Ok(outside), Ok(inside)) = tokio::join!(outside, inside) else { return };
    let io = |side: Upgraded| TokioIo::new(side);
    tokio::io::copy_bidirectional(&mut io(outside), &mut io(inside)).await.ok();
}

/// A connection to a program; it ends when nobody waits for it any more.
struct Driving(AbortHandle);

impl Drop for Driving {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The body of an answer on its way out.
struct Passing {
    body: Incoming,
    closing: Pin<Box<WaitForCancellationFutureOwned>>,
    _driving: Driving,
}

/// Why a body ended early.
#[derive(Debug, thiserror::Error)]
enum PassingError {
    #[error("{0}")]
    Connection(#[from] hyper::Error),
    #[error("the daemon goes down")]
    Closing,
}

impl hyper::body::Body for Passing {
    type Data = Bytes;
    type Error = PassingError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, PassingError>>> {
        // An error, so that nobody takes what came so far for all of it.
        if self.closing.as_mut().poll(context).is_ready() {
            return Poll::Ready(Some(Err(PassingError::Closing)));
        }
        Pin::new(&mut self.body)
            .poll_frame(context)
            .map(|frame| frame.map(|frame| frame.map_err(PassingError::from)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_below_a_port_is_passed_on_as_it_was_written() {
        for (path, below) in [
            ("/v1/sandboxes/box/ports/80/", "/"),
            ("/v1/sandboxes/box/ports/80/a/b%2Fc?q=%20&r", "/a/b%2Fc?q=%20&r"),
            ("/v1/sandboxes/box/ports/80//x/../%ff", "//x/../%ff"),
            ("/v1/sandboxes/box/ports/80/?", "/?"),
        ] {
            let target = Target::of(&path.parse().unwrap()).unwrap();
            assert_eq!(
                (target.below.as_str(), target.port, target.sandbox.as_str()),
                (below, 80, "box"),
                "{path}"
            );
        }
        for path in [
            "/v1/sandboxes/box/ports/0/",
            "/v1/sandboxes/box/ports/080/",
            "/v1/sandboxes/box/ports/65536/",
            "/v1/sandboxes/box/ports/x/",
            "/v1/sandboxes/box/ports/+8/",
            "/v1/sandboxes/b%2Fx/ports/80/",
            "/v1/sandboxes/box/ports//",
        ] {
            assert!(Target::of(&path.parse().unwrap()).is_err(), "{path}");
        }
    }
}
