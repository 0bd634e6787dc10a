//! `GET /metrics`: all metrics in the Prometheus text format, or as JSON.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{Response, request};
use isle_core::Result;
use isle_engine::metrics::{TEXT_TYPE, text};
use serde_json::json;

use crate::app::Shared;
use crate::reply::{self, Reply};
use crate::routes::operations::peer;

/// `GET /metrics`
pub(crate) async fn metrics(State(shared): State<Arc<Shared>>, request: Request) -> Reply {
    let (parts, _) = request.into_parts();
    answer(&shared, &parts).unwrap_or_else(|error| reply::error(&error))
}

fn answer(shared: &Shared, parts: &request::Parts) -> Result<Reply> {
    let context = peer(parts)?.context(&parts.headers);
    let metrics = shared.engine.metrics(&context)?;
    if prefers_json(&parts.headers) {
        return Ok(reply::json(&json!({ "metrics": metrics })));
    }
    let mut reply = Response::new(Body::from(text(&metrics)));
    let headers = reply.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(TEXT_TYPE));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(reply)
}

/// Whether the client prefers JSON; the default is text.
fn prefers_json(headers: &HeaderMap) -> bool {
    let accepted: Vec<&str> = headers
        .get_all(ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .collect();
    let weight = |wanted: &[&str]| {
        accepted
            .iter()
            .filter_map(|range| {
                let mut parts = range.split(';').map(str::trim);
                let kind = parts.next()?.to_ascii_lowercase();
                let quality =
                    parts.find_map(|part| part.strip_prefix("q=")).map_or(Some(1.0), |q| q.parse().ok());
                quality.filter(|_: &f32| wanted.contains(&kind.as_str()))
            })
            .fold(0.0_f32, f32::max)
    };
    weight(&["application/json"]) > weight(&["text/plain", "text/*", "application/openmetrics-text"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_for_everybody_who_does_not_want_json_more() {
        let accepts = |text: &'static str| {
            let mut headers = HeaderMap::new();
            if !text.is_empty() {
                headers.insert(ACCEPT, HeaderValue::from_static(text));
            }
            prefers_json(&headers)
        };
        for json in
            ["application/json", "application/json, text/plain;q=0.5", "text/html, Application/JSON;q=0.1"]
        {
            assert!(accepts(json), "{json}");
        }
        let prometheus =
            "application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        for text in ["", "*/*", "text/plain", "application/json;q=0.1, text/plain", prometheus] {
            assert!(!accepts(text), "{text}");
        }
    }
}
