//! Files of sandboxes, for doors that stream them.

use std::sync::Arc;

use futures::StreamExt;
use futures::stream::BoxStream;
use isle_fail::Point;
use isle_trees::ManifestEntry;
use isle_trees::git::GitDirs;
use isle_wire::{GuestUser, Stat};
use serde_json::json;

use super::{ByteStream, Engine};
use crate::agent::{FileToWrite, KeepMode};
use crate::context::CallContext;
use crate::failpoint;
use crate::files::carry::CarriedShape;
use crate::files::watch::FileUpdate;
use crate::journal::Audit;
use crate::sandbox::Sandbox;
use isle_core::values::{ByteSize, GuestPath, SandboxName};
use isle_core::{Code, Error, Result};

impl Engine {
    /// Reads a file as a stream.
    pub async fn read_stream(
        &self,
        context: CallContext,
        sandbox: SandboxName,
        path: GuestPath,
        user: GuestUser,
    ) -> Result<(Stat, ByteStream)> {
        let sandbox = self.inner.sandboxes.looked_at(&context, &sandbox).await?;
        let (stat, bytes) = sandbox.agent()?.read_file(&path, user, 0, None).await?;
        refuse_hollow(&path, &stat, sandbox.spec.limits.disk)?;
        Ok((stat, while_in_use(&sandbox, bytes)))
    }

    /// Writes one file from a stream; nothing is visible until all of it arrived. Returns its size.
    pub async fn write_stream(
        &self,
        context: CallContext,
        sandbox: SandboxName,
        path: GuestPath,
        user: GuestUser,
        mode: u32,
        body: ByteStream,
    ) -> Result<u64> {
        let sandbox = self.inner.sandboxes.ensure(&context, &sandbox).await?;
        let _used = sandbox.hold();
        let file = FileToWrite { path: path.clone(), mode, append: false, keep_mode: KeepMode::No, body };
        let sizes = sandbox.agent()?.write_files(user, vec![file]).await?;
        failpoint(Point::WriteDone)?;
        let size = sizes.first().copied().unwrap_or(0);
        let detail = json!({ "files": [{ "path": path, "size": size }] });
        let audit = Audit::files(&context, "write_files", &sandbox, detail);
        self.inner.journal.audit(&audit).map_err(|error| error.unrecorded("the file was written"))?;
        isle_fail::pass(Point::WriteAudited);
        Ok(size)
    }

    /// Tells what happens to files of a sandbox, as it happens. The stream ends with the directory, and
    /// with an error when the sandbox ends.
    pub async fn watch(
        &self,
        context: CallContext,
        sandbox: SandboxName,
        path: GuestPath,
        user: GuestUser,
        recursive: bool,
    ) -> Result<BoxStream<'static, Result<FileUpdate>>> {
        let sandbox = self.inner.sandboxes.looked_at(&context, &sandbox).await?;
        let batches = sandbox.agent()?.watch(&path, user, recursive).await?;
        Ok(while_in_use(&sandbox, batches.map(|batch| batch.map(FileUpdate::of))))
    }

    /// A tree of a sandbox as a tar archive; only the paths named, when there are any.
    pub async fn pack_stream(
        &self,
        context: CallContext,
        sandbox: SandboxName,
        path: GuestPath,
        user: GuestUser,
        only: Option<Vec<Vec<u8>>>,
        git_dirs: GitDirs,
    ) -> Result<ByteStream> {
        self.inner.copies.pack_stream(context, sandbox, path, user, only, git_dirs).await
    }

    /// Unpacks a tar archive in a sandbox; nothing is in place before all of it has come and is good.
    pub async fn unpack_stream(
        &self,
        context: CallContext,
        sandbox: SandboxName,
        path: GuestPath,
        user: GuestUser,
        body: ByteStream,
    ) -> Result<CarriedShape> {
        self.inner.copies.unpack_stream(context, sandbox, path, user, body).await
    }

    /// What a tree of a sandbox holds, with the hash of every file.
    pub async fn manifest(
        &self,
        context: CallContext,
        sandbox: SandboxName,
        path: GuestPath,
        user: GuestUser,
    ) -> Result<Vec<ManifestEntry>> {
        self.inner.copies.manifest(context, sandbox, path, user).await
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
        self.inner.copies.prune(context, sandbox, path, user, paths).await
    }
}

/// A stream that counts as use of its sandbox until it ends or is dropped.
pub(crate) fn while_in_use<T: 'static>(
    sandbox: &Arc<Sandbox>,
    stream: impl futures::Stream<Item = T> + Send + 'static,
) -> BoxStream<'static, T> {
    let used = sandbox.hold();
    stream
        .inspect(move |_| {
            let _ = &used;
        })
        .boxed()
}

/// A file that claims to be larger than the disk it is on is mostly hole. Whoever asks for all of it
/// would get nothing but zeros, for hours, and fill a disk of their own.
pub(crate) fn refuse_hollow(path: &GuestPath, stat: &Stat, disk: ByteSize) -> Result<()> {
    let hollow = stat.allocated.is_some_and(|allocated| allocated < stat.size);
    if !hollow || stat.size <= disk.0 {
        return Ok(());
    }
    let size = stat.size;
    Err(Error::new(
        Code::TooLarge,
        format!("{:?} claims {size} bytes on a disk of {disk}: it is mostly empty", path.as_str()),
    )
    .next("read parts of it with `read_file`")
    .next("pack it in the sandbox with `tar --sparse` and copy the archive"))
}
