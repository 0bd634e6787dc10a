//! `history`: the runs on record.

use isle_store::{RunFilter, RunRow, wall_clock_ms};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::shapes::RunState;
use super::times::timestamp;
use super::usage::NetworkUsage;
use super::{Effect, Method, Operation, Route, Toolset};
use crate::context::{CallContext, Door};
use crate::engine::Engine;
use crate::error::{Code, Error, Result};
use crate::journal::state_from;
use crate::values::{RunId, SandboxName};

/// Characters of a command in an answer a model reads.
const COMMAND: usize = 60;

pub(super) struct History;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Input {
    /// Left out: all.
    sandbox: Option<SandboxName>,
    state: Option<RunState>,
    /// Default 100, at most 1000.
    limit: Option<u32>,
    /// Runs older than this one.
    before: Option<RunId>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Output {
    runs: Vec<Recorded>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub(super) struct Recorded {
    run_id: String,
    sandbox: String,
    command: String,
    state: RunState,
    exit_code: Option<i32>,
    started_at: String,
    age_seconds: i64,
    duration_ms: Option<u64>,
    /// CPU time of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_ms: Option<u64>,
    /// Highest memory of its largest process.
    #[serde(skip_serializing_if = "Option::is_none")]
    peak_memory_bytes: Option<u64>,
    /// From disks.
    #[serde(skip_serializing_if = "Option::is_none")]
    io_read_bytes: Option<u64>,
    /// To files on disks.
    #[serde(skip_serializing_if = "Option::is_none")]
    io_write_bytes: Option<u64>,
    /// Through the gate of its sandbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    network: Option<NetworkUsage>,
    /// The most processes and threads that were seen at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    peak_pids: Option<u64>,
}

impl Recorded {
    fn of(row: RunRow, now: i64, longest: usize) -> Self {
        Self {
            run_id: row.id,
            sandbox: row.sandbox_name.unwrap_or(row.sandbox_id),
            command: match row.command.char_indices().nth(longest) {
                None => row.command,
                Some((end, _)) => format!("{}…", &row.command[..end]),
            },
            state: state_from(&row.state),
            exit_code: row.exit_code,
            started_at: timestamp(row.started_at_ms),
            age_seconds: (now - row.started_at_ms).max(0) / 1000,
            duration_ms: row.duration_ms,
            cpu_ms: row.cpu_us.map(|micros| micros / 1000),
            peak_memory_bytes: row.peak_rss_kib.map(|kib| kib.saturating_mul(1024)),
            io_read_bytes: row.io_read_bytes,
            io_write_bytes: row.io_write_bytes,
            network: row.network.map(NetworkUsage::from),
            peak_pids: row.peak_tasks,
        }
    }
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

    async fn call(engine: Engine, context: CallContext, input: Input) -> Result<Output> {
        let limit = input.limit.unwrap_or(100);
        if !(1..=1000).contains(&limit) {
            return Err(Error::new(Code::InvalidArgument, "limit is out of range").next("choose 1 to 1000"));
        }
        let filter = RunFilter {
            namespace: Some(context.namespace.to_string()),
            sandbox: input.sandbox.map(|name| name.to_string()),
            state: input.state.map(|state| state.as_str().to_owned()),
            kind: None,
            limit: if context.door == Door::Mcp { limit.min(100) } else { limit },
            before: input.before.map(|id| id.to_string()),
        };
        let longest = if context.door == Door::Mcp { COMMAND } else { usize::MAX };
        let now = wall_clock_ms();
        let rows = engine.inner.journal.runs(&filter)?;
        let mut runs: Vec<Recorded> = rows.into_iter().map(|row| Recorded::of(row, now, longest)).collect();
        if context.door == Door::Mcp {
            // A model asks what happened; what it cost would take a fifth of the answer.
            for run in &mut runs {
                (run.cpu_ms, run.peak_memory_bytes) = (None, None);
                (run.io_read_bytes, run.io_write_bytes) = (None, None);
                (run.network, run.peak_pids) = (None, None);
            }
        }
        Ok(Output { runs })
    }
}
