//! Directory trees as tar archives, in both directions, and manifests to compare them.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use http::Response;
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use http::request::Parts;
use isle_core::{Code, Error, Result};
use isle_trees::{Kind, ManifestEntry};
use serde_json::{Value, json};

use crate::app::Shared;
use crate::reply::{self, Reply};
use crate::routes::files::FileArguments;
use crate::routes::operations::{declared_as, peer};

/// Maximum size of a list of paths.
const MAX_LIST_BYTES: usize = 64 << 20;
/// Content types that a form or link of a web page cannot send.
const LIST: [&str; 1] = ["application/octet-stream"];
const ARCHIVE: [&str; 2] = ["application/x-tar", "application/octet-stream"];

/// `GET /v1/sandboxes/{sandbox}/files/tree`: the whole tree.
pub(crate) async fn pack(State(shared): State<Arc<Shared>>, request: Request) -> Reply {
    let (mut parts, _) = request.into_parts();
    answered(packed(&shared, &mut parts, None).await)
}

/// `POST /v1/sandboxes/{sandbox}/files/tree`: the paths in the body.
pub(crate) async fn pack_listed(State(shared): State<Arc<Shared>>, request: Request) -> Reply {
    let (mut parts, body) = request.into_parts();
    if let Err(rejection) = declared_as(&parts.headers, &LIST) {
        return rejection.into_reply();
    }
    let listed = async {
        let paths = paths(body).await?;
        packed(&shared, &mut parts, Some(paths)).await
    };
    answered(listed.await)
}

fn answered(outcome: Result<Reply>) -> Reply {
    outcome.unwrap_or_else(|error| reply::error(&error))
}

async fn packed(shared: &Shared, parts: &mut Parts, only: Option<Vec<Vec<u8>>>) -> Result<Reply> {
    let place = FileArguments::of(parts).await?;
    reject_mode(&place)?;
    let context = peer(parts)?.context(&parts.headers);
    let git_dirs = place.git_dirs.unwrap_or_default();
    let bytes =
        shared.engine.pack_stream(context, place.sandbox, place.path, place.user, only, git_dirs).await?;
    Ok(streamed(Body::from_stream(bytes), "application/x-tar"))
}

fn streamed(body: Body, kind: &'static str) -> Reply {
    let mut reply = Response::new(body);
    let headers = reply.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    // A browser must neither guess a type nor render untrusted content.
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(CONTENT_DISPOSITION, HeaderValue::from_static("attachment"));
    reply
}

/// `PUT /v1/sandboxes/{sandbox}/files/tree`
pub(crate) async fn unpack(State(shared): State<Arc<Shared>>, request: Request) -> Reply {
    let (mut parts, body) = request.into_parts();
    if let Err(rejection) = declared_as(&parts.headers, &ARCHIVE) {
        return rejection.into_reply();
    }
    let unpacked = async {
        let place = place(&mut parts).await?;
        let context = peer(&parts)?.context(&parts.headers);
        let path = place.path.absolute();
        let bytes = body.into_data_stream().map(|piece| {
            piece.map_err(|error| {
                Error::new(Code::Cancelled, format!("incomplete request body, nothing was unpacked: {error}"))
                    .next("send the whole archive again")
            })
        });
        let carried = shared
            .engine
            .unpack_stream(context, place.sandbox, place.path, place.user, bytes.boxed())
            .await?;
        let mut answer = serde_json::to_value(carried).map_err(Error::internal)?;
        answer["path"] = json!(path);
        Ok(answer)
    };
    reply::outcome(unpacked.await)
}

/// `GET /v1/sandboxes/{sandbox}/files/manifest`: one JSON object per line.
pub(crate) async fn manifest(State(shared): State<Arc<Shared>>, request: Request) -> Reply {
    let (mut parts, _) = request.into_parts();
    let described = async {
        let place = place(&mut parts).await?;
        let context = peer(&parts)?.context(&parts.headers);
        let entries = shared.engine.manifest(context, place.sandbox, place.path, place.user).await?;
        let lines = stream::iter(entries).map(|entry| Ok::<_, Error>(Bytes::from(line(&entry))));
        Ok(streamed(Body::from_stream(lines.into_stream()), "application/x-ndjson"))
    };
    answered(described.await)
}

fn line(entry: &ManifestEntry) -> String {
    let kind = match entry.kind {
        Kind::File => "file",
        Kind::Directory => "directory",
        Kind::Symlink => "symlink",
        Kind::Other => "other",
    };
    let mut value = json!({ "kind": kind, "mode": entry.mode, "size": entry.size });
    match std::str::from_utf8(&entry.path) {
        Ok(path) => value["path"] = json!(path),
        Err(_) => value["path_base64"] = json!(STANDARD.encode(&entry.path)),
    }
    if let Some(hash) = entry.hash {
        let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        value["sha256"] = json!(hash);
    }
    format!("{value}\n")
}

/// `POST /v1/sandboxes/{sandbox}/files/prune`: removes the paths in the body.
pub(crate) async fn prune(State(shared): State<Arc<Shared>>, request: Request) -> Reply {
    let (mut parts, body) = request.into_parts();
    if let Err(rejection) = declared_as(&parts.headers, &LIST) {
        return rejection.into_reply();
    }
    let pruned = async {
        let place = place(&mut parts).await?;
        let context = peer(&parts)?.context(&parts.headers);
        let paths = paths(body).await?;
        let removed = shared.engine.prune(context, place.sandbox, place.path, place.user, &paths).await?;
        Ok::<Value, Error>(json!({ "removed": removed }))
    };
    reply::outcome(pruned.await)
}

async fn place(parts: &mut Parts) -> Result<FileArguments> {
    let place = FileArguments::of(parts).await?;
    reject_mode(&place)?;
    if place.git_dirs.is_some() {
        return Err(Error::new(Code::InvalidArgument, "`git_dirs` is not supported here").next("omit it"));
    }
    Ok(place)
}

fn reject_mode(place: &FileArguments) -> Result<()> {
    if place.mode.is_some() {
        return Err(Error::new(Code::InvalidArgument, "`mode` is not supported here").next("omit it"));
    }
    Ok(())
}

/// Paths, each terminated by a NUL byte, relative and without `..`.
async fn paths(body: Body) -> Result<Vec<Vec<u8>>> {
    let mut all = Vec::new();
    let mut pieces = body.into_data_stream();
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(|error| {
            Error::new(Code::Cancelled, format!("incomplete request body: {error}")).next("send it again")
        })?;
        if all.len() + piece.len() > MAX_LIST_BYTES {
            return Err(
                Error::new(Code::TooLarge, "the list of paths exceeds 64 MiB").next("send it in parts")
            );
        }
        all.extend_from_slice(&piece);
    }
    let paths: Vec<Vec<u8>> =
        all.split(|&byte| byte == 0).filter(|path| !path.is_empty()).map(<[u8]>::to_vec).collect();
    let leads_out = |path: &&Vec<u8>| {
        path.starts_with(b"/") || path.split(|&byte| byte == b'/').any(|part| part == b"..")
    };
    if let Some(bad) = paths.iter().find(leads_out) {
        let shown = String::from_utf8_lossy(bad);
        return Err(Error::new(Code::InvalidPath, format!("path leaves the directory: {shown:?}"))
            .next("send paths relative to `path`, without `..`, each terminated by a NUL byte"));
    }
    Ok(paths)
}
