//! `history`: the runs on record.

use super::Handler;
use super::usage::network_usage;
use crate::context::{CallContext, Door};
use crate::engine::Engine;
use crate::journal::state_from;
use isle_api::ops::history::{History, Input, Output, Recorded};
use isle_api::times::timestamp;
use isle_core::clock::wall_clock_ms;
use isle_core::{Code, Error, Result};
use isle_store::{RunFilter, RunRow};

/// Characters of a command in an answer a model reads.
const COMMAND: usize = 60;

fn recorded(row: RunRow, now: i64, longest: usize) -> Recorded {
    Recorded {
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
        network: row.network.map(network_usage),
        peak_pids: row.peak_tasks,
    }
}

impl Handler for History {
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
        let page = engine.inner.journal.listed(&context, move |listing| listing.runs(&filter)).await?;
        let mut runs: Vec<Recorded> = page.rows.into_iter().map(|row| recorded(row, now, longest)).collect();
        if context.door == Door::Mcp {
            // A model asks what happened; what it cost would take a fifth of the answer.
            for run in &mut runs {
                (run.cpu_ms, run.peak_memory_bytes) = (None, None);
                (run.io_read_bytes, run.io_write_bytes) = (None, None);
                (run.network, run.peak_pids) = (None, None);
            }
        }
        Ok(Output { runs, before: page.next })
    }
}
