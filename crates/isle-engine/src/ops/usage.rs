//! `usage`: what sandboxes and runs took of the host.

use super::Handler;
use crate::context::{CallContext, CallerRole};
use crate::engine::{Engine, Inner};
use crate::journal::state_from;
use crate::sandbox::{Measured, Sandbox};
use futures::{StreamExt, TryStreamExt, stream};
use isle_api::ops::usage::MeasuredBy;
use isle_api::ops::usage::{Input, NetworkUsage, Output, Queue, RunUsage, SandboxUsage, Usage};
use isle_core::clock::wall_clock_ms;
use isle_core::values::RunId;
use isle_core::{Code, Error, Result};
use isle_store::{RunNetwork, RunTotals};
use std::collections::HashMap;

/// Sandboxes in one answer.
const MOST: usize = 500;

/// Sandboxes asked at once.
const AT_ONCE: usize = 16;

pub(super) fn network_usage(network: RunNetwork) -> NetworkUsage {
    let RunNetwork { sent_bytes, received_bytes, connections, denied, shared } = network;
    NetworkUsage { sent_bytes, received_bytes, connections, denied, shared }
}

impl Handler for Usage {
    async fn call(engine: Engine, context: CallContext, input: Input) -> Result<Output> {
        let inner = &engine.inner;
        if input.sandbox.is_some() && input.run_id.is_some() {
            return Err(Error::new(Code::InvalidArgument, "sandbox and run_id are both given")
                .next("give one of the two"));
        }
        let load = match context.role {
            CallerRole::Operator if context.namespace.is_default() => inner.admission.load(),
            CallerRole::Operator | CallerRole::Tenant => inner.admission.load_of(&context.namespace),
        };
        let queue = Queue {
            running: load.running,
            waiting: load.waiting,
            admitted: load.admitted,
            refused: load.refused,
        };
        if let Some(which) = input.run_id {
            let run = of_run(inner, inner.runs.find_run(&context, &which)?)?;
            return Ok(Output { sandboxes: Vec::new(), total: 0, run: Some(run), queue });
        }
        let all = inner.fleet.one_or_all(&context, input.sandbox.as_ref())?;
        let namespace = context.namespace.to_string();
        let totals = inner.journal.listed(&context, move |listing| listing.run_totals(&namespace)).await?;
        let totals = &totals;
        let asked = stream::iter(all.iter().take(MOST).cloned());
        let asked = asked.map(|sandbox| async move { of_sandbox(&sandbox, totals).await });
        let sandboxes = asked.buffered(AT_ONCE).try_collect().await?;
        Ok(Output { sandboxes, total: all.len(), run: None, queue })
    }
}

fn of_run(inner: &Inner, id: RunId) -> Result<RunUsage> {
    let row = inner.journal.run(&id)?.ok_or_else(|| crate::run::no_such_run(&id))?;
    let live = inner.runs.get(&id);
    let (stdout, stderr) = live.as_ref().map_or((row.stdout_bytes, row.stderr_bytes), |run| run.totals());
    Ok(RunUsage {
        sandbox: row.sandbox_name.unwrap_or(row.sandbox_id),
        state: state_from(&row.state),
        duration_ms: row.duration_ms.or_else(|| live.map(|run| run.elapsed_ms())),
        cpu_ms: row.cpu_us.map(|micros| micros / 1000),
        peak_memory_bytes: row.peak_rss_kib.map(|kib| kib.saturating_mul(1024)),
        io_read_bytes: row.io_read_bytes,
        io_write_bytes: row.io_write_bytes,
        network: row.network.map(network_usage),
        peak_pids: row.peak_tasks,
        stdout_bytes: stdout,
        stderr_bytes: stderr,
        run_id: id,
    })
}

/// What a sandbox uses, and who says so.
async fn of_sandbox(sandbox: &Sandbox, totals: &HashMap<String, RunTotals>) -> Result<SandboxUsage> {
    let Measured { usage, by, io_note } = sandbox.usage().await;
    let totals = totals.get(sandbox.id.as_str()).copied().unwrap_or_default();
    let passed = sandbox.network.passed();
    let by_kernel = by == Some(MeasuredBy::Cgroups);
    let of_runs = totals.peak_rss_kib.saturating_mul(1024);
    Ok(SandboxUsage {
        name: sandbox.name.clone(),
        uptime_seconds: (wall_clock_ms() - sandbox.created_at_ms).max(0) / 1000,
        runs: totals.runs,
        running_runs: sandbox.running(),
        measured_by: by.unwrap_or(MeasuredBy::EndedRuns),
        cpu_ms: usage.cpu_ms.or(Some(totals.cpu_us / 1000).filter(|_| by.is_none())),
        memory_bytes: usage.memory_bytes,
        // Nothing remembers the highest but the kernel: it is at least what there is, or was in one run.
        memory_peak_bytes: usage
            .memory_peak_bytes
            .or(Some(of_runs.max(usage.memory_bytes.unwrap_or(0))).filter(|_| !by_kernel)),
        io_read_bytes: usage.io_read_bytes,
        io_write_bytes: usage.io_write_bytes,
        io_note,
        network_sent_bytes: passed.sent,
        network_received_bytes: passed.received,
        network_connections: passed.connections,
        network_denied: passed.denied,
        pids: usage.pids,
        disk_bytes: usage.disk_bytes,
        oom_kills: usage.oom_kills,
        limits: sandbox.spec.limits.clone(),
        output_bytes: totals.output_bytes,
    })
}
