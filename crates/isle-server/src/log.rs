//! One structured line per request, when asked for. It goes where the program sends its log.

use std::time::Instant;

use http::{Method, StatusCode, Uri};
use isle_mcp::shorten;

const TARGET_CHARACTERS: usize = 400;

/// What is known when a request comes in.
#[derive(Debug)]
pub(crate) struct Line {
    begun: Instant,
    method: Method,
    target: String,
}

impl Line {
    pub(crate) fn begin(method: &Method, uri: &Uri) -> Self {
        let target = uri.path_and_query().map_or(uri.path(), |target| target.as_str());
        Self { begun: Instant::now(), method: method.clone(), target: shorten(target, TARGET_CHARACTERS) }
    }

    pub(crate) fn end(self, actor: &str, status: StatusCode) {
        let microseconds = self.begun.elapsed().as_micros();
        tracing::info!(
            target: "isle::http",
            method = %self.method,
            path = self.target,
            actor,
            status = status.as_u16(),
            microseconds,
            "request"
        );
    }
}
