//! Into a sandbox.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use isle_client::{Client, FileMode, Result};
use isle_engine::{Code, Error};
use serde_json::json;
use tokio::io::AsyncReadExt;

use super::{Copied, Standing, join, standing};
use crate::places::cannot;

const PIECE: usize = 256 * 1024;

/// Copies a file or a tree. As with `cp`, an existing directory receives it under its own name.
pub(super) async fn upload(
    client: &Client,
    host: &Path,
    sandbox: &str,
    path: &str,
    copied: &mut Copied,
) -> Result<()> {
    if host.as_os_str() == "-" {
        let target = join_into(client, sandbox, path, None).await?;
        copied.bytes += put(client, sandbox, &target, FileMode(0o644), tokio::io::stdin()).await?;
        copied.files += 1;
        return Ok(());
    }
    let known = std::fs::metadata(host).map_err(|error| cannot("read", host, &error))?;
    let name = host.canonicalize().ok().and_then(|real| Some(real.file_name()?.to_str()?.to_owned()));
    let target = join_into(client, sandbox, path, name.as_deref()).await?;
    if known.is_dir() {
        tree(client, host, sandbox, &target, copied).await
    } else {
        file(client, host, sandbox, &target, copied).await
    }
}

async fn join_into(client: &Client, sandbox: &str, path: &str, name: Option<&str>) -> Result<String> {
    let is_directory =
        path.ends_with('/') || path == "." || standing(client, sandbox, path).await? == Standing::Directory;
    match (is_directory, name) {
        (false, _) => Ok(path.to_owned()),
        (true, Some(name)) => Ok(join(path, name)),
        (true, None) => Err(Error::new(Code::IsDirectory, format!("{path:?} is a directory of the sandbox"))
            .next("name the file to write, such as NAME:dir/file")
            .into()),
    }
}

async fn tree(client: &Client, host: &Path, sandbox: &str, target: &str, copied: &mut Copied) -> Result<()> {
    let mut open = vec![(host.to_owned(), target.to_owned())];
    while let Some((directory, target)) = open.pop() {
        let entries = std::fs::read_dir(&directory).map_err(|error| cannot("read", &directory, &error))?;
        let mut is_empty = true;
        for entry in entries {
            is_empty = false;
            let entry = entry.map_err(|error| cannot("read", &directory, &error))?;
            let path = entry.path();
            let Some(name) = entry.file_name().to_str().map(str::to_owned) else {
                copied.skip(path.display().to_string());
                continue;
            };
            let kind = entry.file_type().map_err(|error| cannot("read", &path, &error))?;
            let below = join(&target, &name);
            if kind.is_dir() {
                open.push((path, below));
            } else if kind.is_file() {
                file(client, &path, sandbox, &below, copied).await?;
            } else {
                copied.skip(path.display().to_string());
            }
        }
        // Files bring the directories above them along; nobody brings an empty one.
        if is_empty {
            make_directory(client, sandbox, &target).await?;
        }
    }
    Ok(())
}

async fn make_directory(client: &Client, sandbox: &str, target: &str) -> Result<()> {
    let argv = ["mkdir", "-p", "--", target];
    let input = json!({ "sandbox": sandbox, "argv": argv, "wait": "60s" });
    let result = client.call("exec", input).await?;
    if result["exit_code"] == json!(0) {
        return Ok(());
    }
    let why = result["stderr"].as_str().unwrap_or_default().trim();
    Err(Error::new(Code::InvalidPath, format!("cannot make {target:?} in the sandbox: {why}"))
        .next("choose a path the sandbox user may write, such as one below /workspace")
        .into())
}

async fn file(client: &Client, host: &Path, sandbox: &str, target: &str, copied: &mut Copied) -> Result<()> {
    let open = tokio::fs::File::open(host).await.map_err(|error| cannot("read", host, &error))?;
    let known = open.metadata().await.map_err(|error| cannot("read", host, &error))?;
    let mode = FileMode(known.permissions().mode() & 0o777);
    copied.bytes += put(client, sandbox, target, mode, open).await?;
    copied.files += 1;
    Ok(())
}

async fn put(
    client: &Client,
    sandbox: &str,
    target: &str,
    mode: FileMode,
    source: impl tokio::io::AsyncRead + Send + Unpin + 'static,
) -> Result<u64> {
    let answer = client.put_file(sandbox, target, mode, pieces(source)).await?;
    Ok(answer["size"].as_u64().unwrap_or_default())
}

fn pieces(
    source: impl tokio::io::AsyncRead + Send + Unpin + 'static,
) -> BoxStream<'static, io::Result<Bytes>> {
    stream::try_unfold(source, |mut source| async move {
        let mut piece = Vec::with_capacity(PIECE);
        let count = source.read_buf(&mut piece).await?;
        Ok((count > 0).then(|| (Bytes::from(piece), source)))
    })
    .boxed()
}
