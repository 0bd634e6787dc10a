//! Defaults and ceilings that change while the engine runs: below caps that do not, on record, and kept
//! for the next start until they are taken back.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::context::CallContext;
use crate::engine::{EngineConfig, Inner};
use crate::error::{Code, Error, Result};
use crate::journal::{Audit, store_error};
use crate::queue::{Capacity, MOST_PLACES};
use crate::sandbox::{Host, check_limits, most_memory};
use crate::values::{ByteSize, Span};

/// Where changes are kept.
const FACT: &str = "limits";

/// What is to be another one than the configuration says.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Changes {
    /// Memory of new sandboxes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) memory: Option<ByteSize>,
    /// CPUs of new sandboxes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cpus: Option<f64>,
    /// Processes and threads of new sandboxes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pids: Option<u32>,
    /// Disk of new sandboxes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) disk: Option<ByteSize>,
    /// How long a command may run when the call says nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) timeout: Option<Span>,
    /// Commands that run at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_running: Option<u32>,
    /// Calls that wait for their turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_waiting: Option<u32>,
    /// Sandboxes of all namespaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_sandboxes: Option<u32>,
    /// Sandboxes of each namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_sandboxes_per_namespace: Option<u32>,
    /// What the memory limits of all sandboxes may come to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) memory_budget: Option<ByteSize>,
    /// Ended runs that are kept of each namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) keep_runs: Option<u32>,
    /// How long they are kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) keep_runs_for: Option<Span>,
    /// Take all changes back first: what the configuration says counts again.
    #[serde(default, skip_serializing)]
    pub(crate) reset: bool,
}

/// The values in force.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(inline)]
pub(crate) struct InForce {
    memory: ByteSize,
    cpus: f64,
    pids: u32,
    disk: ByteSize,
    timeout: Span,
    max_running: u32,
    max_waiting: u32,
    max_sandboxes: u32,
    max_sandboxes_per_namespace: u32,
    memory_budget: Option<ByteSize>,
    keep_runs: u32,
    keep_runs_for: Span,
}

/// What nothing is set above.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[schemars(inline)]
pub(crate) struct Caps {
    memory: ByteSize,
    cpus: usize,
    timeout: Span,
    /// Of max_running, max_waiting, max_sandboxes and max_sandboxes_per_namespace.
    count: usize,
}

impl Changes {
    fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// Later ones over these.
    fn and(self, later: &Self) -> Self {
        Self {
            memory: later.memory.or(self.memory),
            cpus: later.cpus.or(self.cpus),
            pids: later.pids.or(self.pids),
            disk: later.disk.or(self.disk),
            timeout: later.timeout.or(self.timeout),
            max_running: later.max_running.or(self.max_running),
            max_waiting: later.max_waiting.or(self.max_waiting),
            max_sandboxes: later.max_sandboxes.or(self.max_sandboxes),
            max_sandboxes_per_namespace: later
                .max_sandboxes_per_namespace
                .or(self.max_sandboxes_per_namespace),
            memory_budget: later.memory_budget.or(self.memory_budget),
            keep_runs: later.keep_runs.or(self.keep_runs),
            keep_runs_for: later.keep_runs_for.or(self.keep_runs_for),
            reset: false,
        }
    }

    fn over(&self, config: &EngineConfig) -> EngineConfig {
        let mut config = config.clone();
        let set = |place: &mut u32, value: Option<u32>| *place = value.unwrap_or(*place);
        config.limits.memory = self.memory.unwrap_or(config.limits.memory);
        config.limits.cpus = self.cpus.unwrap_or(config.limits.cpus);
        set(&mut config.limits.pids, self.pids);
        config.limits.disk = self.disk.unwrap_or(config.limits.disk);
        config.timeout = self.timeout.unwrap_or(config.timeout);
        let quotas = &mut config.quotas;
        set(&mut quotas.max_running, self.max_running);
        set(&mut quotas.max_waiting, self.max_waiting);
        set(&mut quotas.max_sandboxes, self.max_sandboxes);
        set(&mut quotas.max_sandboxes_per_namespace, self.max_sandboxes_per_namespace);
        quotas.memory_budget = self.memory_budget.or(quotas.memory_budget);
        set(&mut quotas.keep_runs, self.keep_runs);
        quotas.keep_runs_for = self.keep_runs_for.unwrap_or(quotas.keep_runs_for);
        config
    }

    /// Refuses what is nothing, or above the caps.
    fn check(&self, config: &EngineConfig) -> Result<()> {
        let refuse = |what: String, next: String| Err(Error::new(Code::InvalidArgument, what).next(next));
        let caps = Caps::of(config);
        check_limits(&self.over(config).limits)?;
        if let Some(memory) = self.memory.filter(|memory| *memory > caps.memory) {
            let next = format!("choose at most {}", caps.memory);
            return refuse(format!("memory: {memory} is more than this host has for a sandbox"), next);
        }
        if let Some(cpus) = self.cpus.filter(|cpus| *cpus > caps.cpus as f64) {
            return refuse(
                format!("cpus: {cpus} is more than this host has"),
                format!("choose at most {}", caps.cpus),
            );
        }
        if let Some(timeout) = self.timeout.filter(|timeout| timeout.0.is_zero() || *timeout > caps.timeout) {
            return refuse(
                format!("timeout: {timeout} is not between nothing and max_timeout"),
                format!("choose at most {}; max_timeout is set in the configuration", caps.timeout),
            );
        }
        let counts = [
            ("max_running", self.max_running, 1),
            ("max_waiting", self.max_waiting, 0),
            ("max_sandboxes", self.max_sandboxes, 1),
            ("max_sandboxes_per_namespace", self.max_sandboxes_per_namespace, 1),
        ];
        for (name, count, least) in counts {
            let most = u32::try_from(caps.count).unwrap_or(u32::MAX);
            if let Some(count) = count.filter(|count| !(least..=most).contains(count)) {
                return refuse(
                    format!("{name}: {count} is out of range"),
                    format!("choose {least} to {most}"),
                );
            }
        }
        if self.keep_runs == Some(0) || self.keep_runs_for.is_some_and(|span| span.0.is_zero()) {
            return refuse(
                "keeping no run at all is not possible".into(),
                "choose 1 or more, and 1s or longer".into(),
            );
        }
        if self.memory_budget.is_some_and(|budget| budget.0 < 16 << 20) {
            return refuse("memory_budget leaves no room for a sandbox".into(), "choose at least 16M".into());
        }
        Ok(())
    }
}

impl InForce {
    fn of(config: &EngineConfig) -> Self {
        let (limits, quotas) = (&config.limits, &config.quotas);
        Self {
            memory: limits.memory,
            cpus: limits.cpus,
            pids: limits.pids,
            disk: limits.disk,
            timeout: config.timeout,
            max_running: quotas.max_running,
            max_waiting: quotas.max_waiting,
            max_sandboxes: quotas.max_sandboxes,
            max_sandboxes_per_namespace: quotas.max_sandboxes_per_namespace,
            memory_budget: quotas.memory_budget,
            keep_runs: quotas.keep_runs,
            keep_runs_for: quotas.keep_runs_for,
        }
    }
}

impl Caps {
    fn of(config: &EngineConfig) -> Self {
        Self {
            memory: most_memory(),
            cpus: Host::get().cpus,
            timeout: config.max_timeout,
            count: MOST_PLACES,
        }
    }
}

impl Inner {
    /// The values in force, and what nothing is set above.
    pub(crate) fn in_force(&self) -> (InForce, Caps) {
        (InForce::of(&self.current()), Caps::of(&self.config))
    }

    /// Takes up what an earlier engine was told.
    pub(crate) fn load_changes(&self) -> Result<()> {
        let changes = self.kept_changes()?;
        // The caps may be others now: what is above them does not count any more.
        match changes.check(&self.config) {
            Ok(()) => {
                let config = changes.over(&self.config);
                self.apply(&config);
                *crate::write(&self.tuned) = Arc::new(config);
            }
            Err(error) => {
                tracing::warn!(%error, "limits that were changed at run time do not fit this host any more; the configuration counts");
            }
        }
        Ok(())
    }

    /// Changes defaults and ceilings: before and after.
    pub(crate) fn change_limits(
        &self,
        context: &CallContext,
        changes: &Changes,
    ) -> Result<(InForce, InForce)> {
        if changes.is_nothing() {
            let now = InForce::of(&self.current());
            return Ok((now.clone(), now));
        }
        context.operator_only("changing limits")?;
        // Held throughout: one change at a time, and nobody sees half of one.
        let mut tuned = crate::write(&self.tuned);
        let earlier = if changes.reset { Changes::default() } else { self.kept_changes()? };
        let all = earlier.and(changes);
        all.check(&self.config)?;
        let config = all.over(&self.config);
        let (before, after) = (InForce::of(&tuned), InForce::of(&config));
        let text = serde_json::to_string(&all).map_err(Error::internal)?;
        self.journal.store().set_fact(FACT, &text).map_err(store_error)?;
        self.apply(&config);
        *tuned = Arc::new(config);
        drop(tuned);
        let audit = Audit::of_engine(context, "limits", json!({ "before": before, "after": after }));
        self.journal.audit(&audit).map_err(|error| error.unrecorded("the limits were changed"))?;
        Ok((before, after))
    }

    fn kept_changes(&self) -> Result<Changes> {
        let kept = self.journal.store().get_fact(FACT).map_err(store_error)?;
        Ok(kept.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default())
    }

    fn apply(&self, config: &EngineConfig) {
        self.admission.set_capacity(Capacity::of(&config.quotas));
        self.journal.keep(&config.quotas);
    }
}
