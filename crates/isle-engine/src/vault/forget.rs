//! What becomes of the secrets of sandboxes that are gone, and of runs that are over.

use std::sync::Arc;

use isle_fail::Point;

use super::uses::RunSecrets;
use crate::engine::Inner;
use crate::sandbox::Sandbox;
use crate::values::{Address, RunId};

impl Inner {
    /// A run that is taken over has what an earlier engine gave it.
    pub(crate) fn secrets_of_taken(&self, sandbox: &Sandbox, run: &RunId) -> Option<RunSecrets> {
        let secrets = sandbox.secrets.get()?;
        let has = secrets.uses().values().any(|one| one.runs.contains(run.as_str()));
        has.then(|| RunSecrets { secrets: Arc::clone(secrets), run: run.clone() })
    }

    fn is_going_on(&self, run: &str) -> bool {
        run.parse().ok().and_then(|id| self.runs.get(&id)).is_some_and(|run| !run.state().is_final())
    }

    /// Nothing of a sandbox is left, nor of its workspace.
    pub(crate) fn forget_secrets(&self, sandbox: &Address) {
        crate::lock(&self.vault.uses).remove(sandbox);
    }

    /// A sandbox was destroyed and its workspace stays: nothing is attached any more, and what was once
    /// there as a value stays masked.
    pub(crate) fn detach_all_secrets(&self, address: &Address) {
        let Some(secrets) = crate::lock(&self.vault.uses).get(address).map(Arc::clone) else { return };
        {
            let mut uses = secrets.uses();
            if uses.is_empty() {
                return;
            }
            uses.retain(|_, one| one.ever_exposed);
            for one in uses.values_mut() {
                one.attached = None;
                one.runs.clear();
            }
        }
        if let Err(error) =
            self.journal.store().put_secret_uses(&address.to_string(), &secrets.rows(address), None)
        {
            tracing::warn!(sandbox = %address, %error, "the secrets of a destroyed sandbox stay on record");
        }
        isle_fail::pass(Point::SecretUseForgotten);
    }

    /// After a start: sandboxes that are gone have nothing attached, and runs that are over have nothing.
    pub(crate) fn settle_secrets(&self) {
        for secrets in crate::lock(&self.vault.uses).values() {
            for one in secrets.uses().values_mut() {
                one.runs.retain(|run| self.is_going_on(run));
            }
        }
        let gone: Vec<Address> = crate::lock(&self.vault.uses)
            .iter()
            .filter(|(_, secrets)| secrets.uses().values().any(|one| one.attached.is_some()))
            .map(|(address, _)| address.clone())
            .filter(|address| self.fleet.get(address).is_none())
            .collect();
        for address in gone {
            self.detach_all_secrets(&address);
        }
    }
}
