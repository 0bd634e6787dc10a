//! Runs: one command each, in whichever sandbox, through whichever door.
//!
//! Owns the files with the output of background jobs; the runs in progress are in the table [`LiveRuns`], which
//! lower services read (a sandbox that is destroyed tells its runs why, a gate asks whose connection it is).
//! Ended runs are in the journal, and the last few in memory, so that a caller who follows one can resume.
//!
//! A command has three shapes on its way: the input of an operation, the [`Plan`](super::Plan), which every
//! operation makes of it and the pipeline checks, and the message to the agent. From the plan on there is one
//! path for all: [`Runs::start`] walks the stages of the [`pipeline`](crate::pipeline), finds or makes the
//! sandbox, writes the record, and hands everything to one task, the pump, which owns the run until its end is
//! recorded. Between the record and that task nothing waits, so that no run is recorded and then lost.
//!
//! Invariants: a command is never sent twice; what is not on record as running does not run; an end is
//! published only after its record was written, or at least tried; whoever reads slowly loses output and hears
//! how much, unless it is the interactive caller itself, which slows the command down instead.
//!
//! Verbs have files of their own: `start`, `pump`, `turn` (the lock of a sandbox), `wait`, `kill`, `input`,
//! `follow`, `view` and `session` (interactive callers), `result`, `outcome`. Called by the operations, by
//! install, validate and children. Calls sandboxes, network, secrets, admission, journal and notifier.

use std::sync::Arc;

use super::job_output::{JobOutput, RunFate};
use super::{LiveRuns, Run};
use crate::admission::queue::Admission;
use crate::base::{Settings, Tasks};
use crate::engine::EngineConfig;
use crate::events::Notifier;
use crate::journal::Journal;
use crate::network::{GrantSets, Network};
use crate::sandbox::Sandboxes;
use crate::secrets::Secrets;
use crate::variables::Variables;
use isle_core::values::{RunId, SandboxId};

/// What runs are built on.
pub(crate) struct RunsParts {
    pub(crate) settings: Arc<Settings>,
    pub(crate) tasks: Arc<Tasks>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) notifier: Arc<Notifier>,
    pub(crate) admission: Arc<Admission>,
    pub(crate) variables: Arc<Variables>,
    pub(crate) secrets: Arc<Secrets>,
    pub(crate) network: Arc<Network>,
    pub(crate) grant_sets: Arc<GrantSets>,
    pub(crate) sandboxes: Arc<Sandboxes>,
    pub(crate) live: Arc<LiveRuns>,
}

/// See the module.
pub(crate) struct Runs {
    pub(super) config: Arc<EngineConfig>,
    pub(super) settings: Arc<Settings>,
    pub(super) tasks: Arc<Tasks>,
    pub(super) journal: Arc<Journal>,
    pub(super) notifier: Arc<Notifier>,
    pub(super) admission: Arc<Admission>,
    pub(super) variables: Arc<Variables>,
    pub(super) secrets: Arc<Secrets>,
    pub(super) network: Arc<Network>,
    pub(super) grant_sets: Arc<GrantSets>,
    pub(super) sandboxes: Arc<Sandboxes>,
    pub(super) live: Arc<LiveRuns>,
    pub(super) job_output: Option<JobOutput>,
}

impl Runs {
    pub(crate) fn new(parts: RunsParts) -> Self {
        let config = Arc::clone(parts.settings.started_with());
        Self {
            job_output: JobOutput::new(config.job_files.as_deref(), config.job_output_cap),
            config,
            settings: parts.settings,
            tasks: parts.tasks,
            journal: parts.journal,
            notifier: parts.notifier,
            admission: parts.admission,
            variables: parts.variables,
            secrets: parts.secrets,
            network: parts.network,
            grant_sets: parts.grant_sets,
            sandboxes: parts.sandboxes,
            live: parts.live,
        }
    }

    /// The run, while it is in progress and a little longer.
    pub(crate) fn get(&self, id: &RunId) -> Option<Arc<Run>> {
        self.live.get(id)
    }

    /// Those in progress in one incarnation of a sandbox.
    pub(crate) fn running_in(&self, sandbox: &SandboxId) -> Vec<Arc<Run>> {
        self.live.running_in(sandbox)
    }

    /// Files with the output of jobs, where such are kept.
    pub(crate) fn job_output(&self) -> Option<&JobOutput> {
        self.job_output.as_ref()
    }

    /// Removes files of jobs that are not kept any more.
    pub(crate) fn sweep_job_output(&self) {
        let Some(job_output) = &self.job_output else { return };
        job_output.sweep(|run| match self.journal.run(run) {
            Ok(Some(row)) if row.ended_at_ms.is_some() => RunFate::Ended,
            Ok(None) => RunFate::Forgotten,
            // One that cannot be looked up is not taken for forgotten.
            Ok(Some(_)) | Err(_) => RunFate::Open,
        });
    }
}
