//! From a sandbox to the host. What a sandbox sends is not trusted: the archive is read by our own
//! reader into a directory nobody else knows, and given its name when it is complete.

use std::os::fd::{AsFd, OwnedFd};

use bytes::Bytes;
use futures::StreamExt;
use isle_fail::Point;
use isle_trees::git::GitDirs;
use isle_trees::{
    Bounds, EXECUTABLE, Kind, Review, StagingDir, UnpackError, UnpackedTree, Unpacker, auto_run_reason,
};
use isle_wire::{FileKind, GuestUser};
use rustix::fs::{Mode, OFlags};
use serde_json::json;
use tokio::sync::mpsc;

use super::host::host_error;
use super::{
    CarriedShape, FileCopies, HostPlace, MOST_ENTRIES, TransferProgress, arrived_shape, git_refused, reviewed,
};
use crate::agent::PackedTree;
use crate::context::CallContext;
use crate::engine::refuse_hollow;
use crate::failpoint;
use crate::journal::Audit;
use crate::sandbox::Sandbox;
use isle_core::values::{ByteSize, GuestPath};
use isle_core::{Code, Error, Result};

/// Nothing from a sandbox is set-uid here, or may be written by everybody.
const MODES: u32 = 0o755;
const AHEAD: usize = 4;
const COPYING: &str = "copying out";
/// The one file in a draft.
const ONLY: &[u8] = b"file";

/// Whether what stands there may be replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Replace {
    Yes,
    No,
}

impl FileCopies {
    /// Copies a file or tree of a sandbox to exactly this place of the host.
    pub(crate) async fn copy_out(
        &self,
        context: &CallContext,
        sandbox: &Sandbox,
        from: &GuestPath,
        to: &HostPlace,
        user: GuestUser,
        (replace, git_dirs): (Replace, GitDirs),
    ) -> Result<CarriedShape> {
        to.refuse_git_directory(git_dirs)?;
        let stat = sandbox.agent()?.stat(from, user).await?;
        let carried = match stat.kind {
            FileKind::Directory => {
                self.tree_out(context, sandbox, from, to, user, (replace, git_dirs)).await?
            }
            FileKind::File | FileKind::Symlink | FileKind::Other => {
                self.file_out(context, sandbox, from, to, user, replace).await?
            }
        };
        failpoint(Point::CopyOutPlaced)?;
        let host = to.shown().display().to_string();
        let detail = carried.audited(json!({ "path": from, "host_path": host }));
        let audit = Audit::files(context, "copy_out", sandbox, detail);
        self.journal.audit(&audit).map_err(|error| error.unrecorded("the files were copied"))?;
        isle_fail::pass(Point::CopyOutAudited);
        Ok(carried)
    }

    async fn tree_out(
        &self,
        context: &CallContext,
        sandbox: &Sandbox,
        from: &GuestPath,
        to: &HostPlace,
        user: GuestUser,
        (replace, git_dirs): (Replace, GitDirs),
    ) -> Result<CarriedShape> {
        let (above, name, standing) = to.above()?;
        let failed = |error: std::io::Error| host_error(to.shown(), &error);
        let (target, draft): (OwnedFd, Option<StagingDir>) = match (standing, replace) {
            (None, _) => {
                let draft = StagingDir::new(above).map_err(failed)?;
                (draft.directory().map_err(failed)?, Some(draft))
            }
            (Some(Kind::Directory), Replace::Yes) => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let there = rustix::fs::openat(&above, &name[..], flags, Mode::empty());
                (there.map_err(|error| failed(error.into()))?, None)
            }
            (Some(Kind::Directory), Replace::No) => return Err(exists(to)),
            (Some(_), _) => {
                let what = format!("{} is a file, and a directory is to be copied", to.shown().display());
                return Err(Error::new(Code::NotDirectory, what).next("choose another place"));
            }
        };
        let tree = sandbox.agent()?.pack(from, user, None, sandbox.spec.limits.disk.0).await?;
        let progress = TransferProgress::new(context, COPYING, None);
        let carried = receive(tree, target, to, (sandbox.spec.limits.disk, git_dirs), progress).await?;
        failpoint(Point::CopyOutReceived)?;
        if let Some(draft) = draft {
            draft.place(&name).map_err(failed)?;
        }
        Ok(arrived_shape(carried))
    }

    async fn file_out(
        &self,
        context: &CallContext,
        sandbox: &Sandbox,
        from: &GuestPath,
        to: &HostPlace,
        user: GuestUser,
        replace: Replace,
    ) -> Result<CarriedShape> {
        let (above, name, standing) = to.above()?;
        let failed = |error: std::io::Error| host_error(to.shown(), &error);
        match (standing, replace) {
            (None, _) | (Some(Kind::File), Replace::Yes) => {}
            (Some(Kind::Directory), _) => {
                return Err(Error::new(
                    Code::IsDirectory,
                    format!("{} is a directory", to.shown().display()),
                )
                .next("name the file to write"));
            }
            (Some(_), _) => return Err(exists(to)),
        }
        let (stat, mut body) = sandbox.agent()?.read_file(from, user, 0, None).await?;
        refuse_hollow(from, &stat, sandbox.spec.limits.disk)?;
        let draft = StagingDir::new(above).map_err(failed)?;
        let inside = draft.directory().map_err(failed)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = rustix::fs::openat(inside.as_fd(), ONLY, flags, Mode::from_raw_mode(0o600));
        let file = std::fs::File::from(file.map_err(|error| failed(error.into()))?);
        let mut writer = tokio::fs::File::from_std(file);
        let mut bytes = 0;
        let mut progress = TransferProgress::new(context, COPYING, Some(stat.size));
        while let Some(piece) = body.next().await {
            let piece: Bytes = piece?;
            progress.add(piece.len());
            bytes += piece.len() as u64;
            tokio::io::AsyncWriteExt::write_all(&mut writer, &piece).await.map_err(failed)?;
        }
        tokio::io::AsyncWriteExt::flush(&mut writer).await.map_err(failed)?;
        let file = writer.into_std().await;
        rustix::fs::fchmod(&file, Mode::from_raw_mode(stat.mode & MODES))
            .map_err(|error| failed(error.into()))?;
        failpoint(Point::CopyOutReceived)?;
        draft.place_file(ONLY, &name, replace == Replace::Yes).map_err(failed)?;
        let mut review = Review::default();
        let shown = to.shown().to_string_lossy();
        match auto_run_reason(shown.trim_start_matches('/').as_bytes()) {
            Some(why) => review.add(&name, why),
            None if stat.mode & 0o111 != 0 => review.add(&name, EXECUTABLE),
            None => {}
        }
        let (review, review_count, _) = reviewed(&review);
        Ok(CarriedShape { files: 1, bytes, review, review_count, ..CarriedShape::default() })
    }
}

/// Unpacks a tree as it comes from a sandbox, below an open directory of the host.
pub(super) async fn receive(
    mut tree: PackedTree,
    target: OwnedFd,
    to: &HostPlace,
    (most, git_dirs): (ByteSize, GitDirs),
    mut progress: TransferProgress,
) -> Result<UnpackedTree> {
    let bounds = Bounds { entries: MOST_ENTRIES, bytes: most.0, modes: MODES };
    let unpacker =
        Unpacker::on_host(target, bounds, git_dirs).map_err(|error| host_error(to.shown(), &error))?;
    let (sender, receiver) = mpsc::channel(AHEAD);
    let unpacking = tokio::task::spawn_blocking(move || unpack(unpacker, receiver));
    let sending = async {
        while let Some(bytes) = tree.next().await? {
            progress.add(bytes.len());
            if sender.send(bytes).await.is_err() {
                break;
            }
        }
        Ok::<_, Error>(())
    }
    .await;
    // Only a stream that came to its end is unpacked; otherwise the archive breaks off here too.
    drop(sender);
    let unpacked = unpacking.await.map_err(Error::internal)?;
    sending?;
    unpacked.map_err(|error| unpack_error(to, error))
}

fn unpack(
    mut unpacker: Unpacker,
    mut pieces: mpsc::Receiver<Bytes>,
) -> std::result::Result<UnpackedTree, UnpackError> {
    while let Some(piece) = pieces.blocking_recv() {
        unpacker.feed(&piece)?;
    }
    unpacker.finish_on_host()
}

fn exists(to: &HostPlace) -> Error {
    Error::new(Code::FileExists, format!("{} exists on the host", to.shown().display()))
        .next("choose another place, or set replace")
}

fn unpack_error(to: &HostPlace, error: UnpackError) -> Error {
    match error {
        UnpackError::Archive(isle_trees::tar::TarError::TooLarge(..)) => {
            Error::new(Code::TooLarge, format!("nothing was copied: {error}"))
                .next("copy parts of it; files that are mostly holes are best packed with `tar --sparse`")
        }
        UnpackError::Archive(_) => Error::new(Code::ArchiveRefused, format!("nothing was copied: {error}"))
            .next("try again; if it happens again, the sandbox is not to be trusted"),
        UnpackError::Io { error, .. } => host_error(to.shown(), &error),
        UnpackError::GitDirectory => git_refused(&error.to_string()),
        UnpackError::InTheWay { .. } => Error::new(Code::FileExists, format!("nothing was copied: {error}"))
            .next("move it away, or choose another place"),
    }
}
