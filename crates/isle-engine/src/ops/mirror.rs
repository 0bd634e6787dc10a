//! `sync_push` and `sync_pull`: a directory of a sandbox made like one of the host, and the other way
//! round, once.

use super::Handler;
use crate::context::CallContext;
use crate::engine::Engine;
use crate::files::carry::{HostRoots, Mirror, git_dirs};
use isle_api::inputs::{patterns, sandbox_or_default};
use isle_api::ops::mirror::{Input, MirroredShape, SyncPull, SyncPush};
use isle_core::values::{GuestPath, SandboxName};
use isle_core::{Code, Error, Result};
use isle_trees::Selection;

/// What is to be mirrored, checked.
fn mirror_of(input: Input, engine: &Engine, context: &CallContext) -> Result<(SandboxName, Mirror)> {
    context.operator_only("copying between the host's own directories and a sandbox")?;
    let mirror = Mirror {
        host: HostRoots::new(&engine.inner.config.host_roots).find(&input.host_path)?,
        path: input.path.unwrap_or_else(GuestPath::workspace),
        user: input.user.unwrap_or_default().into(),
        selection: Selection {
            exclude: patterns(input.exclude)?,
            git: input.git.unwrap_or(false),
            ignored: input.ignored.unwrap_or(false),
        },
        git_dirs: git_dirs(input.git_dirs),
        delete: input.delete.unwrap_or(false),
        dry_run: input.dry_run.unwrap_or(false),
    };
    mirror.selector()?;
    Ok((sandbox_or_default(input.sandbox), mirror))
}

impl Handler for SyncPush {
    async fn call(engine: Engine, context: CallContext, input: Input) -> Result<MirroredShape> {
        if input.git_dirs.is_some() {
            return Err(Error::new(Code::InvalidArgument, "`git_dirs` has no meaning for a push")
                .next("leave it out; `git` sends the .git directory"));
        }
        let (name, mirror) = mirror_of(input, &engine, &context)?;
        // Looked at before a sandbox is made for nothing.
        mirror.host.open()?;
        let sandbox = engine.inner.sandboxes.ensure(&context, &name).await?;
        let _used = sandbox.hold();
        engine.inner.copies.push(&context, &sandbox, &mirror).await
    }
}

impl Handler for SyncPull {
    async fn call(engine: Engine, context: CallContext, input: Input) -> Result<MirroredShape> {
        let (name, mirror) = mirror_of(input, &engine, &context)?;
        let sandbox = engine.inner.sandboxes.looked_at(&context, &name).await?;
        let _used = sandbox.hold();
        engine.inner.copies.pull(&context, &name, &sandbox, &mirror).await
    }
}
