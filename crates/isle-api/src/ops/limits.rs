//! `limits`: defaults and ceilings, seen and changed.

use crate::{Effect, Method, Operation, Route, Toolset};
use isle_core::values::{ByteSize, Span};
use schemars::JsonSchema;
use serde::Deserialize;
use serde::Serialize;

/// What is to be another one than the configuration says.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Changes {
    /// Memory of new sandboxes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<ByteSize>,
    /// CPUs of new sandboxes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<f64>,
    /// Processes and threads of new sandboxes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pids: Option<u32>,
    /// Disk of new sandboxes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<ByteSize>,
    /// How long a command may run when the call says nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
    /// Commands that run at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_running: Option<u32>,
    /// Calls that wait for their turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_waiting: Option<u32>,
    /// Sandboxes of all namespaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_sandboxes: Option<u32>,
    /// Sandboxes of each namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_sandboxes_per_namespace: Option<u32>,
    /// What the memory limits of all sandboxes may come to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_budget: Option<ByteSize>,
    /// What ended runs of each namespace may come to, with their output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_output: Option<ByteSize>,
    /// How long they are kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_runs_for: Option<Span>,
    /// Take all changes back first: what the configuration says counts again.
    #[serde(default, skip_serializing)]
    pub reset: bool,
}

impl Changes {
    /// Whether nothing is to be changed.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// Later ones over these.
    #[must_use]
    pub fn and(self, later: &Self) -> Self {
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
            keep_output: later.keep_output.or(self.keep_output),
            keep_runs_for: later.keep_runs_for.or(self.keep_runs_for),
            reset: false,
        }
    }
}

/// The values in force.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct InForce {
    pub memory: ByteSize,
    pub cpus: f64,
    pub pids: u32,
    pub disk: ByteSize,
    pub timeout: Span,
    pub max_running: u32,
    pub max_waiting: u32,
    pub max_sandboxes: u32,
    pub max_sandboxes_per_namespace: u32,
    pub memory_budget: Option<ByteSize>,
    pub keep_output: ByteSize,
    pub keep_runs_for: Span,
}

/// What nothing is set above.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct Caps {
    pub memory: ByteSize,
    pub cpus: usize,
    pub timeout: Span,
    /// Of max_running, max_waiting, max_sandboxes and max_sandboxes_per_namespace.
    pub count: usize,
}

/// The operation `limits`.
#[derive(Debug)]
pub struct Limits;

#[derive(Debug, Serialize, JsonSchema)]
pub struct Output {
    /// In force from now on.
    pub now: InForce,
    /// In force before this call.
    pub before: InForce,
    /// What nothing is set above; told to the operator, since it is what the host has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub caps: Option<Caps>,
}

impl Operation for Limits {
    type Input = Changes;
    type Output = Output;
    const NAME: &'static str = "limits";
    const TITLE: &'static str = "Defaults and ceilings";
    const DESCRIPTION: &'static str = "Show the limits of new sandboxes, the ceilings on sandboxes, the line and what is kept; change some. The next sandbox or run has them; they stay after a restart until reset.";
    const ROUTE: Route = Route { method: Method::Post, path: "/limits" };
    const TOOLSET: Toolset = Toolset::Admin;
    const EFFECT: Effect = Effect::Idempotent;
}
