//! Directory trees for `isle cp` and `isle sync`: sent as archives; received archives are not trusted.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use isle_client::{Client, ClientError, FileBody, Result};
use isle_core::values::ByteSize;
use isle_core::{Code, Error};
use isle_trees::git::{GitDirs, completes_git_directory, is_in_git_directory};
use isle_trees::tar::TarError;
use isle_trees::{Bounds, Carried, PackOptions, Packer, UnpackError, UnpackedTree, Unpacker};
use rustix::fs::{Mode, OFlags};
use serde_json::json;
use tokio::sync::mpsc;

use crate::output::Progress;
use crate::paths::cannot;

/// Maximum number of entries of one tree.
const MAX_ENTRIES: u64 = 1_000_000;
/// Mode mask: received files never become set-uid or world-writable.
const MODES: u32 = 0o755;
/// Maximum size of a tree when the disk limit of its sandbox is unknown.
const DEFAULT_MAX_BYTES: u64 = 64 << 30;
/// Sparse files of this host with a larger apparent size are skipped.
const MAX_SPARSE_BYTES: u64 = 1 << 40;
/// Chunks buffered while sending.
const BUFFERED_CHUNKS: usize = 4;

/// Opens a directory of this host.
pub(super) fn open_directory(path: &Path) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).map_err(|error| cannot("read", path, &error.into()))
}

/// Sends a tree of this host, or only the given paths; returns what was packed and the daemon's response.
pub(super) async fn send(
    client: &Client,
    top: OwnedFd,
    only: Option<Vec<Vec<u8>>>,
    (sandbox, path): (&str, &str),
    progress: Progress,
) -> Result<(Carried, serde_json::Value)> {
    let mut packer =
        Packer::new(top, PackOptions { sparse_limit: MAX_SPARSE_BYTES, only }).map_err(Error::internal)?;
    let (sender, receiver) = mpsc::channel::<Bytes>(BUFFERED_CHUNKS);
    let packing = tokio::task::spawn_blocking(move || {
        while let Some(piece) = packer.piece() {
            if sender.blocking_send(piece.into()).is_err() {
                break;
            }
        }
        packer.carried().clone()
    });
    let answer = client.put_tree(sandbox, path, pieces(receiver, progress)).await?;
    let packed = packing.await.map_err(Error::internal)?;
    Ok((packed, answer))
}

fn pieces(receiver: mpsc::Receiver<Bytes>, progress: Progress) -> BoxStream<'static, io::Result<Bytes>> {
    stream::unfold((receiver, progress), |(mut receiver, mut progress)| async move {
        let piece = receiver.recv().await?;
        progress.add(piece.len());
        Some((Ok(piece), (receiver, progress)))
    })
    .boxed()
}

/// Receives a tree into a directory of this host; files are moved into place only after the whole archive
/// was checked.
pub(super) async fn receive(
    client: &Client,
    sandbox: &str,
    mut body: FileBody,
    target: OwnedFd,
    (shown, git_dirs): (&Path, GitDirs),
    mut progress: Progress,
) -> Result<UnpackedTree> {
    let bounds = Bounds { entries: MAX_ENTRIES, bytes: max_bytes(client, sandbox).await, modes: MODES };
    let mut unpacker =
        Unpacker::on_host(target, bounds, git_dirs).map_err(|error| cannot("write", shown, &error))?;
    while let Some(piece) = body.next().await? {
        progress.add(piece.len());
        unpacker.feed(&piece).map_err(|error| unpack_error(shown, error))?;
    }
    unpacker.finish_on_host().map_err(|error| unpack_error(shown, error))
}

/// The disk limit of the sandbox: no tree is larger, unless it consists of sparse files.
pub(super) async fn max_bytes(client: &Client, sandbox: &str) -> u64 {
    let status = client.call("status", json!({ "sandbox": sandbox })).await;
    status
        .ok()
        .and_then(|status| status["detail"]["limits"]["disk"].as_str().map(str::to_owned))
        .and_then(|text| text.parse::<ByteSize>().ok())
        .map_or(DEFAULT_MAX_BYTES, |size| size.0)
}

/// The error for files that would be, or become part of, a git directory of this host.
pub(super) fn git_refused(what: &str) -> ClientError {
    Error::new(Code::GitDirectoryRefused, format!("nothing was copied: {what}"))
        .next("use `isle sync pull --git` to fetch commits, or `--git-dirs copy` to copy git directories with hooks and configuration from a trusted sandbox")
        .into()
}

/// Rejects a target inside a git directory, or one that would create one, unless `--git-dirs copy` is given.
pub(super) fn refuse_git_directory(place: &Path, git_dirs: GitDirs) -> Result<()> {
    let name = place.file_name().map_or(&[][..], OsStrExt::as_bytes);
    let above = place.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let is_git = is_in_git_directory(place) || completes_git_directory(above, name);
    if git_dirs == GitDirs::Skip && is_git {
        return Err(git_refused(&format!(
            "{} is in a git directory, or would create one, and git runs programs configured in it",
            place.display()
        )));
    }
    Ok(())
}

fn unpack_error(shown: &Path, error: UnpackError) -> ClientError {
    match error {
        UnpackError::Archive(TarError::TooLarge(..)) => {
            Error::new(Code::TooLarge, format!("nothing was copied: {error}"))
                .next("copy parts of it, or pack sparse files with `tar --sparse` in the sandbox")
                .into()
        }
        UnpackError::Archive(_) => Error::new(Code::ArchiveRefused, format!("nothing was copied: {error}"))
            .next("retry; if it fails again, do not trust the sandbox")
            .into(),
        UnpackError::Io { error, .. } => cannot("write", shown, &error),
        UnpackError::GitDirectory => git_refused(&error.to_string()),
        UnpackError::InTheWay { due, .. } => {
            let code = if due == "a file" { Code::IsDirectory } else { Code::NotDirectory };
            Error::new(code, format!("nothing was copied: in {}, {error}", shown.display()))
                .next("move it, or copy to another path")
                .into()
        }
    }
}
