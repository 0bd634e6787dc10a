//! Trees and files carried between a sandbox and the outside: as archives for the doors that stream, and to and
//! from directories of the host that the configuration names.
//!
//! Owns nothing: each copy is one call, audited when it is done. `arrive` copies into a sandbox, `leave` out of
//! one, `mirror` makes two trees alike, `host` opens directories of the host without following links,
//! `git_bundle` fetches commits.
//!
//! Invariants: what comes out of a sandbox is the guest's word (names, sizes, links and git directories are
//! checked before anything is written on the host, and nothing of it makes a program of the host run code);
//! nothing is in place before all of it has come; only directories that the configuration names are touched.
//!
//! Called by the doors that stream archives and by the operations that copy. Calls sandboxes (to find or make
//! the one that is copied to or from), their agents, the journal, and runs for git.

mod arrive;
mod git_bundle;
mod host;
mod leave;
mod mirror;
mod progress;

use std::sync::Arc;

use bytes::Bytes;
use futures::stream::{self, BoxStream};
pub use isle_api::carried::{CarriedShape, ReviewMoreShape, ReviewShape, SkippedShape};
use isle_api::inputs::GitDirectories;
use isle_fail::Point;
use isle_trees::git::{GitDirs, SkippedGitDirs};
use isle_trees::tar::TarError;
use isle_trees::{GIT_DIRECTORY, ManifestEntry, Review, Reviewed, TreeFilter, UnpackedTree};
use isle_wire::{Carried, GuestUser};
use serde_json::{Value, json};

use crate::context::CallContext;
use crate::engine::{ByteStream, while_in_use};
use crate::failpoint;
use crate::journal::{Audit, Journal};
use crate::run::Runs;
use crate::sandbox::{Sandbox, Sandboxes};
use isle_core::values::{GuestPath, SandboxName};
use isle_core::{Code, Error, Result};

pub(crate) use arrive::pack_on_host;
pub(crate) use host::{HostPlace, HostRoots};
pub(crate) use leave::Replace;
pub(crate) use mirror::Mirror;
pub(crate) use progress::{PACE, TransferProgress, counted, progress};

/// Entries of one tree.
pub(crate) const MOST_ENTRIES: u64 = 1_000_000;

/// What an answer says to do about a git directory that was left out.
const GIT_REMEDY: &str = "sync_pull with git brings its commits; git_dirs \"copy\" copies it with everything git would run, for sandboxes you trust";

/// What becomes of git directories that leave a sandbox.
pub(crate) fn git_dirs(wanted: Option<GitDirectories>) -> GitDirs {
    match wanted.unwrap_or_default() {
        GitDirectories::Skip => GitDirs::Skip,
        GitDirectories::Copy => GitDirs::Copy,
    }
}

/// What was carried, as it is answered.
fn carried_shape(carried: Carried) -> CarriedShape {
    let skipped = carried.skipped.into_iter().map(|one| skipped(&one.path, one.why)).collect();
    CarriedShape {
        files: carried.files,
        directories: carried.directories,
        bytes: carried.bytes,
        skipped,
        skipped_count: carried.skipped_count,
        ..CarriedShape::default()
    }
}

/// The same for what arrived on the host.
fn arrived_shape(arrived: UnpackedTree) -> CarriedShape {
    let mut shape = carried_shape(arrived.carried);
    let mut git = skipped_git(&arrived.git);
    git.append(&mut shape.skipped);
    let (review, review_count, review_more) = reviewed(&arrived.review);
    CarriedShape {
        skipped: git,
        skipped_count: shape.skipped_count + arrived.git.count,
        review,
        review_count,
        review_more,
        ..shape
    }
}

fn skipped(path: &[u8], why: String) -> SkippedShape {
    SkippedShape { path: shown(path), why, reason: None, remedy: None }
}

fn shown(path: &[u8]) -> String {
    if path.is_empty() { ".".to_owned() } else { String::from_utf8_lossy(path).into_owned() }
}

/// Git directories that were left out.
fn skipped_git(git: &SkippedGitDirs) -> Vec<SkippedShape> {
    let shape = |path: &Vec<u8>| SkippedShape {
        path: shown(path),
        why: GIT_DIRECTORY.to_owned(),
        reason: Some("git_directory".to_owned()),
        remedy: Some(GIT_REMEDY.to_owned()),
    };
    git.named.iter().map(shape).collect()
}

fn reviewed(review: &Review) -> (Vec<ReviewShape>, u64, Vec<ReviewMoreShape>) {
    let shape = |one: Reviewed| ReviewShape { path: shown(&one.path), why: one.why.to_owned() };
    let more = |(why, count): (&str, u64)| ReviewMoreShape { why: why.to_owned(), count };
    (review.named().map(shape).collect(), review.count(), review.unnamed().map(more).collect())
}

/// A place of the host where files of a sandbox would become part of a git directory.
fn git_refused(what: &str) -> Error {
    Error::new(Code::GitDirectoryRefused, format!("nothing was copied: {what}"))
        .next("sync_pull with git brings commits; git_dirs \"copy\" copies files with everything git would run, for sandboxes you trust")
}

fn archive_refused(error: TarError) -> Error {
    Error::new(Code::ArchiveRefused, format!("the sandbox sent no good archive: {error}"))
        .next("try again; if it happens again, the sandbox is not to be trusted")
}

/// See the module.
pub(crate) struct FileCopies {
    journal: Arc<Journal>,
    sandboxes: Arc<Sandboxes>,
    runs: Arc<Runs>,
}

impl FileCopies {
    pub(crate) fn new(journal: Arc<Journal>, sandboxes: Arc<Sandboxes>, runs: Arc<Runs>) -> Self {
        Self { journal, sandboxes, runs }
    }

    /// A tree of a sandbox as a tar archive; only the paths named, when there are any.
    pub(crate) async fn pack_stream(
        &self,
        context: CallContext,
        sandbox: SandboxName,
        path: GuestPath,
        user: GuestUser,
        only: Option<Vec<Vec<u8>>>,
        git_dirs: GitDirs,
    ) -> Result<ByteStream> {
        let sandbox = self.sandboxes.looked_at(&context, &sandbox).await?;
        let disk = sandbox.spec.limits.disk.0;
        let tree = sandbox.agent()?.pack(&path, user, only, disk).await?;
        // Whoever unpacks it does so outside, with whatever program they have.
        let filter = TreeFilter::new(MOST_ENTRIES, u64::MAX, git_dirs);
        let bytes = stream::try_unfold(Some((tree, filter)), |state| async move {
            let Some((mut tree, mut filter)) = state else { return Ok(None) };
            loop {
                let Some(bytes) = tree.next().await? else {
                    let last = filter.finish().map_err(archive_refused)?;
                    return Ok(Some((Bytes::from(last), None)));
                };
                let passed = filter.feed(&bytes).map_err(archive_refused)?;
                if !passed.is_empty() {
                    return Ok(Some((Bytes::from(passed), Some((tree, filter)))));
                }
            }
        });
        Ok(while_in_use(&sandbox, bytes))
    }

    /// Unpacks a tar archive in a sandbox; nothing is in place before all of it has come and is good.
    pub(crate) async fn unpack_stream(
        &self,
        context: CallContext,
        sandbox: SandboxName,
        path: GuestPath,
        user: GuestUser,
        body: BoxStream<'static, Result<Bytes>>,
    ) -> Result<CarriedShape> {
        let sandbox = self.sandboxes.ensure(&context, &sandbox).await?;
        let _used = sandbox.hold();
        self.unpack_in(&context, &sandbox, &path, user, body, json!({})).await
    }

    pub(crate) async fn unpack_in(
        &self,
        context: &CallContext,
        sandbox: &Sandbox,
        path: &GuestPath,
        user: GuestUser,
        body: BoxStream<'static, Result<Bytes>>,
        detail: Value,
    ) -> Result<CarriedShape> {
        let bytes = sandbox.spec.limits.disk.0;
        let carried = sandbox.agent()?.unpack(path, user, MOST_ENTRIES, bytes, body).await?;
        failpoint(Point::UnpackDone)?;
        let carried = carried_shape(carried);
        let mut detail = carried.audited(detail);
        detail["path"] = json!(path);
        let audit = Audit::files(context, "unpack_files", sandbox, detail);
        self.journal.audit(&audit).map_err(|error| error.unrecorded("the files were unpacked"))?;
        isle_fail::pass(Point::UnpackAudited);
        Ok(carried)
    }

    /// What a tree of a sandbox holds, with the hash of every file.
    pub(crate) async fn manifest(
        &self,
        context: CallContext,
        sandbox: SandboxName,
        path: GuestPath,
        user: GuestUser,
    ) -> Result<Vec<ManifestEntry>> {
        let sandbox = self.sandboxes.looked_at(&context, &sandbox).await?;
        sandbox.agent()?.manifest(&path, user, (MOST_ENTRIES, sandbox.spec.limits.disk)).await
    }

    /// Removes files and empty directories of a sandbox, named below a directory, in the order given.
    pub(crate) async fn prune(
        &self,
        context: CallContext,
        sandbox: SandboxName,
        path: GuestPath,
        user: GuestUser,
        paths: &[Vec<u8>],
    ) -> Result<u64> {
        let sandbox = self.sandboxes.looked_at(&context, &sandbox).await?;
        let removed = sandbox.agent()?.prune(&path, user, paths).await?;
        failpoint(Point::PruneDone)?;
        let audit =
            Audit::files(&context, "prune_files", &sandbox, json!({ "path": path, "removed": removed }));
        self.journal.audit(&audit).map_err(|error| error.unrecorded("the files were removed"))?;
        isle_fail::pass(Point::PruneAudited);
        Ok(removed)
    }
}
