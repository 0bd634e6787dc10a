//! Wipes that were asked for and are not done yet. They are on record before anything is removed; whoever
//! is next to use the name, or the next start, finishes them first, so no sandbox ever sees what was to go.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use isle_core::clock::wall_clock_ms;
use isle_store::WipeRow;

use super::Sandboxes;
use crate::events::EventKind;
use crate::journal::{Actor, Audit, store_error};
use isle_core::backend::Keep;
use isle_core::values::Address;
use isle_core::{Error, Result};

/// What is to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wipe {
    /// All that belongs to the name: workspace, caches, variables, secrets.
    Volume,
    /// The files in /workspace.
    Workspace,
}

impl Wipe {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Volume => "volume",
            Self::Workspace => "workspace",
        }
    }

    /// As it goes on record.
    pub(crate) fn row(self, address: &Address) -> WipeRow {
        WipeRow { sandbox: address.to_string(), what: self.as_str().to_owned(), asked_at_ms: wall_clock_ms() }
    }
}

/// Those that are not done yet, by address.
#[derive(Debug, Default)]
pub(crate) struct Wipes {
    due: Mutex<HashMap<Address, Wipe>>,
}

impl Wipes {
    pub(crate) fn add(&self, address: &Address, wipe: Wipe) {
        let mut due = crate::lock(&self.due);
        if due.get(address) != Some(&Wipe::Volume) {
            due.insert(address.clone(), wipe);
        }
    }

    pub(crate) fn done(&self, address: &Address) {
        crate::lock(&self.due).remove(address);
    }

    pub(crate) fn is_due(&self, address: &Address, wipe: Wipe) -> bool {
        crate::lock(&self.due).get(address) == Some(&wipe)
    }

    fn volumes(&self) -> Vec<Address> {
        let due = crate::lock(&self.due);
        due.iter().filter(|(_, wipe)| **wipe == Wipe::Volume).map(|(address, _)| address.clone()).collect()
    }
}

impl Sandboxes {
    /// Reads the wipes that an earlier engine did not finish.
    pub(crate) fn load_wipes(&self) -> Result<()> {
        for row in self.journal.store().wipes().map_err(store_error)? {
            match row.sandbox.parse::<Address>() {
                Ok(address) if row.what == Wipe::Workspace.as_str() => {
                    self.wipes.add(&address, Wipe::Workspace);
                }
                // What cannot be read as less is everything.
                Ok(address) => self.wipes.add(&address, Wipe::Volume),
                Err(error) => {
                    tracing::warn!(sandbox = row.sandbox, %error, "a wipe on record has no valid address");
                }
            }
        }
        Ok(())
    }

    /// At a start, when all sandboxes are known: finishes what was begun.
    pub(crate) async fn finish_wipes(self: &Arc<Self>) {
        for address in self.wipes.volumes() {
            let gate = self.fleet.gate(&address);
            let _held = gate.lock().await;
            if let Err(error) = self.finish_wipe(&Actor::engine(), &address).await {
                tracing::warn!(sandbox = %address, %error, "a wipe could not be finished; the next use of the name tries again");
            }
        }
    }

    /// Finishes the wipe of a name whose gate is held, if one was begun. Until that is done, the name cannot
    /// be used.
    pub(crate) async fn finish_wipe(self: &Arc<Self>, actor: &Actor, address: &Address) -> Result<()> {
        if !self.wipes.is_due(address, Wipe::Volume) {
            return Ok(());
        }
        let unfinished = |error: Error| {
            error.next("its workspace is being wiped; the name can be used when that is done: try again")
        };
        let Some(sandbox) = self.fleet.get(address) else {
            return self.wipe_left(actor, address).await.map(drop).map_err(unfinished);
        };
        let how = "its workspace was wiped";
        let audit = Audit::lifecycle(actor, "destroy_sandbox", &sandbox, how);
        self.remove_incarnation(&sandbox, Keep::Nothing, &audit).await.map_err(unfinished)?;
        self.notifier.sandbox(EventKind::SandboxDestroyed, &sandbox, how);
        Ok(())
    }
}
