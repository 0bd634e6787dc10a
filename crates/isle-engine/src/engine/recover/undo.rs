//! Removing what an earlier daemon left half made or half removed.

use isle_fail::Point;
use isle_store::{RunRow, SandboxRow};

use super::Recovery;
use crate::failpoint;
use crate::journal::{Audit, namespace_of};
use crate::sandbox::{SandboxState, Wipe};
use isle_core::Result;
use isle_core::backend::Keep;
use isle_core::values::{Address, SandboxId, SandboxName};

impl Recovery {
    /// Removes what is left of a sandbox that was being made or removed, or that was a one-shot.
    pub(super) async fn undo(
        &self,
        id: &SandboxId,
        row: &SandboxRow,
        state: &str,
        runs: &[RunRow],
        why: &str,
    ) -> Result<()> {
        for run in runs {
            self.runs.lose(run, why);
        }
        let half_made = state == SandboxState::Creating.as_str();
        let child_volume = self
            .backend_of(row)
            .ok()
            .and_then(|(_, stored)| stored.spec.child.is_some().then_some(stored.spec.volume).flatten());
        let wiped = self.wiped_by_record(row);
        let keep = match row.kind.as_str() {
            "named" if wiped.is_some() => Keep::Nothing,
            // A child leaves nothing: nobody could ask for its volume.
            "named" if child_volume.is_some() => Keep::Nothing,
            "named" if half_made => Keep::WhatWasBefore,
            "named" => Keep::Workspace,
            _ => Keep::Nothing,
        };
        match self.backend_of(row) {
            Ok((backend, _)) => backend.destroy(id, keep).await?,
            Err(_) => {
                for backend in self.backends.all() {
                    backend.destroy(id, keep).await?;
                }
            }
        }
        if let Some(volume) = child_volume.or_else(|| wiped.clone()) {
            for backend in self.backends.all() {
                backend.wipe(&volume).await?;
            }
        }
        failpoint(Point::RecoverUndone)?;
        let action = if half_made { "undo_create" } else { "finish_destroy" };
        let audit = Audit::stored(action, row, "half done when the daemon died");
        match &wiped {
            Some(address) => {
                let _held = self.variables.hold();
                self.journal.wipe_sandbox(id, address, &audit)?;
                self.sandboxes.wipes().done(address);
                self.variables.forget(address);
                self.spawn_counts.forget(address);
                self.secrets.forget_secrets(address);
            }
            None if row.kind == "named" && !half_made => self.journal.sandbox_destroyed(id, &audit)?,
            None => self.journal.forget_sandbox(id, (row.kind == "named").then_some(&audit))?,
        }
        isle_fail::pass(Point::RecoverUndoForgotten);
        if row.kind == "named" && !half_made {
            self.notifier.sandbox_removed(row);
        }
        Ok(())
    }

    /// The address of a sandbox that was being destroyed together with its volume.
    fn wiped_by_record(&self, row: &SandboxRow) -> Option<Address> {
        let name: SandboxName = row.name.as_deref()?.parse().ok()?;
        let address = Address::new(namespace_of(&row.namespace), name);
        let is_due = row.state == SandboxState::Destroying.as_str()
            && self.sandboxes.wipes().is_due(&address, Wipe::Volume);
        is_due.then_some(address)
    }
}
