//! `GET /openapi.json`: the document that `isle-api` generates from the operations.

use std::sync::Arc;

use axum::extract::State;
use bytes::Bytes;
use http::StatusCode;
use isle_api::openapi::document;

use crate::app::Shared;
use crate::reply::{self, Reply};

/// Generated once, on first request.
pub(crate) async fn show(State(shared): State<Arc<Shared>>) -> Reply {
    let made = || Bytes::from(document(shared.engine.registry(), &shared.version).to_string());
    reply::bytes_with(StatusCode::OK, shared.openapi.get_or_init(made).clone())
}
