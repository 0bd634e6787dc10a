//! Defaults and ceilings that the operator changes while the daemon runs.
//!
//! Owns the changes, as a record in the store: they are kept for the next start until they are reset. What is
//! in force is in [`Settings`]; the queue's capacity and what the journal keeps follow from it. No change goes
//! above the caps, which the configuration and the host set and which do not change.
//!
//! One change at a time: checked, on record, in force, audited, in this order. Changes that no longer fit the
//! host at a start are left out, with a warning. Called by the operation `limits` and once at the start.

use std::sync::Arc;

use isle_api::ops::limits::{Caps, Changes, InForce};
use serde_json::json;

use crate::admission::queue::{Admission, Capacity, MOST_PLACES};
use crate::base::Settings;
use crate::context::CallContext;
use crate::engine::EngineConfig;
use crate::journal::{Audit, Journal, store_error};
use crate::sandbox::{Host, check_limits, most_memory};
use isle_core::{Code, Error, Result};

/// Where changes are kept.
const FACT: &str = "limits";

/// The configuration with changes over it.
fn over(changes: &Changes, config: &EngineConfig) -> EngineConfig {
    let mut config = config.clone();
    let set = |place: &mut u32, value: Option<u32>| *place = value.unwrap_or(*place);
    config.limits.memory = changes.memory.unwrap_or(config.limits.memory);
    config.limits.cpus = changes.cpus.unwrap_or(config.limits.cpus);
    set(&mut config.limits.pids, changes.pids);
    config.limits.disk = changes.disk.unwrap_or(config.limits.disk);
    config.timeout = changes.timeout.unwrap_or(config.timeout);
    let quotas = &mut config.quotas;
    set(&mut quotas.max_running, changes.max_running);
    set(&mut quotas.max_waiting, changes.max_waiting);
    set(&mut quotas.max_sandboxes, changes.max_sandboxes);
    set(&mut quotas.max_sandboxes_per_namespace, changes.max_sandboxes_per_namespace);
    quotas.memory_budget = changes.memory_budget.or(quotas.memory_budget);
    quotas.keep_output = changes.keep_output.unwrap_or(quotas.keep_output);
    quotas.keep_runs_for = changes.keep_runs_for.unwrap_or(quotas.keep_runs_for);
    config
}

/// Refuses what is nothing, or above the caps.
fn check(changes: &Changes, config: &EngineConfig) -> Result<()> {
    let refuse = |what: String, next: String| Err(Error::new(Code::InvalidArgument, what).next(next));
    let caps = caps(config);
    check_limits(&over(changes, config).limits)?;
    if let Some(memory) = changes.memory.filter(|memory| *memory > caps.memory) {
        let next = format!("choose at most {}", caps.memory);
        return refuse(format!("memory: {memory} is more than this host has for a sandbox"), next);
    }
    if let Some(cpus) = changes.cpus.filter(|cpus| *cpus > caps.cpus as f64) {
        return refuse(
            format!("cpus: {cpus} is more than this host has"),
            format!("choose at most {}", caps.cpus),
        );
    }
    if let Some(timeout) = changes.timeout.filter(|timeout| timeout.0.is_zero() || *timeout > caps.timeout) {
        return refuse(
            format!("timeout: {timeout} is not between nothing and max_timeout"),
            format!("choose at most {}; max_timeout is set in the configuration", caps.timeout),
        );
    }
    let counts = [
        ("max_running", changes.max_running, 1),
        ("max_waiting", changes.max_waiting, 0),
        ("max_sandboxes", changes.max_sandboxes, 1),
        ("max_sandboxes_per_namespace", changes.max_sandboxes_per_namespace, 1),
    ];
    for (name, count, least) in counts {
        let most = u32::try_from(caps.count).unwrap_or(u32::MAX);
        if let Some(count) = count.filter(|count| !(least..=most).contains(count)) {
            return refuse(format!("{name}: {count} is out of range"), format!("choose {least} to {most}"));
        }
    }
    if changes.keep_output.is_some_and(|size| size.0 == 0)
        || changes.keep_runs_for.is_some_and(|span| span.0.is_zero())
    {
        return refuse(
            "keeping no run at all is not possible".into(),
            "choose a size above 0, and 1s or longer".into(),
        );
    }
    if changes.memory_budget.is_some_and(|budget| budget.0 < 16 << 20) {
        return refuse("memory_budget leaves no room for a sandbox".into(), "choose at least 16M".into());
    }
    Ok(())
}

fn in_force(config: &EngineConfig) -> InForce {
    let (limits, quotas) = (&config.limits, &config.quotas);
    InForce {
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
        keep_output: quotas.keep_output,
        keep_runs_for: quotas.keep_runs_for,
    }
}

fn caps(config: &EngineConfig) -> Caps {
    Caps { memory: most_memory(), cpus: Host::get().cpus, timeout: config.max_timeout, count: MOST_PLACES }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Tuning {
    settings: Arc<Settings>,
    journal: Arc<Journal>,
    admission: Arc<Admission>,
}

impl Tuning {
    pub(crate) fn new(settings: Arc<Settings>, journal: Arc<Journal>, admission: Arc<Admission>) -> Self {
        Self { settings, journal, admission }
    }

    /// The values in force, and what nothing is set above.
    pub(crate) fn in_force(&self) -> (InForce, Caps) {
        (in_force(&self.settings.current()), caps(self.settings.started_with()))
    }

    /// Takes up what an earlier engine was told.
    pub(crate) fn load(&self) -> Result<()> {
        let changes = self.kept_changes()?;
        // The caps may be others now: what is above them does not count any more.
        let config = self.settings.started_with();
        match check(&changes, config) {
            Ok(()) => self.settings.change(|_| {
                let config = over(&changes, config);
                self.apply(&config);
                Ok((config, ()))
            })?,
            Err(error) => {
                tracing::warn!(%error, "limits that were changed at run time do not fit this host any more; the configuration counts");
            }
        }
        Ok(())
    }

    /// Changes defaults and ceilings: before and after.
    pub(crate) fn change(&self, context: &CallContext, changes: &Changes) -> Result<(InForce, InForce)> {
        if changes.is_nothing() {
            let now = in_force(&self.settings.current());
            return Ok((now.clone(), now));
        }
        context.operator_only("changing limits")?;
        let started_with = self.settings.started_with();
        // One change at a time, and no call sees half of one.
        let (before, after) = self.settings.change(|current| {
            let earlier = if changes.reset { Changes::default() } else { self.kept_changes()? };
            let all = earlier.and(changes);
            check(&all, started_with)?;
            let config = over(&all, started_with);
            let limits = (in_force(current), in_force(&config));
            let text = serde_json::to_string(&all).map_err(Error::internal)?;
            self.journal.store().set_value(FACT, &text).map_err(store_error)?;
            self.apply(&config);
            Ok((config, limits))
        })?;
        let audit = Audit::of_engine(context, "limits", json!({ "before": before, "after": after }));
        self.journal.audit(&audit).map_err(|error| error.unrecorded("the limits were changed"))?;
        Ok((before, after))
    }

    fn kept_changes(&self) -> Result<Changes> {
        let kept = self.journal.store().get_value(FACT).map_err(store_error)?;
        let Some(text) = kept else { return Ok(Changes::default()) };
        let mut stored: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
        // Versions before this one counted runs; that setting is gone, the others stay.
        if let Some(fields) = stored.as_object_mut() {
            fields.remove("keep_runs");
        }
        Ok(serde_json::from_value(stored).unwrap_or_default())
    }

    fn apply(&self, config: &EngineConfig) {
        self.admission.set_capacity(Capacity::of(&config.quotas));
        self.journal.keep(&config.quotas);
    }
}
