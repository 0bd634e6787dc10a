//! Secrets of sandboxes that were removed and of runs that have ended.

use std::sync::Arc;

use isle_fail::Point;

use super::Secrets;
use super::uses::RunSecrets;
use crate::sandbox::Sandbox;
use isle_core::values::{Address, RunId};

impl Secrets {
    /// The secrets of a run that an earlier engine started.
    pub(crate) fn secrets_of_taken(&self, sandbox: &Sandbox, run: &RunId) -> Option<RunSecrets> {
        let secrets = sandbox.secrets.get()?;
        let has = secrets.uses().values().any(|one| one.runs.contains(run.as_str()));
        has.then(|| RunSecrets { secrets: Arc::clone(secrets), run: run.clone() })
    }

    fn is_running(&self, run: &str) -> bool {
        run.parse().ok().and_then(|id| self.runs.get(&id)).is_some_and(|run| !run.state().is_final())
    }

    /// The sandbox and its workspace were removed.
    pub(crate) fn forget_secrets(&self, sandbox: &Address) {
        crate::lock(&self.vault.uses).remove(sandbox);
    }

    /// The sandbox was removed and its workspace stays: nothing is attached any more, and values that it had stay
    /// masked.
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
            tracing::warn!(sandbox = %address, %error, "cannot remove the secrets of a destroyed sandbox from the record");
        }
        isle_fail::pass(Point::SecretUseForgotten);
    }

    /// After a start: detaches secrets from sandboxes that no longer exist and from runs that have ended.
    pub(crate) fn settle_secrets(&self) {
        for (address, secrets) in crate::lock(&self.vault.uses).iter() {
            // Its runs are not known until the engine has reconnected.
            if self.fleet.get(address).is_some_and(|sandbox| sandbox.is_reconnecting()) {
                continue;
            }
            for one in secrets.uses().values_mut() {
                one.runs.retain(|run| self.is_running(run));
            }
        }
        let removed: Vec<Address> = crate::lock(&self.vault.uses)
            .iter()
            .filter(|(_, secrets)| secrets.uses().values().any(|one| one.attached.is_some()))
            .map(|(address, _)| address.clone())
            .filter(|address| self.fleet.get(address).is_none())
            .collect();
        for address in removed {
            self.detach_all_secrets(&address);
        }
    }
}
