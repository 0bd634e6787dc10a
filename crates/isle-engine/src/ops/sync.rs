//! Live syncs: `sync_start`, `sync_stop`, `sync_list`.

use isle_fail::Point;
use isle_trees::Selection;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::inputs::{User, patterns, sandbox_or_default};
use super::{Effect, Method, Operation, Route, Toolset};
use crate::carry::HostRoots;
use crate::context::CallContext;
use crate::engine::Engine;
use crate::error::Result;
use crate::failpoint;
use crate::journal::Audit;
use crate::sync::{SyncPlan, SyncShape};
use crate::values::{GuestPath, SandboxName};

pub(super) struct SyncStart;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct StartInput {
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
    /// Look for changes twice a second, for file systems that do not tell.
    poll: Option<bool>,
    user: Option<User>,
}

impl Operation for SyncStart {
    type Input = StartInput;
    type Output = SyncShape;
    const NAME: &'static str = "sync_start";
    const TITLE: &'static str = "Start a live sync";
    const DESCRIPTION: &'static str = "Copy a directory of the host into a sandbox and keep it in step: changes and removals on the host follow within a second. Files only in the sandbox stay.";
    const ROUTE: Route = Route { method: Method::Post, path: "/syncs" };
    const TOOLSET: Toolset = Toolset::Files;
    const EFFECT: Effect = Effect::Changes;

    async fn call(engine: Engine, context: CallContext, input: StartInput) -> Result<SyncShape> {
        let exclude = patterns(input.exclude)?;
        context.operator_only("copying from the host's own directories")?;
        let host = HostRoots::new(&engine.inner.config.host_roots).find(&input.host_path)?;
        // Looked at before a sandbox is made for nothing.
        host.open()?;
        let sandbox = engine.inner.ensure(&context, &sandbox_or_default(input.sandbox)).await?;
        let plan = SyncPlan {
            sandbox: sandbox.clone(),
            path: input.path.unwrap_or_else(GuestPath::workspace),
            user: input.user.unwrap_or_default().into(),
            host,
            selection: Selection {
                exclude,
                git: input.git.unwrap_or(false),
                ignored: input.ignored.unwrap_or(false),
            },
            poll: input.poll.unwrap_or(false),
        };
        let job = engine.inner.start_sync(&context, plan).await?;
        let shape = job.shape();
        let started = async {
            failpoint(Point::SyncStarted)?;
            let detail = json!({ "sync": shape.sync, "host_path": shape.host_path, "path": shape.path });
            let audit = Audit::files(&context, Self::NAME, &sandbox, detail);
            engine.inner.journal.sync_begins(&job.row()?, &audit)
        };
        if let Err(error) = started.await {
            // What could not be recorded does not go on unseen.
            engine.inner.syncs.stop(&sandbox.namespace, &shape.sync).await.ok();
            return Err(error);
        }
        isle_fail::pass(Point::SyncAudited);
        Ok(shape)
    }
}

pub(super) struct SyncStop;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct StopInput {
    /// Its name, as sync_start and sync_list tell it.
    sync: String,
}

impl Operation for SyncStop {
    type Input = StopInput;
    type Output = SyncShape;
    const NAME: &'static str = "sync_stop";
    const TITLE: &'static str = "Stop a live sync";
    const DESCRIPTION: &'static str = "End a live sync. What it copied stays in the sandbox.";
    const ROUTE: Route = Route { method: Method::Delete, path: "/syncs/{sync}" };
    const TOOLSET: Toolset = Toolset::Files;
    const EFFECT: Effect = Effect::Idempotent;

    async fn call(engine: Engine, context: CallContext, input: StopInput) -> Result<SyncShape> {
        let (sandbox, shape) = engine.inner.syncs.stop(&context.namespace, &input.sync).await?;
        let detail = json!({
            "sync": shape.sync, "files": shape.files_sent, "bytes": shape.bytes_sent, "removed": shape.removed,
        });
        let audit = Audit::files(&context, Self::NAME, &sandbox, detail);
        engine
            .inner
            .journal
            .sync_ends(&shape.sync, &audit)
            .map_err(|error| error.unrecorded("the sync was stopped"))?;
        Ok(shape)
    }
}

pub(super) struct SyncList;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ListInput {}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct ListOutput {
    /// Also those that have ended, the last few.
    syncs: Vec<SyncShape>,
}

impl Operation for SyncList {
    type Input = ListInput;
    type Output = ListOutput;
    const NAME: &'static str = "sync_list";
    const TITLE: &'static str = "List live syncs";
    const DESCRIPTION: &'static str =
        "Live syncs with what they have sent and removed, and why some are over.";
    const ROUTE: Route = Route { method: Method::Get, path: "/syncs" };
    const TOOLSET: Toolset = Toolset::Files;
    const EFFECT: Effect = Effect::Reads;

    async fn call(engine: Engine, context: CallContext, _: ListInput) -> Result<ListOutput> {
        Ok(ListOutput { syncs: engine.inner.syncs.list(&context.namespace) })
    }
}
