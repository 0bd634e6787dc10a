//! Whole files as byte streams, of any size, in both directions.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use futures::StreamExt;
use http::Response;
use http::header::{CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use http::request::Parts;
use isle_core::values::{GuestPath, SandboxName};
use isle_core::{Code, Error, Result};
use isle_trees::git::GitDirs;
use isle_wire::GuestUser;
use serde_json::json;

use crate::app::Shared;
use crate::query;
use crate::reply::{self, Reply};
use crate::routes::operations::{declared_as, path_texts, peer};

/// Permission bits, in octal, of a downloaded file.
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
    if file.mode.is_some() || file.git_dirs.is_some() {
        return Err(Error::new(
            Code::InvalidArgument,
            "`mode` and `git_dirs` are not supported for reading a file",
        )
        .next("omit them"));
    }
    let context = peer(parts)?.context(&parts.headers);
    let (stat, bytes) = shared.engine.read_stream(context, file.sandbox, file.path, file.user).await?;
    let mut reply = Response::new(Body::from_stream(bytes));
    let headers = reply.headers_mut();
    // Files of procfs and sysfs have size 0; they are sent in chunks.
    if stat.size > 0 {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(stat.size));
    }
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    // A browser must neither guess a type nor render untrusted content.
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(CONTENT_DISPOSITION, HeaderValue::from_static("attachment"));
    if let Ok(mode) = HeaderValue::from_str(&format!("{:o}", stat.mode & 0o777)) {
        headers.insert(MODE_HEADER, mode);
    }
    Ok(reply)
}

pub(crate) async fn write(State(shared): State<Arc<Shared>>, request: Request) -> Reply {
    let (mut parts, body) = request.into_parts();
    if let Err(rejection) = declared_as(&parts.headers, &["application/octet-stream"]) {
        return rejection.into_reply();
    }
    reply::outcome(store(&shared, &mut parts, body).await)
}

async fn store(shared: &Shared, parts: &mut Parts, body: Body) -> Result<serde_json::Value> {
    let file = FileArguments::of(parts).await?;
    if file.git_dirs.is_some() {
        return Err(Error::new(Code::InvalidArgument, "`git_dirs` is not supported for writing a file")
            .next("omit it"));
    }
    let context = peer(parts)?.context(&parts.headers);
    let bytes = body.into_data_stream().map(|piece| {
        piece.map_err(|error| {
            Error::new(Code::Cancelled, format!("incomplete request body, nothing was written: {error}"))
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
    pub(crate) git_dirs: Option<GitDirs>,
}

impl FileArguments {
    pub(crate) async fn of(parts: &mut Parts) -> Result<Self> {
        let (mut sandbox, mut path, mut user, mut mode, mut git_dirs) = (None, None, None, None, None);
        let mut texts = path_texts(parts).await?;
        texts.extend(query::pairs(parts.uri.query().unwrap_or_default())?);
        for (name, value) in texts {
            let slot = match name.as_str() {
                "sandbox" => &mut sandbox,
                "path" => &mut path,
                "user" => &mut user,
                "mode" => &mut mode,
                "git_dirs" => &mut git_dirs,
                _ => {
                    return Err(Error::new(Code::InvalidArgument, format!("unknown argument: {name:?}"))
                        .next("use `path`, `user` and `mode`"));
                }
            };
            if slot.replace(value).is_some() {
                return Err(Error::new(Code::InvalidArgument, format!("duplicate argument `{name}`"))
                    .next(format!("pass `{name}` once")));
            }
        }
        let path = path.ok_or_else(|| {
            Error::new(Code::InvalidArgument, "missing argument `path`")
                .next("add `?path=…` with the file's path")
        })?;
        Ok(Self {
            sandbox: sandbox.unwrap_or_default().parse()?,
            path: path.parse()?,
            user: parse_user(user.as_deref())?,
            mode: mode.as_deref().map(parse_mode).transpose()?,
            git_dirs: git_dirs.as_deref().map(parse_git_dirs).transpose()?,
        })
    }
}

/// A user of the sandbox by name.
pub(crate) fn parse_user(text: Option<&str>) -> Result<GuestUser> {
    match text {
        None | Some("sandbox") => Ok(GuestUser::Sandbox),
        Some("root") => Ok(GuestUser::Root),
        Some(other) => Err(Error::new(Code::InvalidArgument, format!("unknown user: {other:?}"))
            .next("use `sandbox` or `root`")),
    }
}

fn parse_git_dirs(text: &str) -> Result<GitDirs> {
    match text {
        "skip" => Ok(GitDirs::Skip),
        "copy" => Ok(GitDirs::Copy),
        other => Err(Error::new(Code::InvalidArgument, format!("invalid `git_dirs`: {other:?}"))
            .next("use `skip`, or `copy` for trusted sandboxes")),
    }
}

fn parse_mode(text: &str) -> Result<u32> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777 && !text.starts_with('+'));
    mode.ok_or_else(|| {
        Error::new(Code::InvalidArgument, format!("invalid `mode`: {text:?}"))
            .next("use an octal mode up to 777, such as 644 or 755")
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
