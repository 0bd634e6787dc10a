//! What a start finds of an earlier engine: half-made sandboxes are undone, half-removed ones
//! removed, living ones taken over with the runs in them, everything else told as it is. Doing it
//! twice does no more than doing it once.

use std::collections::HashMap;
use std::sync::Arc;

use futures::StreamExt;
use futures::stream;
use isle_store::{RunRow, SandboxRow};

use super::Inner;
use crate::agent::ExecInput;
use crate::backend::{Backend, Found, Keep};
use crate::error::{Error, Result};
use crate::journal::{Actor, Audit, store_error};
use crate::pipeline::Validated;
use crate::run::{Job, Run, RunKind};
use crate::sandbox::{Made, Origin, Sandbox, SandboxState, Settings, StoredSpec, fingerprint};
use crate::values::{RunId, SandboxId, SandboxName};

/// Sandboxes looked at side by side.
const AT_ONCE: usize = 16;

impl Inner {
    pub(super) async fn recover(self: &Arc<Self>) -> Result<()> {
        let rows = self.journal.store().sandboxes().map_err(store_error)?;
        let mut unfinished: HashMap<String, Vec<RunRow>> = HashMap::new();
        for run in self.journal.store().unfinished_runs().map_err(store_error)? {
            unfinished.entry(run.sandbox_id.clone()).or_default().push(run);
        }
        let work: Vec<_> = rows
            .into_iter()
            .map(|row| {
                let runs = unfinished.remove(&row.id).unwrap_or_default();
                self.recover_sandbox(row, runs)
            })
            .collect();
        let known: Vec<SandboxId> =
            stream::iter(work).buffer_unordered(AT_ONCE).filter_map(|kept| async { kept }).collect().await;
        // Runs of sandboxes nobody remembers.
        for run in unfinished.into_values().flatten() {
            self.lose(&run, "its sandbox disappeared");
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
            (_, state) => {
                let why = if row.kind == "named" {
                    "it was being made or removed when the daemon died"
                } else {
                    "the daemon died"
                };
                self.undo(&id, &row, state, &runs, why).await.map(|()| None)
            }
        };
        match outcome {
            Ok(kept) => kept,
            Err(error) => {
                tracing::warn!(id = %id, %error, "a sandbox could not be recovered; the next start tries again");
                for run in &runs {
                    self.lose(run, "the daemon died");
                }
                Some(id)
            }
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
        let keep = if row.kind == "named" { Keep::Workspace } else { Keep::Nothing };
        match self.backend_of(row) {
            Ok((backend, _)) => backend.destroy(id, keep).await?,
            Err(_) => {
                for backend in &self.backends {
                    backend.destroy(id, keep).await?;
                }
            }
        }
        self.journal.forget_sandbox(id)?;
        if row.kind == "named" {
            let action =
                if state == SandboxState::Creating.as_str() { "undo_create" } else { "finish_destroy" };
            self.journal.audit(&Audit::stored(action, row, "half done when the daemon died"));
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
        let sandbox =
            Arc::new(Sandbox::new(id.clone(), name.clone(), stored, Arc::clone(&backend), row.created_at_ms));
        let found = if row.state == SandboxState::Failed.as_str() {
            Found::Dead
        } else {
            // Whoever cannot be spoken to is of no use to anybody: the next call builds it anew.
            backend.reconnect(id, &sandbox.spec, &row.anchor).await.unwrap_or_else(|error| {
                tracing::warn!(sandbox = %name, %error, "the sandbox could not be taken over");
                Found::Dead
            })
        };
        let alive = match found {
            Found::Alive(created) => match self.connect(&sandbox, created, Made::Earlier).await {
                Ok(()) => true,
                Err(error) => {
                    tracing::warn!(sandbox = %name, %error, "the sandbox's agent did not answer");
                    false
                }
            },
            Found::Dead => false,
        };
        if alive {
            self.note_drift(&sandbox)?;
            self.fleet.put(Arc::clone(&sandbox));
            self.take_over_runs(&sandbox, runs).await;
            tracing::info!(sandbox = %name, runs = runs.len(), "took the sandbox over");
            return Ok(Some(id.clone()));
        }
        if let Ok(Some(containment)) = serde_json::from_value(row.containment.clone()) {
            sandbox.set_containment(containment);
        }
        sandbox.set_state(SandboxState::Failed);
        for run in runs {
            self.lose(run, "the sandbox died");
        }
        if row.state != SandboxState::Failed.as_str() {
            self.journal.sandbox_failed(&sandbox);
            self.journal.audit(&Audit::lifecycle(
                &Actor::engine(),
                "sandbox_failed",
                &sandbox,
                "it was dead when the daemon started",
            ));
        }
        self.fleet.put(sandbox);
        Ok(Some(id.clone()))
    }

    /// A sandbox made from the configuration follows it: it is made anew when nothing runs in it.
    fn note_drift(&self, sandbox: &Sandbox) -> Result<()> {
        if sandbox.origin == Origin::Defaults {
            let now = Settings::default().spec(&self.config, Some(sandbox.name.clone()))?;
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
        // Runs whose end is recorded, but which the agent was not told to forget.
        for entry in known {
            let ours = rows.iter().any(|row| row.id == entry.run);
            if let (false, true, Ok(agent)) = (ours, entry.ended, sandbox.agent()) {
                agent.forget(&entry.run).await.ok();
            }
        }
    }

    /// Follows a run that is going on, or ended while no daemon was there to see it.
    async fn take_over_run(self: &Arc<Self>, sandbox: &Arc<Sandbox>, row: &RunRow) -> Result<()> {
        let id: RunId = row.id.parse()?;
        let stream = sandbox.agent()?.attach(&row.id).await?;
        let run = Arc::new(Run::new(
            id,
            Arc::clone(sandbox),
            RunKind::parse(&row.kind),
            row.command.clone(),
            row.started_at_ms,
            // The agent keeps the deadline it was given; this engine does not know it.
            None,
            self.config.output_cap,
        ));
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
        };
        self.tasks.spawn(job.run());
        Ok(())
    }

    fn lose(&self, row: &RunRow, why: &str) {
        if let Err(error) = self.journal.run_lost(row, why) {
            tracing::warn!(run = row.id, %error, "the loss of a run could not be recorded");
        }
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
