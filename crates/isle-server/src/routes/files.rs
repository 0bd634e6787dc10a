//! Whole files as byte streams, of any size, in both directions.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use futures::StreamExt;
use http::Response;
use http::header::{CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use http::request::Parts;
use isle_engine::values::{GuestPath, SandboxName};
use isle_engine::{Code, Error, Result};
use isle_wire::GuestUser;
use serde_json::json;

use crate::app::Shared;
use crate::query;
use crate::reply::{self, Reply};
use crate::routes::operations::{path_texts, peer};

/// Permission bits, in octal, of a file that is read.
const MODE_HEADER: &str = "isle-mode";
const DEFAULT_MODE: u32 = 0o644;

pub(crate) async fn read(State(shared): State<Arc<Shared>>, request: Request) -> Reply {
    let (mut parts, _) = request.into_parts();
    match open(&shared, &mut parts).await {
        Ok(reply) => reply,
        Err(error) => reply::error(&error),
    }
}

async fn open(shared: &Shared, parts: &mut Parts) -> Result<Reply> {
    let file = FileArguments::of(parts).await?;
    if file.mode.is_some() {
        return Err(Error::new(Code::InvalidArgument, "`mode` has no meaning when a file is read")
            .next("leave it out"));
    }
    let context = peer(parts)?.context(&parts.headers);
    let (stat, bytes) = shared.engine.read_stream(context, file.sandbox, file.path, file.user).await?;
    let mut reply = Response::new(Body::from_stream(bytes));
    let headers = reply.headers_mut();
    // Files the kernel makes up as they are read have no size; they are sent in chunks.
    if stat.size > 0 {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(stat.size));
    }
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    // A browser must neither guess a type nor show what a sandbox wrote.
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(CONTENT_DISPOSITION, HeaderValue::from_static("attachment"));
    if let Ok(mode) = HeaderValue::from_str(&format!("{:o}", stat.mode & 0o7777)) {
        headers.insert(MODE_HEADER, mode);
    }
    Ok(reply)
}

pub(crate) async fn write(State(shared): State<Arc<Shared>>, request: Request) -> Reply {
    let (mut parts, body) = request.into_parts();
    reply::outcome(store(&shared, &mut parts, body).await)
}

async fn store(shared: &Shared, parts: &mut Parts, body: Body) -> Result<serde_json::Value> {
    let file = FileArguments::of(parts).await?;
    let context = peer(parts)?.context(&parts.headers);
    let bytes = body.into_data_stream().map(|piece| {
        piece.map_err(|error| {
            Error::new(Code::Cancelled, format!("the body ended early, nothing was written: {error}"))
                .next("send the whole file again")
        })
    });
    let mode = file.mode.unwrap_or(DEFAULT_MODE);
    let path = file.path.absolute();
    let size =
        shared.engine.write_stream(context, file.sandbox, file.path, file.user, mode, bytes.boxed()).await?;
    Ok(json!({ "path": path, "size": size }))
}

pub(crate) struct FileArguments {
    pub(crate) sandbox: SandboxName,
    pub(crate) path: GuestPath,
    pub(crate) user: GuestUser,
    pub(crate) mode: Option<u32>,
}

impl FileArguments {
    pub(crate) async fn of(parts: &mut Parts) -> Result<Self> {
        let (mut sandbox, mut path, mut user, mut mode) = (None, None, None, None);
        let mut texts = path_texts(parts).await?;
        texts.extend(query::pairs(parts.uri.query().unwrap_or_default())?);
        for (name, value) in texts {
            let slot = match name.as_str() {
                "sandbox" => &mut sandbox,
                "path" => &mut path,
                "user" => &mut user,
                "mode" => &mut mode,
                _ => {
                    return Err(Error::new(
                        Code::InvalidArgument,
                        format!("there is no argument {name:?} here"),
                    )
                    .next("use `path`, `user` and `mode`"));
                }
            };
            if slot.replace(value).is_some() {
                return Err(Error::new(Code::InvalidArgument, format!("`{name}` is given twice"))
                    .next(format!("give `{name}` once")));
            }
        }
        let path = path.ok_or_else(|| {
            Error::new(Code::InvalidArgument, "`path` is missing").next("add `?path=…` with the file's path")
        })?;
        Ok(Self {
            sandbox: sandbox.unwrap_or_default().parse()?,
            path: path.parse()?,
            user: parse_user(user.as_deref())?,
            mode: mode.as_deref().map(parse_mode).transpose()?,
        })
    }
}

/// A user of the sandbox by name.
pub(crate) fn parse_user(text: Option<&str>) -> Result<GuestUser> {
    match text {
        None | Some("sandbox") => Ok(GuestUser::Sandbox),
        Some("root") => Ok(GuestUser::Root),
        Some(other) => {
            Err(Error::new(Code::InvalidArgument, format!("there is no user {other:?} in a sandbox"))
                .next("use `sandbox` or `root`"))
        }
    }
}

fn parse_mode(text: &str) -> Result<u32> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777 && !text.starts_with('+'));
    mode.ok_or_else(|| {
        Error::new(Code::InvalidArgument, format!("`mode` is {text:?}, which is no octal mode up to 777"))
            .next("give it like 644 or 755")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_octal_and_carry_no_special_bits() {
        assert_eq!(parse_mode("0755").unwrap(), 0o755);
        for bad in ["4755", "9", "+7", "", "rw"] {
            assert!(parse_mode(bad).is_err(), "{bad}");
        }
    }
}
