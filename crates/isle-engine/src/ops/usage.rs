//! `usage`: what sandboxes and runs took of the host.

use futures::{StreamExt, TryStreamExt, stream};
use isle_store::{RunNetwork, wall_clock_ms};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::shapes::RunState;
use super::{Effect, Method, Operation, Route, Toolset};
use crate::backend::Limits;
use crate::context::{Authority, CallContext};
use crate::engine::{Engine, Inner};
use crate::error::{Code, Error, Result};
use crate::journal::{state_from, store_error};
use crate::sandbox::{Measured, MeasuredBy, Sandbox};
use crate::values::{RunId, RunOrJob, SandboxName};

/// Sandboxes in one answer.
const MOST: usize = 500;
/// Sandboxes asked at once.
const AT_ONCE: usize = 16;

pub(super) struct Usage;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Input {
    /// Left out: all.
    sandbox: Option<SandboxName>,
    /// Of one run instead.
    run_id: Option<RunOrJob>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub(super) struct SandboxUsage {
    name: SandboxName,
    uptime_seconds: i64,
    /// Runs on record in this incarnation.
    runs: u64,
    running_runs: usize,
    measured_by: MeasuredBy,
    cpu_ms: Option<u64>,
    memory_bytes: Option<u64>,
    memory_peak_bytes: Option<u64>,
    io_read_bytes: Option<u64>,
    io_write_bytes: Option<u64>,
    /// Why those two are not known, or are not all.
    #[serde(skip_serializing_if = "Option::is_none")]
    io_note: Option<&'static str>,
    /// Through its gate, since the daemon began to serve it.
    network_sent_bytes: u64,
    network_received_bytes: u64,
    network_connections: u64,
    /// Names, connections and requests that were denied.
    network_denied: u64,
    pids: Option<u32>,
    disk_bytes: Option<u64>,
    oom_kills: Option<u64>,
    /// What it may have.
    limits: Limits,
    /// What runs wrote to standard output and error.
    output_bytes: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub(super) struct RunUsage {
    run_id: RunId,
    sandbox: String,
    state: RunState,
    duration_ms: Option<u64>,
    /// CPU time of all its processes; known when it has ended.
    cpu_ms: Option<u64>,
    /// Highest memory of its largest process; known when it has ended.
    peak_memory_bytes: Option<u64>,
    /// From disks, by its processes; known when it has ended.
    io_read_bytes: Option<u64>,
    /// To files on disks, by its processes; known when it has ended.
    io_write_bytes: Option<u64>,
    /// Through the gate of its sandbox, from its begin to its end; known then, and not when another daemon
    /// was there at the begin.
    network: Option<NetworkUsage>,
    /// The most processes and threads of it that were seen at once, by looking now and then; known when it
    /// has ended.
    peak_pids: Option<u64>,
    stdout_bytes: u64,
    stderr_bytes: u64,
}

/// What went through the gate of a sandbox while a run went on.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub(super) struct NetworkUsage {
    sent_bytes: u64,
    received_bytes: u64,
    /// Connections that were made.
    connections: u64,
    /// Names, connections and requests that were denied.
    denied: u64,
    /// Other runs went on in the sandbox at the same time: what they moved is in these numbers, too.
    shared: bool,
}

impl From<RunNetwork> for NetworkUsage {
    fn from(network: RunNetwork) -> Self {
        let RunNetwork { sent_bytes, received_bytes, connections, denied, shared } = network;
        Self { sent_bytes, received_bytes, connections, denied, shared }
    }
}

/// The line in front of commands.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub(super) struct Queue {
    running: usize,
    waiting: usize,
    /// Since the daemon started.
    admitted: u64,
    /// Since then: told to come again.
    refused: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Output {
    sandboxes: Vec<SandboxUsage>,
    /// How many there are.
    total: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    run: Option<RunUsage>,
    /// Of this namespace; for the operator in `default`, of all.
    queue: Queue,
}

impl Operation for Usage {
    type Input = Input;
    type Output = Output;
    const NAME: &'static str = "usage";
    const TITLE: &'static str = "Usage";
    const DESCRIPTION: &'static str = "CPU, memory, disk, I/O, network and processes of sandboxes, or of one run; and how long the line is.";
    const ROUTE: Route = Route { method: Method::Get, path: "/usage" };
    const TOOLSET: Toolset = Toolset::Admin;
    const EFFECT: Effect = Effect::Reads;

    async fn call(engine: Engine, context: CallContext, input: Input) -> Result<Output> {
        let inner = &engine.inner;
        if input.sandbox.is_some() && input.run_id.is_some() {
            return Err(Error::new(Code::InvalidArgument, "sandbox and run_id are both given")
                .next("give one of the two"));
        }
        let load = match context.authority {
            Authority::Operator if context.namespace.is_default() => inner.admission.load(),
            Authority::Operator | Authority::Tenant => inner.admission.load_of(&context.namespace),
        };
        let queue = Queue {
            running: load.running,
            waiting: load.waiting,
            admitted: load.admitted,
            refused: load.refused,
        };
        if let Some(which) = input.run_id {
            let run = of_run(inner, inner.find_run(&context, &which)?)?;
            return Ok(Output { sandboxes: Vec::new(), total: 0, run: Some(run), queue });
        }
        let all = inner.one_or_all(&context, input.sandbox.as_ref())?;
        let asked = stream::iter(all.iter().take(MOST).cloned());
        let asked = asked.map(|sandbox| async move { of_sandbox(inner, &sandbox).await });
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
        network: row.network.map(NetworkUsage::from),
        peak_pids: row.peak_tasks,
        stdout_bytes: stdout,
        stderr_bytes: stderr,
        run_id: id,
    })
}

/// What a sandbox uses, and who says so.
async fn of_sandbox(inner: &Inner, sandbox: &Sandbox) -> Result<SandboxUsage> {
    let Measured { usage, by, io_note } = inner.usage_of(sandbox).await;
    let totals = inner.journal.store().run_totals(sandbox.id.as_str()).map_err(store_error)?;
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
