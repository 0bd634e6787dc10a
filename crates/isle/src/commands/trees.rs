//! Trees of this host for `isle cp` and `isle sync`: sent as archives, and received with suspicion.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use isle_client::{Client, ClientError, FileBody, Result};
use isle_engine::values::ByteSize;
use isle_engine::{Code, Error};
use isle_trees::tar::TarError;
use isle_trees::{Bounds, Carried, PackOptions, Packer, UnpackError, Unpacker};
use rustix::fs::{Mode, OFlags};
use serde_json::json;
use tokio::sync::mpsc;

use crate::output::Progress;
use crate::places::cannot;

/// Entries of one tree.
const MOST_ENTRIES: u64 = 1_000_000;
/// Nothing from a sandbox becomes set-uid here, or may be written by everybody.
const MODES: u32 = 0o755;
/// What a tree may hold when its sandbox does not say.
const MOST_BYTES: u64 = 64 << 30;
/// A file of this host with holes that claims more is left out.
const HOLLOW: u64 = 1 << 40;
/// Pieces on their way.
const AHEAD: usize = 4;

/// Opens a directory of this host.
pub(super) fn open_directory(path: &Path) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).map_err(|error| cannot("read", path, &error.into()))
}

/// Sends a tree of this host, all of it or the paths named; what was packed, and what the daemon says.
pub(super) async fn send(
    client: &Client,
    top: OwnedFd,
    only: Option<Vec<Vec<u8>>>,
    (sandbox, path): (&str, &str),
    progress: Progress,
) -> Result<(Carried, serde_json::Value)> {
    let mut packer = Packer::new(top, PackOptions { hollow: HOLLOW, only }).map_err(Error::internal)?;
    let (sender, receiver) = mpsc::channel::<Bytes>(AHEAD);
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

/// Receives a tree into a directory of this host; nothing is in place before all of it is good.
pub(super) async fn receive(
    client: &Client,
    sandbox: &str,
    mut body: FileBody,
    target: OwnedFd,
    shown: &Path,
    mut progress: Progress,
) -> Result<Carried> {
    let bounds = Bounds { entries: MOST_ENTRIES, bytes: most_bytes(client, sandbox).await, modes: MODES };
    let mut unpacker = Unpacker::new(target, bounds).map_err(|error| cannot("write", shown, &error))?;
    while let Some(piece) = body.next().await? {
        progress.add(piece.len());
        unpacker.feed(&piece).map_err(|error| refused(shown, error))?;
    }
    unpacker.finish().map_err(|error| refused(shown, error))
}

/// No tree holds more than the disk it is on, unless it is mostly holes.
async fn most_bytes(client: &Client, sandbox: &str) -> u64 {
    let status = client.call("status", json!({ "sandbox": sandbox })).await;
    status
        .ok()
        .and_then(|status| status["detail"]["limits"]["disk"].as_str().map(str::to_owned))
        .and_then(|text| text.parse::<ByteSize>().ok())
        .map_or(MOST_BYTES, |size| size.0)
}

fn refused(shown: &Path, error: UnpackError) -> ClientError {
    match error {
        UnpackError::Archive(TarError::TooLarge(..)) => {
            Error::new(Code::TooLarge, format!("nothing was copied: {error}"))
                .next("copy parts of it; pack files that are mostly holes with `tar --sparse` in the sandbox")
                .into()
        }
        UnpackError::Archive(_) => Error::new(Code::ArchiveRefused, format!("nothing was copied: {error}"))
            .next("try again; if it happens again, the sandbox is not to be trusted")
            .into(),
        UnpackError::Io { error, .. } => cannot("write", shown, &error),
        UnpackError::InTheWay { due, .. } => {
            let code = if due == "a file" { Code::IsDirectory } else { Code::NotDirectory };
            Error::new(code, format!("nothing was copied: in {}, {error}", shown.display()))
                .next("move it away, or copy to another place")
                .into()
        }
    }
}
