//! Logs one structured line per request if `log_http` is set.

use std::time::Instant;

use http::{Method, StatusCode, Uri};
use isle_mcp::truncate_escaped;

const TARGET_CHARACTERS: usize = 400;
/// Minimum length of tokens and tickets; nothing else in a URL has such long runs of these characters.
const SECRET: usize = 32;

/// A request being logged.
#[derive(Debug)]
pub(crate) struct RequestLog {
    started: Instant,
    method: Method,
    target: String,
}

impl RequestLog {
    pub(crate) fn begin(method: &Method, uri: &Uri) -> Self {
        let target = uri.path_and_query().map_or(uri.path(), |target| target.as_str());
        Self {
            started: Instant::now(),
            method: method.clone(),
            target: truncate_escaped(&masked(target), TARGET_CHARACTERS),
        }
    }

    pub(crate) fn end(self, actor: &str, status: StatusCode) {
        let microseconds = self.started.elapsed().as_micros();
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

/// A URL with tokens and tickets masked: every long run of token characters.
fn masked(target: &str) -> String {
    let of_token = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let mut shown = String::with_capacity(target.len());
    let mut rest = target;
    while !rest.is_empty() {
        let run = rest.find(|c| !of_token(c)).unwrap_or(rest.len());
        shown.push_str(if run >= SECRET { "***" } else { &rest[..run] });
        let after = rest[run..].find(of_token).map_or(rest.len(), |next| run + next);
        shown.push_str(&rest[run..after]);
        rest = &rest[after..];
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_let_somebody_in_is_not_logged() {
        let secret = "x".repeat(43);
        for (target, shown) in [
            (format!("/?isle_ticket={secret}&a=b"), "/?isle_ticket=***&a=b"),
            (format!("/v1/tokens/isle_{secret}"), "/v1/tokens/***"),
            (format!("/{secret}/é?{secret}"), "/***/é?***"),
            (
                "/v1/runs/run_00000000000000000000000000/logs?wait=30s".into(),
                "/v1/runs/run_00000000000000000000000000/logs?wait=30s",
            ),
        ] {
            assert_eq!(masked(&target), shown);
        }
    }
}
