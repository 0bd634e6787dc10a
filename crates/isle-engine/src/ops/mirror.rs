//! `sync_push` and `sync_pull`: a directory of a sandbox made like one of the host, and the other way
//! round, once.

use isle_trees::Selection;
use schemars::JsonSchema;
use serde::Deserialize;

use super::inputs::{User, patterns, sandbox_or_default};
use super::{Effect, Method, Operation, Route, Toolset};
use crate::carry::{HostRoots, Mirror, MirroredShape};
use crate::context::CallContext;
use crate::engine::Engine;
use crate::error::Result;
use crate::values::{GuestPath, SandboxName};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Input {
    sandbox: Option<SandboxName>,
    /// Directory of the host: absolute, below one of the configured host roots.
    host_path: String,
    /// Directory of the sandbox, default /workspace.
    path: Option<GuestPath>,
    /// Patterns as in .gitignore.
    exclude: Option<Vec<String>>,
    /// With the .git directory.
    git: Option<bool>,
    /// With what .gitignore files leave out.
    ignored: Option<bool>,
    /// Remove what is only on the side that changes.
    delete: Option<bool>,
    /// Only say what would be done.
    dry_run: Option<bool>,
    user: Option<User>,
}

impl Input {
    fn read(self, engine: &Engine, context: &CallContext) -> Result<(SandboxName, Mirror)> {
        context.operator_only("copying between the host's own directories and a sandbox")?;
        let mirror = Mirror {
            host: HostRoots::new(&engine.inner.config.host_roots).find(&self.host_path)?,
            path: self.path.unwrap_or_else(GuestPath::workspace),
            user: self.user.unwrap_or_default().into(),
            selection: Selection {
                exclude: patterns(self.exclude)?,
                git: self.git.unwrap_or(false),
                ignored: self.ignored.unwrap_or(false),
            },
            delete: self.delete.unwrap_or(false),
            dry_run: self.dry_run.unwrap_or(false),
        };
        mirror.selector()?;
        Ok((sandbox_or_default(self.sandbox), mirror))
    }
}

pub(super) struct SyncPush;

impl Operation for SyncPush {
    type Input = Input;
    type Output = MirroredShape;
    const NAME: &'static str = "sync_push";
    const TITLE: &'static str = "Push a directory";
    const DESCRIPTION: &'static str = "Make a directory of a sandbox like one of the host: only what differs is sent. .gitignore counts, .git stays out unless git is set.";
    const ROUTE: Route = Route { method: Method::Post, path: "/sandboxes/{sandbox}/sync/push" };
    const TOOLSET: Toolset = Toolset::Files;
    const EFFECT: Effect = Effect::Changes;

    async fn call(engine: Engine, context: CallContext, input: Input) -> Result<MirroredShape> {
        let (name, mirror) = input.read(&engine, &context)?;
        // Looked at before a sandbox is made for nothing.
        mirror.host.open()?;
        let sandbox = engine.inner.ensure(&context, &name).await?;
        let _used = sandbox.hold();
        engine.push(&context, &sandbox, &mirror).await
    }
}

pub(super) struct SyncPull;

impl Operation for SyncPull {
    type Input = Input;
    type Output = MirroredShape;
    const NAME: &'static str = "sync_pull";
    const TITLE: &'static str = "Pull a directory";
    const DESCRIPTION: &'static str = "Make a directory of the host like one of a sandbox: only what differs is sent. Its .gitignore counts, .git stays out unless git is set.";
    const ROUTE: Route = Route { method: Method::Post, path: "/sandboxes/{sandbox}/sync/pull" };
    const TOOLSET: Toolset = Toolset::Files;
    const EFFECT: Effect = Effect::Changes;

    async fn call(engine: Engine, context: CallContext, input: Input) -> Result<MirroredShape> {
        let (name, mirror) = input.read(&engine, &context)?;
        let sandbox = engine.inner.looked_at(&context, &name).await?;
        let _used = sandbox.hold();
        engine.pull(&context, &sandbox, &mirror).await
    }
}
