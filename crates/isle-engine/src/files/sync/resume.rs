//! Syncs over the life of an engine: what is written down of one, and taking up those of an earlier
//! engine whose sandboxes still run.

use std::sync::Arc;

use isle_store::SyncRow;
use isle_trees::Selection;
use isle_wire::GuestUser;
use serde::{Deserialize, Serialize};

use super::{LiveSync, SyncPlan, Syncs};
use crate::files::carry::HostRoots;
use crate::sandbox::{Sandbox, SandboxState};
use isle_core::values::GuestPath;
use isle_core::{Code, Error, Result};

/// What a sync does, as it is stored.
#[derive(Debug, Serialize, Deserialize)]
struct Definition {
    host_path: String,
    path: String,
    root: bool,
    exclude: Vec<String>,
    git: bool,
    ignored: bool,
    poll: bool,
}

impl LiveSync {
    /// Its record.
    pub(crate) fn row(&self) -> Result<SyncRow> {
        let definition = Definition {
            host_path: self.host.shown().display().to_string(),
            path: self.path.absolute(),
            root: self.user == GuestUser::Root,
            exclude: self.selection.exclude.clone(),
            git: self.selection.git,
            ignored: self.selection.ignored,
            poll: self.poll,
        };
        Ok(SyncRow {
            id: self.id.clone(),
            sandbox_id: self.sandbox.id.to_string(),
            definition: serde_json::to_value(definition).map_err(Error::internal)?,
            started_at_ms: self.started_ms,
        })
    }
}

impl Syncs {
    /// Takes up the syncs of an earlier engine. One whose sandbox is gone, or whose directory may no longer
    /// be used, is over.
    pub(crate) fn resume(self: &Arc<Self>) -> Result<()> {
        for row in self.journal.syncs()? {
            let found = self.fleet.named().into_iter().find(|sandbox| sandbox.id.as_str() == row.sandbox_id);
            let living = found.filter(|sandbox| sandbox.state() == SandboxState::Running);
            let resumed = living
                .ok_or_else(|| Error::new(Code::SandboxNotFound, "its sandbox is gone"))
                .and_then(|sandbox| self.resume_one(&row, sandbox));
            if let Err(error) = resumed {
                tracing::info!(sync = row.id, %error, "a sync of an earlier daemon is over");
                self.journal.forget_sync(&row.id);
            }
        }
        Ok(())
    }

    fn resume_one(self: &Arc<Self>, row: &SyncRow, sandbox: Arc<Sandbox>) -> Result<()> {
        let Definition { host_path, path, root, exclude, git, ignored, poll } =
            serde_json::from_value(row.definition.clone()).map_err(Error::internal)?;
        let plan = SyncPlan {
            sandbox,
            path: GuestPath::parse_absolute(&path)?,
            user: if root { GuestUser::Root } else { GuestUser::Sandbox },
            host: HostRoots::new(&self.config.host_roots).find(&host_path)?,
            selection: Selection { exclude, git, ignored },
            poll,
        };
        // Nobody waits for its first copy; how it went is listed.
        self.begin(row.id.clone(), row.started_at_ms, plan).map(drop)
    }
}
