//! Copies into a sandbox.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use isle_client::{Client, FileMode, Result};
use isle_core::{Code, Error};
use tokio::io::AsyncReadExt;

use super::{Copied, PathKind, join, path_kind};
use crate::commands::trees;
use crate::output::Progress;
use crate::paths::cannot;

const PIECE: usize = 256 * 1024;

/// Copies a file or a tree. As with `cp`, it is copied into an existing directory under its own name.
pub(super) async fn upload(
    client: &Client,
    host: &Path,
    sandbox: &str,
    path: &str,
    copied: &mut Copied,
) -> Result<()> {
    if host.as_os_str() == "-" {
        let target = join_into(client, sandbox, path, None).await?;
        copied.bytes += put(
            client,
            sandbox,
            &target,
            FileMode(0o644),
            tokio::io::stdin(),
            Progress::new(copied.form, "copying", None),
        )
        .await?;
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
        path.ends_with('/') || path == "." || path_kind(client, sandbox, path).await? == PathKind::Directory;
    match (is_directory, name) {
        (false, _) => Ok(path.to_owned()),
        (true, Some(name)) => Ok(join(path, name)),
        (true, None) => Err(Error::new(Code::IsDirectory, format!("{path:?} is a directory in the sandbox"))
            .next("pass a file name, such as NAME:dir/file")
            .into()),
    }
}

async fn tree(client: &Client, host: &Path, sandbox: &str, target: &str, copied: &mut Copied) -> Result<()> {
    let top = trees::open_directory(host)?;
    let progress = Progress::new(copied.form, "copying", None);
    let (packed, _) = trees::send(client, top, None, (sandbox, target), progress).await?;
    copied.files += packed.files;
    copied.bytes += packed.bytes;
    let named = packed.skipped.len() as u64;
    for left in packed.skipped {
        let path = host.join(OsStr::from_bytes(&left.path));
        copied.skip_because(path.display().to_string(), left.why);
    }
    copied.unnamed += packed.skipped_count.saturating_sub(named);
    Ok(())
}

async fn file(client: &Client, host: &Path, sandbox: &str, target: &str, copied: &mut Copied) -> Result<()> {
    let open = tokio::fs::File::open(host).await.map_err(|error| cannot("read", host, &error))?;
    let known = open.metadata().await.map_err(|error| cannot("read", host, &error))?;
    let mode = FileMode(known.permissions().mode() & 0o777);
    let progress = Progress::new(copied.form, "copying", Some(known.len()));
    copied.bytes += put(client, sandbox, target, mode, open, progress).await?;
    copied.files += 1;
    Ok(())
}

async fn put(
    client: &Client,
    sandbox: &str,
    target: &str,
    mode: FileMode,
    source: impl tokio::io::AsyncRead + Send + Unpin + 'static,
    progress: Progress,
) -> Result<u64> {
    let answer = client.put_file(sandbox, target, mode, pieces(source, progress)).await?;
    Ok(answer["size"].as_u64().unwrap_or_default())
}

fn pieces(
    source: impl tokio::io::AsyncRead + Send + Unpin + 'static,
    progress: Progress,
) -> BoxStream<'static, io::Result<Bytes>> {
    stream::try_unfold((source, progress), |(mut source, mut progress)| async move {
        let mut piece = Vec::with_capacity(PIECE);
        let count = source.read_buf(&mut piece).await?;
        progress.add(count);
        Ok((count > 0).then(|| (Bytes::from(piece), (source, progress))))
    })
    .boxed()
}
