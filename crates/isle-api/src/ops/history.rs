//! `history`: the runs on record.

use super::usage::NetworkUsage;
use crate::shapes::RunState;
use crate::{Effect, Method, Operation, Route, Toolset};
use isle_core::values::{RunId, SandboxName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The operation `history`.
#[derive(Debug)]
pub struct History;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// Left out: all.
    pub sandbox: Option<SandboxName>,
    pub state: Option<RunState>,
    /// Default 100, at most 1000.
    pub limit: Option<u32>,
    /// Runs older than this one.
    pub before: Option<RunId>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Output {
    pub runs: Vec<Recorded>,
    /// For older ones; a short page may have one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct Recorded {
    pub run_id: String,
    pub sandbox: String,
    pub command: String,
    pub state: RunState,
    pub exit_code: Option<i32>,
    pub started_at: String,
    pub age_seconds: i64,
    pub duration_ms: Option<u64>,
    /// CPU time of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_ms: Option<u64>,
    /// Highest memory of its largest process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_memory_bytes: Option<u64>,
    /// From disks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io_read_bytes: Option<u64>,
    /// To files on disks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io_write_bytes: Option<u64>,
    /// Through the gate of its sandbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkUsage>,
    /// The most processes and threads that were seen at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_pids: Option<u64>,
}

impl Operation for History {
    type Input = Input;
    type Output = Output;
    const NAME: &'static str = "history";
    const TITLE: &'static str = "Past runs";
    const DESCRIPTION: &'static str = "Runs on record, newest first.";
    const ROUTE: Route = Route { method: Method::Get, path: "/runs" };
    const TOOLSET: Toolset = Toolset::Core;
    const EFFECT: Effect = Effect::Reads;
}
