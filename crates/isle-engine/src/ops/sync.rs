//! Live syncs: `sync_start`, `sync_stop`, `sync_list`.

use super::Handler;
use crate::context::CallContext;
use crate::engine::Engine;
use crate::failpoint;
use crate::files::carry::HostRoots;
use crate::files::sync::{SyncPlan, SyncShape};
use crate::journal::Audit;
use isle_api::Operation;
use isle_api::inputs::{patterns, sandbox_or_default};
use isle_api::ops::sync::{ListInput, ListOutput, StartInput, StopInput, SyncList, SyncStart, SyncStop};
use isle_core::Result;
use isle_core::values::GuestPath;
use isle_fail::Point;
use isle_trees::Selection;
use serde_json::json;

impl Handler for SyncStart {
    async fn call(engine: Engine, context: CallContext, input: StartInput) -> Result<SyncShape> {
        let exclude = patterns(input.exclude)?;
        context.operator_only("copying from the host's own directories")?;
        let host = HostRoots::new(&engine.inner.config.host_roots).find(&input.host_path)?;
        // Looked at before a sandbox is made for nothing.
        host.open()?;
        let sandbox = engine.inner.sandboxes.ensure(&context, &sandbox_or_default(input.sandbox)).await?;
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
        let job = engine.inner.syncs.start(&context, plan).await?;
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

impl Handler for SyncStop {
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

impl Handler for SyncList {
    async fn call(engine: Engine, context: CallContext, _: ListInput) -> Result<ListOutput> {
        Ok(ListOutput { syncs: engine.inner.syncs.list(&context.namespace) })
    }
}
