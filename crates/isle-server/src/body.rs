//! The body of a request. Records when a response was sent before the body was read completely, and enforces a
//! minimum rate on TCP: the time spent waiting for a body is bounded, so that a slow sender cannot hold a
//! connection.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::time::{Instant, Sleep};

use crate::connection::ConnectionState;

/// Total time a body may be waited for, and the minimum rate beyond that.
const MAX_WAIT: Duration = Duration::from_secs(15);
const BYTES_PER_SECOND: u64 = 16 * 1024;

/// Why a body ended early.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BodyError {
    #[error("{0}")]
    Connection(#[from] hyper::Error),
    #[error("sent too slowly")]
    TooSlow,
}

/// A request body, see the module.
pub(crate) struct RequestBody {
    inner: Incoming,
    connection: Arc<ConnectionState>,
    ended: bool,
    pace: Option<Pace>,
}

/// Bytes received and time spent waiting.
#[derive(Default)]
struct Pace {
    received: u64,
    waited: Duration,
    waiting: Option<(Instant, Pin<Box<Sleep>>)>,
}

impl RequestBody {
    /// A body without a minimum rate.
    pub(crate) fn unlimited(inner: Incoming, connection: Arc<ConnectionState>) -> Self {
        Self { inner, connection, ended: false, pace: None }
    }

    /// A body with a minimum rate.
    pub(crate) fn rate_limited(inner: Incoming, connection: Arc<ConnectionState>) -> Self {
        Self { inner, connection, ended: false, pace: Some(Pace::default()) }
    }
}

impl Pace {
    fn received(&mut self, bytes: usize) {
        if let Some((since, _)) = self.waiting.take() {
            self.waited += since.elapsed();
        }
        self.received = self.received.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
    }

    /// Ready when the time limit is exceeded.
    fn poll_timeout(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let (received, waited) = (self.received, self.waited);
        let (_, alarm) = self.waiting.get_or_insert_with(|| {
            let allowed = MAX_WAIT + Duration::from_secs(received / BYTES_PER_SECOND);
            (Instant::now(), Box::pin(tokio::time::sleep(allowed.saturating_sub(waited))))
        });
        alarm.as_mut().poll(context)
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        match Pin::new(&mut this.inner).poll_frame(context) {
            Poll::Ready(frame) => {
                let bytes =
                    frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref()).map_or(0, Bytes::len);
                if let Some(pace) = &mut this.pace {
                    pace.received(bytes);
                }
                this.ended |= frame.is_none();
                Poll::Ready(frame.map(|frame| frame.map_err(BodyError::from)))
            }
            Poll::Pending => {
                let over = this.pace.as_mut().map_or(Poll::Pending, |pace| pace.poll_timeout(context));
                if over.is_pending() {
                    return Poll::Pending;
                }
                this.connection.mark_too_slow();
                Poll::Ready(Some(Err(BodyError::TooSlow)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.ended || self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        if !self.is_end_stream() {
            self.connection.mark_unread();
        }
    }
}
