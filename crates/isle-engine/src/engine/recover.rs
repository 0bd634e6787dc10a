//! What a start finds of an earlier engine: half-made sandboxes are undone, half-removed ones
//! removed, living ones taken over with the runs in them, everything else told as it is. Doing it
//! twice does no more than doing it once.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream;
use isle_fail::Point;
use isle_store::{RunRow, SandboxRow, wall_clock_ms};
use isle_wire::RunEntry;

use super::Inner;
use crate::agent::ExecInput;
use crate::backend::{Backend, Found, Keep, SandboxSpec};
use crate::error::{Error, Result};
use crate::events::{EventKind, secret_values};
use crate::failpoint;
use crate::journal::{Actor, Audit, namespace_of, store_error};
use crate::ops::shapes::CommandRecord;
use crate::pipeline::Validated;
use crate::run::{CommandText, Job, Run, RunKind};
use crate::sandbox::{Lease, Made, Origin, Sandbox, SandboxState, Settings, StoredSpec, Terms, fingerprint};
use crate::values::{Address, RunId, SandboxId, SandboxName};

/// Sandboxes looked at side by side.
const AT_ONCE: usize = 16;
/// How often a sandbox is asked for before it counts as dead, and the pause between.
const TRIES: u32 = 4;
const PAUSE: Duration = Duration::from_millis(250);
const SIGKILL: i32 = 9;

impl Inner {
    pub(super) async fn recover(self: &Arc<Self>) -> Result<()> {
        let mut rows = self.journal.store().sandboxes().map_err(store_error)?;
        self.forget_replaced(&mut rows);
        for row in &rows {
            self.found_namespace(&namespace_of(&row.namespace));
        }
        let mut unfinished: HashMap<String, Vec<RunRow>> = HashMap::new();
        for run in self.journal.store().unfinished_runs().map_err(store_error)? {
            unfinished.entry(run.sandbox_id.clone()).or_default().push(run);
        }
        let mut counts = self.journal.store().run_counts().map_err(store_error)?;
        let work: Vec<_> = rows
            .into_iter()
            .map(|mut row| {
                // More may have been begun since its lease was last written down.
                if let (Some(count), Some(lease)) = (counts.remove(&row.id), row.lease.as_object_mut()) {
                    let known = lease.get("runs").and_then(serde_json::Value::as_u64).unwrap_or(0);
                    lease.insert("runs".into(), count.max(known).into());
                }
                let runs = unfinished.remove(&row.id).unwrap_or_default();
                self.recover_sandbox(row, runs)
            })
            .collect();
        let mut known: Vec<SandboxId> =
            stream::iter(work).buffer_unordered(AT_ONCE).filter_map(|kept| async { kept }).collect().await;
        // Runs of sandboxes nobody remembers.
        for run in unfinished.into_values().flatten() {
            self.lose(&run, "its sandbox disappeared");
        }
        for backend in &self.backends {
            for (id, spec) in backend.strays(&known) {
                known.extend(self.adopt(backend, id, spec).await);
            }
        }
        for backend in &self.backends {
            match backend.sweep(&known).await {
                Ok(removed) => {
                    for what in removed {
                        tracing::info!(backend = backend.name(), what, "removed a leftover");
                    }
                }
                Err(error) => {
                    tracing::warn!(backend = backend.name(), %error, "leftovers could not be removed")
                }
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
            ("named", "creating") if self.backends.iter().any(|backend| backend.is_confirmed(&id)) => {
                self.take_over(&id, &row, &runs).await
            }
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
                    self.lose(run, "the daemon died");
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
        let Some(Ok(name)) = row.name.as_deref().map(str::parse::<SandboxName>) else { return };
        if let Ok((backend, stored)) = self.backend_of(row) {
            let address = Address::new(namespace_of(&row.namespace), name);
            let mut sandbox = Sandbox::new(id.clone(), address, stored, backend, row.created_at_ms);
            sandbox.lease = Lease::restored(sandbox.terms, &row.lease);
            sandbox.set_state(SandboxState::Destroying);
            self.fleet.put(Arc::new(sandbox));
        }
    }

    /// Removes what is left of a sandbox that was being made or removed, or that was a one-shot.
    async fn undo(
        &self,
        id: &SandboxId,
        row: &SandboxRow,
        state: &str,
        runs: &[RunRow],
        why: &str,
    ) -> Result<()> {
        for run in runs {
            self.lose(run, why);
        }
        let half_made = state == SandboxState::Creating.as_str();
        let child_volume = self
            .backend_of(row)
            .ok()
            .and_then(|(_, stored)| stored.spec.child.is_some().then_some(stored.spec.volume).flatten());
        let keep = match row.kind.as_str() {
            // A child leaves nothing: nobody could ask for its volume.
            "named" if child_volume.is_some() => Keep::Nothing,
            "named" if half_made => Keep::WhatWasBefore,
            "named" => Keep::Workspace,
            _ => Keep::Nothing,
        };
        match self.backend_of(row) {
            Ok((backend, _)) => backend.destroy(id, keep).await?,
            Err(_) => {
                for backend in &self.backends {
                    backend.destroy(id, keep).await?;
                }
            }
        }
        if let Some(volume) = child_volume {
            for backend in &self.backends {
                backend.wipe(&volume).await?;
            }
        }
        failpoint(Point::RecoverUndone)?;
        let action = if half_made { "undo_create" } else { "finish_destroy" };
        let audit = Audit::stored(action, row, "half done when the daemon died");
        self.journal.forget_sandbox(id, (row.kind == "named").then_some(&audit))?;
        isle_fail::pass(Point::RecoverUndoForgotten);
        if row.kind == "named" && !half_made {
            self.tell_removed(row);
        }
        Ok(())
    }

    async fn take_over(
        self: &Arc<Self>,
        id: &SandboxId,
        row: &SandboxRow,
        runs: &[RunRow],
    ) -> Result<Option<SandboxId>> {
        let (backend, stored) = self.backend_of(row)?;
        let name: SandboxName = row.name.as_deref().unwrap_or(&row.id).parse()?;
        let address = Address::new(namespace_of(&row.namespace), name.clone());
        let incarnation = || {
            let (id, address) = (id.clone(), address.clone());
            let mut sandbox =
                Sandbox::new(id, address, stored.clone(), Arc::clone(&backend), row.created_at_ms);
            sandbox.lease = Lease::restored(sandbox.terms, &row.lease);
            Arc::new(sandbox)
        };
        let reached = if row.state == SandboxState::Failed.as_str() {
            None
        } else {
            self.reach(&incarnation, &row.anchor).await.unwrap_or_else(|error| {
                // Whoever cannot be spoken to is of no use to anybody: the next call builds it anew.
                tracing::warn!(sandbox = %name, %error, "the sandbox could not be taken over");
                None
            })
        };
        if let Some((sandbox, anchor)) = reached {
            self.note_drift(&sandbox)?;
            self.restore_pause(&sandbox).await;
            if row.state == SandboxState::Creating.as_str() {
                let audit =
                    Audit::lifecycle(&Actor::engine(), "adopt_sandbox", &sandbox, "its record was too old");
                self.journal.sandbox_running(&sandbox, anchor, &audit)?;
            }
            sandbox.set_state(SandboxState::Running);
            self.fleet.put(Arc::clone(&sandbox));
            self.take_over_runs(&sandbox, runs).await;
            isle_fail::pass(Point::RecoverRunsTaken);
            tracing::info!(sandbox = %name, runs = runs.len(), "took the sandbox over");
            return Ok(Some(id.clone()));
        }
        if row.state == SandboxState::Failed.as_str()
            && let Err(error) = backend.destroy(id, Keep::Workspace).await
        {
            // One that was being replaced may still live, though it is nobody's any more. Whoever builds it
            // anew tries again.
            tracing::warn!(sandbox = %name, %error, "what is left of a failed sandbox could not be removed");
        }
        let sandbox = incarnation();
        if let Ok(Some(containment)) = serde_json::from_value(row.containment.clone()) {
            sandbox.set_containment(containment);
        }
        sandbox.set_state(SandboxState::Failed);
        for run in runs {
            self.lose(run, "the sandbox died");
        }
        if row.state != SandboxState::Failed.as_str() {
            self.journal.sandbox_failed(&sandbox, "it was dead when the daemon started");
            self.tell_sandbox(EventKind::SandboxLost, &sandbox, "it was dead when the daemon started");
            isle_fail::pass(Point::RecoverFailureRecorded);
        }
        self.fleet.put_unless_there(sandbox);
        Ok(Some(id.clone()))
    }

    /// Speaks to a sandbox an earlier engine made; `None` when it is dead. An error on the way is not
    /// yet its death: it is tried again.
    async fn reach(
        self: &Arc<Self>,
        incarnation: &(impl Fn() -> Arc<Sandbox> + Sync),
        anchor: &serde_json::Value,
    ) -> Result<Option<(Arc<Sandbox>, serde_json::Value)>> {
        let mut tries = 1;
        loop {
            let sandbox = incarnation();
            let reached = async {
                let found = sandbox.backend.reconnect(&sandbox.id, &sandbox.spec, anchor).await?;
                let Found::Alive(created) = found else { return Ok(None) };
                let anchor = created.anchor.clone();
                self.connect(&sandbox, created, Made::Earlier).await?;
                failpoint(Point::RecoverConnected)?;
                Ok(Some((Arc::clone(&sandbox), anchor)))
            };
            match reached.await {
                Err(error) if tries < TRIES => {
                    tracing::warn!(sandbox = %sandbox.name, %error, "the sandbox did not answer; trying again");
                    tries += 1;
                    tokio::time::sleep(PAUSE).await;
                }
                other => return other,
            }
        }
    }

    /// Takes a living sandbox over that no record speaks of: the database was lost or is an old copy.
    /// Returns its id when it must stay.
    async fn adopt(
        self: &Arc<Self>,
        backend: &Arc<dyn Backend>,
        id: SandboxId,
        spec: SandboxSpec,
    ) -> Option<SandboxId> {
        let name = spec.child.as_ref().map(|child| child.name.clone()).or_else(|| spec.volume.clone())?;
        let recorded = self.fleet.get(&name);
        if recorded.as_ref().is_some_and(|sandbox| sandbox.state() == SandboxState::Running) {
            return None;
        }
        // How long it was to live is not in the backend's record.
        let (origin, terms) = (Origin::Explicit, Terms::default());
        let (profile, grants, authority) = (None, Vec::new(), None);
        let backend_name = backend.name().to_owned();
        let stored = StoredSpec { origin, backend: backend_name, spec, terms, profile, grants, authority };
        let incarnation = || {
            let (id, name) = (id.clone(), name.clone());
            // A volume is called as its sandbox is, namespace included.
            Arc::new(Sandbox::new(id, name, stored.clone(), Arc::clone(backend), wall_clock_ms()))
        };
        let (sandbox, anchor) = match self.reach(&incarnation, &serde_json::Value::Null).await {
            Ok(reached) => reached?,
            Err(error) => {
                tracing::warn!(sandbox = %name, %error, "a sandbox without a record did not answer; it is left alone");
                return Some(id);
            }
        };
        if let Some(recorded) = recorded {
            // Another incarnation that died, of which less is left than of this one.
            let audit = Audit::lifecycle(&Actor::engine(), "replace_sandbox", &recorded, "another one lives");
            if let Err(error) = self.remove_incarnation(&recorded, Keep::Workspace, &audit).await {
                tracing::warn!(sandbox = %name, %error, "a dead sandbox is in the way of a living one");
                return Some(id);
            }
        }
        let audit = Audit::lifecycle(&Actor::engine(), "adopt_sandbox", &sandbox, "its record was lost");
        if let Err(error) = self.journal.sandbox_adopted(&sandbox, anchor, &audit) {
            tracing::warn!(sandbox = %name, %error, "a sandbox without a record could not be recorded; it is left alone");
            return Some(id);
        }
        isle_fail::pass(Point::RecoverAdopted);
        sandbox.set_state(SandboxState::Running);
        self.found_namespace(&sandbox.namespace);
        self.fleet.put(Arc::clone(&sandbox));
        self.take_over_runs(&sandbox, &[]).await;
        tracing::warn!(sandbox = %name, "took a sandbox over whose record was lost");
        Some(id)
    }

    /// A sandbox made from the configuration follows it: it is made anew when nothing runs in it.
    fn note_drift(&self, sandbox: &Sandbox) -> Result<()> {
        if sandbox.origin == Origin::Defaults {
            let now = Settings::default().spec(&self.current(), Some(sandbox.address()))?;
            if fingerprint(&now) != sandbox.fingerprint {
                sandbox.set_drifted();
            }
        }
        Ok(())
    }

    async fn take_over_runs(self: &Arc<Self>, sandbox: &Arc<Sandbox>, rows: &[RunRow]) {
        let known = match sandbox.agent() {
            Ok(agent) => agent.runs().await,
            Err(error) => Err(error),
        };
        let known = known.unwrap_or_else(|error| {
            tracing::warn!(sandbox = %sandbox.name, %error, "the agent did not tell its runs");
            Vec::new()
        });
        for row in rows {
            let taken = if known.iter().any(|entry| entry.run == row.id) {
                self.take_over_run(sandbox, row).await
            } else {
                Err(Error::internal("the agent does not know it"))
            };
            if taken.is_err() {
                self.lose(row, "the daemon died");
            }
        }
        for entry in known.iter().filter(|entry| !rows.iter().any(|row| row.id == entry.run)) {
            self.take_in_run(sandbox, entry).await;
        }
    }

    /// A run the agent knows and no open record speaks of.
    async fn take_in_run(self: &Arc<Self>, sandbox: &Arc<Sandbox>, entry: &RunEntry) {
        let Ok(id) = entry.run.parse::<RunId>() else { return };
        let Ok(agent) = sandbox.agent() else { return };
        match self.journal.run(&id) {
            // Its record was lost.
            Ok(None) => {
                if let Ok(row) = self.journal.adopt_run(sandbox, &entry.run)
                    && self.take_over_run(sandbox, &row).await.is_err()
                {
                    self.lose(&row, "its record was lost");
                }
            }
            // Its end is recorded, but the agent was not told to forget it.
            Ok(Some(_)) if entry.ended => drop(agent.forget(&entry.run).await),
            // It was told as lost: so be it.
            Ok(Some(_)) => drop(agent.signal(&entry.run, SIGKILL, true).await),
            Err(error) => {
                tracing::warn!(run = entry.run, %error, "a run could not be looked up; it is left alone")
            }
        }
    }

    /// Follows a run that is going on, or ended while no daemon was there to see it.
    async fn take_over_run(self: &Arc<Self>, sandbox: &Arc<Sandbox>, row: &RunRow) -> Result<()> {
        let id: RunId = row.id.parse()?;
        let stream = sandbox.agent()?.attach(&row.id).await?;
        let mut run = Run::new(
            id,
            Arc::clone(sandbox),
            RunKind::parse(&row.kind),
            row.command.clone(),
            row.started_at_ms,
            // The agent keeps the deadline it was given; this engine does not know it.
            None,
            self.config.output_cap,
        );
        run.job = row.job.as_deref().map(str::parse).transpose()?;
        run.keep_in(self.spools.as_ref());
        run.terminal = row.terminal;
        run.locked = row.locked;
        run.secrets = secret_values(self.variables.of(&sandbox.address()).iter());
        let commands: Vec<CommandRecord> = serde_json::from_value(row.commands.clone()).unwrap_or_default();
        run.commands = commands.iter().map(CommandText::of).collect();
        let secrets = self.secrets_of_taken(sandbox, &run.id);
        let run = Arc::new(run);
        // Only one can have had the lock, so it is free; nobody else can ask for it yet.
        let entered = run.locked.then(|| sandbox.lane.enter());
        sandbox.run_begins(row.started_at_ms);
        self.runs.add(Arc::clone(&run));
        let job = Job {
            inner: Arc::clone(self),
            run,
            passage: Validated::taken_over(Actor::of_run(row)),
            stream,
            request: None,
            input: ExecInput::Null,
            caller: None,
            named: String::new(),
            language: None,
            remove_after: None,
            guard: None,
            grants: None,
            secrets,
            entered,
        };
        self.tasks.spawn(job.run());
        Ok(())
    }

    fn lose(&self, row: &RunRow, why: &str) {
        if let Err(error) = self.journal.run_lost(row, why) {
            tracing::warn!(run = row.id, %error, "the loss of a run could not be recorded");
        }
        self.tell_lost(row, why);
        isle_fail::pass(Point::RecoverRunLost);
    }

    fn backend_of(&self, row: &SandboxRow) -> Result<(Arc<dyn Backend>, StoredSpec)> {
        let stored: StoredSpec = serde_json::from_value(row.spec.clone()).map_err(Error::internal)?;
        let backend = self
            .backends
            .iter()
            .find(|backend| backend.name() == stored.backend)
            .ok_or_else(|| Error::internal(format!("the backend {} is not there", stored.backend)))?;
        Ok((Arc::clone(backend), stored))
    }
}
