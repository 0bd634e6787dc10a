//! Trees and files carried between a sandbox and whoever is outside: as archives for the doors that
//! stream, and to and from directories of the host that the configuration names.

mod arrive;
mod host;
mod leave;
mod mirror;
mod progress;

use bytes::Bytes;
use futures::stream::{self, BoxStream};
use isle_fail::Point;
use isle_trees::ManifestEntry;
use isle_wire::{Carried, GuestUser};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use crate::context::CallContext;
use crate::engine::{ByteStream, Engine, while_in_use};
use crate::error::Result;
use crate::failpoint;
use crate::journal::Audit;
use crate::sandbox::Sandbox;
use crate::values::{GuestPath, SandboxName};

pub(crate) use arrive::pack_on_host;
pub(crate) use host::{HostPlace, HostRoots};
pub(crate) use leave::Replace;
pub(crate) use mirror::{Mirror, MirroredShape};
pub(crate) use progress::{PACE, Progress, beat, counted};

/// Entries of one tree.
pub(crate) const MOST_ENTRIES: u64 = 1_000_000;

/// What was carried.
#[derive(Debug, Clone, Default, Serialize, JsonSchema)]
pub struct CarriedShape {
    /// Files.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Bytes of the files.
    pub bytes: u64,
    /// What was left out, the first of them.
    pub skipped: Vec<SkippedShape>,
    /// How many were left out in all.
    pub skipped_count: u64,
}

/// Something that was left out.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct SkippedShape {
    /// Where, relative to the top.
    pub path: String,
    /// Why.
    pub why: String,
}

impl From<Carried> for CarriedShape {
    fn from(carried: Carried) -> Self {
        let skipped = carried.skipped.into_iter().map(|one| skipped(&one.path, one.why)).collect();
        Self {
            files: carried.files,
            directories: carried.directories,
            bytes: carried.bytes,
            skipped,
            skipped_count: carried.skipped_count,
        }
    }
}

fn skipped(path: &[u8], why: String) -> SkippedShape {
    SkippedShape { path: String::from_utf8_lossy(path).into_owned(), why }
}

impl CarriedShape {
    /// What the audit keeps of it.
    pub(crate) fn audited(&self, more: Value) -> Value {
        let mut detail = json!({
            "files": self.files,
            "directories": self.directories,
            "bytes": self.bytes,
            "skipped": self.skipped_count,
        });
        if let (Value::Object(detail), Value::Object(more)) = (&mut detail, more) {
            detail.extend(more);
        }
        detail
    }
}

impl Engine {
    /// A tree of a sandbox as a tar archive; only the paths named, when there are any.
    pub async fn pack_stream(
        &self,
        context: CallContext,
        sandbox: SandboxName,
        path: GuestPath,
        user: GuestUser,
        only: Option<Vec<Vec<u8>>>,
    ) -> Result<ByteStream> {
        let sandbox = self.inner.looked_at(&context, &sandbox).await?;
        let tree = sandbox.agent()?.pack(&path, user, only, sandbox.spec.limits.disk.0).await?;
        let bytes =
            stream::try_unfold(
                tree,
                |mut tree| async move { Ok(tree.next().await?.map(|bytes| (bytes, tree))) },
            );
        Ok(while_in_use(&sandbox, bytes))
    }

    /// Unpacks a tar archive in a sandbox; nothing is in place before all of it has come and is good.
    pub async fn unpack_stream(
        &self,
        context: CallContext,
        sandbox: SandboxName,
        path: GuestPath,
        user: GuestUser,
        body: BoxStream<'static, Result<Bytes>>,
    ) -> Result<CarriedShape> {
        let sandbox = self.inner.ensure(&context, &sandbox).await?;
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
        let carried = CarriedShape::from(carried);
        let mut detail = carried.audited(detail);
        detail["path"] = json!(path);
        let audit = Audit::files(context, "unpack_files", sandbox, detail);
        self.inner.journal.audit(&audit).map_err(|error| error.unrecorded("the files were unpacked"))?;
        isle_fail::pass(Point::UnpackAudited);
        Ok(carried)
    }

    /// What a tree of a sandbox holds, with the hash of every file.
    pub async fn manifest(
        &self,
        context: CallContext,
        sandbox: SandboxName,
        path: GuestPath,
        user: GuestUser,
    ) -> Result<Vec<ManifestEntry>> {
        let sandbox = self.inner.looked_at(&context, &sandbox).await?;
        sandbox.agent()?.manifest(&path, user, MOST_ENTRIES).await
    }

    /// Removes files and empty directories of a sandbox, named below a directory, in the order given.
    pub async fn prune(
        &self,
        context: CallContext,
        sandbox: SandboxName,
        path: GuestPath,
        user: GuestUser,
        paths: &[Vec<u8>],
    ) -> Result<u64> {
        let sandbox = self.inner.looked_at(&context, &sandbox).await?;
        let removed = sandbox.agent()?.prune(&path, user, paths).await?;
        failpoint(Point::PruneDone)?;
        let audit =
            Audit::files(&context, "prune_files", &sandbox, json!({ "path": path, "removed": removed }));
        self.inner.journal.audit(&audit).map_err(|error| error.unrecorded("the files were removed"))?;
        isle_fail::pass(Point::PruneAudited);
        Ok(removed)
    }
}
