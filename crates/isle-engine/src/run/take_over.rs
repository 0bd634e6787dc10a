//! Runs of an earlier daemon: those still in progress are followed from where their agent kept them, those
//! that ended meanwhile are recorded, and those nobody knows any more are recorded as lost.

use std::sync::Arc;

use isle_fail::Point;
use isle_store::RunRow;
use isle_wire::RunEntry;

use super::{CommandText, Pump, Run, RunKind, Runs};
use crate::agent::ExecInput;
use crate::events::secret_values;
use crate::journal::Actor;
use crate::pipeline::Validated;
use crate::sandbox::Sandbox;
use isle_api::shapes::CommandRecord;
use isle_core::values::RunId;
use isle_core::{Error, Result};

const SIGKILL: i32 = 9;

impl Runs {
    /// Takes over what runs in a sandbox, as far as the records and its agent know it.
    pub(crate) async fn take_over_all(self: &Arc<Self>, sandbox: &Arc<Sandbox>, rows: &[RunRow]) {
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
        run.keep_in(self.job_output.as_ref());
        run.terminal = row.terminal;
        run.locked = row.locked;
        run.secrets = secret_values(self.variables.of(&sandbox.address()).iter());
        let commands: Vec<CommandRecord> = serde_json::from_value(row.commands.clone()).unwrap_or_default();
        run.commands = commands.iter().map(CommandText::of).collect();
        let secrets = self.secrets.secrets_of_taken(sandbox, &run.id);
        let run = Arc::new(run);
        // Only one can have had the lock, so it is free; nobody else can ask for it yet.
        let entered = run.locked.then(|| sandbox.lock_queue.enter());
        sandbox.run_begins(row.started_at_ms);
        self.live.add(Arc::clone(&run));
        let pump = Pump {
            runs: Arc::clone(self),
            run,
            passage: Validated::taken_over(Actor::of_run(row), secrets.is_some()),
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
        self.tasks.spawn(pump.run());
        Ok(())
    }

    pub(crate) fn lose(&self, row: &RunRow, why: &str) {
        if let Err(error) = self.journal.run_lost(row, why) {
            tracing::warn!(run = row.id, %error, "the loss of a run could not be recorded");
        }
        self.notifier.run_lost(row, why);
        isle_fail::pass(Point::RecoverRunLost);
    }
}
