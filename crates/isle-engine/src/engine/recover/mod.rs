//! What a start finds of an earlier daemon, brought in order: half-made sandboxes are undone, half-removed ones
//! removed, living ones taken over with the runs in them, and everything else is reported as what it is. Doing
//! it twice does no more than doing it once.
//!
//! A flow over several services, so it belongs to none of them: [`Recovery`] has references to those it needs
//! and lives for one start. `undo` removes, `take_over` reconnects to what is on record, `adopt` to what is not.

mod adopt;
mod take_over;
mod undo;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use isle_store::{RunRow, SandboxRow};
use tokio::task::JoinSet;

use crate::admission::tenants::Tenants;
use crate::base::Settings;
use crate::events::Notifier;
use crate::journal::{Journal, namespace_of, store_error};
use crate::run::Runs;
use crate::sandbox::{
    Backends, Fleet, Lease, Sandbox, SandboxState, Sandboxes, SpawnCounts, StoredSpec, unknown_backend,
};
use crate::secrets::Secrets;
use crate::variables::Variables;
use isle_core::backend::{Backend, SandboxSpec};
use isle_core::values::{Address, SandboxId, SandboxName};
use isle_core::{Error, Result};

/// How long the start waits for sandboxes that are being recovered. Those that take longer are recovered
/// while callers are served: one whose agent does not answer delays no other.
const TOGETHER: Duration = Duration::from_secs(2);
/// How long a sandbox without a record may take to answer.
const ADOPTED: Duration = Duration::from_secs(3);

/// One start of an engine, as far as it deals with what an earlier one left.
pub(super) struct Recovery {
    pub(super) settings: Arc<Settings>,
    pub(super) journal: Arc<Journal>,
    pub(super) notifier: Arc<Notifier>,
    pub(super) tenants: Arc<Tenants>,
    pub(super) backends: Arc<Backends>,
    pub(super) fleet: Arc<Fleet>,
    pub(super) spawn_counts: Arc<SpawnCounts>,
    pub(super) variables: Arc<Variables>,
    pub(super) secrets: Arc<Secrets>,
    pub(super) sandboxes: Arc<Sandboxes>,
    pub(super) runs: Arc<Runs>,
}

impl Recovery {
    pub(super) async fn run(self: &Arc<Self>) -> Result<()> {
        let mut rows = self.journal.store().sandboxes().map_err(store_error)?;
        self.rename_children(&mut rows)?;
        self.forget_replaced(&mut rows);
        for row in &rows {
            self.tenants.found_namespace(&namespace_of(&row.namespace));
        }
        let mut unfinished: HashMap<String, Vec<RunRow>> = HashMap::new();
        for run in self.journal.store().unfinished_runs().map_err(store_error)? {
            unfinished.entry(run.sandbox_id.clone()).or_default().push(run);
        }
        let mut counts = self.journal.store().run_counts().map_err(store_error)?;
        let mut known: HashMap<String, SandboxId> = HashMap::new();
        let mut work = JoinSet::new();
        for mut row in rows {
            // More may have been begun since its lease was last written down.
            if let (Some(count), Some(lease)) = (counts.remove(&row.id), row.lease.as_object_mut()) {
                let known = lease.get("runs").and_then(serde_json::Value::as_u64).unwrap_or(0);
                lease.insert("runs".into(), count.max(known).into());
            }
            let runs = unfinished.remove(&row.id).unwrap_or_default();
            if let Ok(id) = row.id.parse() {
                known.insert(row.id.clone(), id);
            }
            let recovery = Arc::clone(self);
            work.spawn(async move {
                let id = row.id.clone();
                (id, recovery.recover_sandbox(row, runs).await)
            });
        }
        let until = tokio::time::Instant::now() + TOGETHER;
        while let Ok(Some(done)) = tokio::time::timeout_at(until, work.join_next()).await {
            let (id, kept) = done.map_err(Error::internal)?;
            if kept.is_none() {
                known.remove(&id);
            }
        }
        if !work.is_empty() {
            tracing::warn!(left = work.len(), "sandboxes do not answer yet; callers are served meanwhile");
            // Nobody waits for these, also not when the engine stops.
            tokio::spawn(async move { while work.join_next().await.is_some() {} });
        }
        let mut known: Vec<SandboxId> = known.into_values().collect();
        // Runs of sandboxes nobody remembers.
        for run in unfinished.into_values().flatten() {
            self.runs.lose(&run, "its sandbox disappeared");
        }
        for backend in self.backends.all() {
            for (id, spec) in backend.unrecorded(&known) {
                let adopting = tokio::time::timeout(ADOPTED, self.adopt(backend, id.clone(), spec)).await;
                known.extend(adopting.unwrap_or_else(|_| {
                    tracing::warn!(%id, "a sandbox without a record did not answer; it is left alone");
                    Some(id)
                }));
            }
        }
        for backend in self.backends.all() {
            match backend.sweep(&known).await {
                Ok(removed) => {
                    for what in removed {
                        tracing::info!(backend = %backend.name(), what, "removed a leftover");
                    }
                }
                Err(error) => {
                    tracing::warn!(backend = %backend.name(), %error, "leftovers could not be removed")
                }
            }
        }
        Ok(())
    }

    /// Gives children that an earlier version recorded by a name of their own the one they have now, so that
    /// their old name is free.
    fn rename_children(&self, rows: &mut [SandboxRow]) -> Result<()> {
        for row in rows {
            let Ok((_, stored)) = self.backend_of(row) else { continue };
            let Some(child) = &stored.spec.child else { continue };
            let name = child.name.name.to_string();
            if row.name.as_ref().is_some_and(|recorded| *recorded != name) {
                self.journal.store().rename_sandbox(&row.id, &name).map_err(store_error)?;
                tracing::info!(was = row.name, name, "a child has the name of its parent in its own now");
                row.name = Some(name);
            }
        }
        Ok(())
    }

    /// Leaves out records of failed sandboxes that others are in the place of already.
    fn forget_replaced(&self, rows: &mut Vec<SandboxRow>) {
        let in_state =
            |row: &SandboxRow, state: SandboxState| row.state == state.as_str() && row.name.is_some();
        let failed: HashSet<(String, Option<String>)> = rows
            .iter()
            .filter(|row| in_state(row, SandboxState::Failed))
            .map(|row| (row.namespace.clone(), row.name.clone()))
            .collect();
        let replaced: HashSet<(String, Option<String>)> = rows
            .iter()
            .filter(|row| {
                in_state(row, SandboxState::Running)
                    && failed.contains(&(row.namespace.clone(), row.name.clone()))
            })
            .filter(|row| self.journal.store().forget_replaced(&row.id).is_ok())
            .map(|row| (row.namespace.clone(), row.name.clone()))
            .collect();
        rows.retain(|row| {
            !in_state(row, SandboxState::Failed)
                || !replaced.contains(&(row.namespace.clone(), row.name.clone()))
        });
    }

    /// Takes one sandbox over, or ends it. Returns its id when something of it must stay.
    async fn recover_sandbox(self: &Arc<Self>, row: SandboxRow, runs: Vec<RunRow>) -> Option<SandboxId> {
        let id: SandboxId = match row.id.parse() {
            Ok(id) => id,
            Err(_) => {
                tracing::warn!(id = row.id, "a sandbox record has no valid id and is left alone");
                return None;
            }
        };
        let outcome = match (row.kind.as_str(), row.state.as_str()) {
            ("named", "running" | "failed") => self.take_over(&id, &row, &runs).await,
            // A record that was put back to an earlier state, by damage or by hand.
            ("named", "creating") if self.is_confirmed(&id, &row) => self.take_over(&id, &row, &runs).await,
            ("named", state @ ("creating" | "destroying")) => {
                let why = "it was being made or removed when the daemon died";
                self.undo(&id, &row, state, &runs, why).await.map(|()| None)
            }
            ("one_shot", state) => self.undo(&id, &row, state, &runs, "the daemon died").await.map(|()| None),
            (kind, state) => Err(Error::internal(format!("its record says {kind:?}, {state:?}"))),
        };
        match outcome {
            Ok(kept) => kept,
            Err(error) => {
                tracing::warn!(id = %id, %error, "a sandbox could not be recovered; the next start tries again");
                for run in &runs {
                    self.runs.lose(run, "the daemon died");
                }
                self.leave_for_later(&id, &row);
                Some(id)
            }
        }
    }

    /// What could not be removed now is removed by the next call for that name.
    fn leave_for_later(&self, id: &SandboxId, row: &SandboxRow) {
        if !matches!(row.state.as_str(), "creating" | "destroying") {
            return;
        }
        if let Ok((backend, stored)) = self.backend_of(row)
            && let Ok(address) = address_of(row, &stored.spec)
        {
            let mut sandbox = Sandbox::new(id.clone(), address, stored, backend, row.created_at_ms);
            sandbox.lease = Lease::restored(sandbox.terms, &row.lease);
            sandbox.set_state(SandboxState::Destroying);
            self.fleet.put(Arc::new(sandbox));
        }
    }

    /// Whether the backend knows that a sandbox was recorded as running.
    fn is_confirmed(&self, id: &SandboxId, row: &SandboxRow) -> bool {
        self.backend_of(row).is_ok_and(|(backend, _)| backend.is_confirmed(id))
    }

    /// The backend that created a sandbox.
    fn backend_of(&self, row: &SandboxRow) -> Result<(Arc<dyn Backend>, StoredSpec)> {
        let stored: StoredSpec = serde_json::from_value(row.spec.clone()).map_err(Error::internal)?;
        let backend = self
            .backends
            .all()
            .iter()
            .find(|backend| backend.name() == stored.backend)
            .ok_or_else(|| unknown_backend(&stored.backend, self.backends.all()))?;
        Ok((Arc::clone(backend), stored))
    }
}

/// What a sandbox is called. A child is called by its record of where it belongs: the row of one that an
/// earlier version made has a name without that of its parent.
fn address_of(row: &SandboxRow, spec: &SandboxSpec) -> Result<Address> {
    match &spec.child {
        Some(child) => Ok(child.name.clone()),
        None => {
            let name: SandboxName = row.name.as_deref().unwrap_or(&row.id).parse()?;
            Ok(Address::new(namespace_of(&row.namespace), name))
        }
    }
}
