//! The router: the registry's operations below `/v1`, and the routes that are not operations.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::routing::{MethodFilter, MethodRouter, any, get, on, post};
use http::StatusCode;
use isle_core::{Code, Error};

use crate::app::Shared;
use crate::reply::{self, Reply};
use crate::session;

mod events;
mod files;
mod gone;
mod health;
mod mcp;
mod mcp_stdio;
mod metrics;
mod openapi;
mod operations;
mod progress;
mod run_events;
mod trees;
mod watch;

pub(crate) use files::parse_user;
pub use mcp::mcp_routes;

/// Maximum size of a JSON body.
pub(crate) const MAX_BODY: usize = 8 * 1024 * 1024;

pub(crate) fn router(shared: &Arc<Shared>) -> Router {
    let mut routes: BTreeMap<String, MethodRouter<Arc<Shared>>> = BTreeMap::new();
    let mut add = |path: String, methods: MethodRouter<Arc<Shared>>| {
        let known = routes.remove(&path).unwrap_or_default();
        routes.insert(path, known.merge(methods));
    };
    for entry in shared.engine.registry().definitions() {
        let (path, methods) = operations::route(entry);
        add(path, methods);
    }
    add("/v1/sandboxes/{sandbox}/files/content".into(), get(files::read).put(files::write));
    add(
        "/v1/sandboxes/{sandbox}/files/tree".into(),
        get(trees::pack).post(trees::pack_listed).put(trees::unpack),
    );
    add("/v1/sandboxes/{sandbox}/files/manifest".into(), get(trees::manifest));
    add("/v1/sandboxes/{sandbox}/files/prune".into(), post(trees::prune));
    add("/v1/sandboxes/{sandbox}/files/watch/events".into(), get(watch::watch));
    add("/v1/sandboxes/{sandbox}/exec/stream".into(), post(run_events::exec_stream));
    add("/v1/sandboxes/{sandbox}/ports/{port}/".into(), any(gone::ports));
    add("/v1/sandboxes/{sandbox}/ports/{port}/{*below}".into(), any(gone::ports));
    add("/v1/runs/{run_id}/events".into(), get(run_events::follow));
    add("/v1/events".into(), get(events::follow));
    add(isle_api::session::ROUTE.into(), get(session::upgrade));
    add("/v1/mcp-stdio".into(), on(MethodFilter::GET, mcp_stdio::upgrade));
    add("/v1/version".into(), get(health::version));
    add("/v1/shutdown".into(), post(health::shutdown));
    add("/metrics".into(), get(metrics::metrics));
    add("/healthz".into(), get(health::alive));
    add("/readyz".into(), get(health::ready));
    add("/openapi.json".into(), get(openapi::show));

    let mcp = mcp_routes(shared.mcp.clone(), shared.closing.clone());
    let router =
        routes.into_iter().fold(Router::new(), |router, (path, methods)| router.route(&path, methods));
    router
        .route("/mcp", mcp)
        .fallback(unknown_route)
        .method_not_allowed_fallback(wrong_method)
        .with_state(shared.clone())
}

async fn unknown_route(uri: http::Uri) -> Reply {
    let path = isle_mcp::truncate_escaped(uri.path(), 200);
    reply::error(
        &Error::new(Code::OperationNotFound, format!("unknown route: {path}"))
            .next("see GET /openapi.json for the routes"),
    )
}

async fn wrong_method(method: http::Method, uri: http::Uri) -> Reply {
    let path = isle_mcp::truncate_escaped(uri.path(), 200);
    let error = Error::new(Code::InvalidArgument, format!("method {method} not allowed for {path}"))
        .next("use one of the methods in the Allow header; see GET /openapi.json for the routes");
    reply::error_with(StatusCode::METHOD_NOT_ALLOWED, &error)
}
