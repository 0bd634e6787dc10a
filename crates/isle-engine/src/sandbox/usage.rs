//! What a sandbox uses, in one place for all who ask: its cgroups as far as they count, and where nothing
//! counts, its agent, which looks at its processes.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

use super::Sandbox;
use crate::backend::Usage;
use crate::engine::Inner;

/// How long an agent may take to look around. One that is kept from running must not keep others.
const PATIENCE: Duration = Duration::from_secs(2);

/// Who measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub(crate) enum MeasuredBy {
    /// The kernel, for the whole sandbox.
    Cgroups,
    /// There are no cgroups: the agent, by looking at all processes.
    Processes,
    /// Neither can be asked: the sum of what was seen of runs that have ended.
    EndedRuns,
}

/// What a sandbox uses, and who says so.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    pub(crate) usage: Usage,
    pub(crate) by: Option<MeasuredBy>,
    /// Why bytes from and to disks are not known, or are those of ended processes only.
    pub(crate) io_note: Option<&'static str>,
}

impl Inner {
    /// What a sandbox uses now. One that died uses nothing that could be asked for.
    pub(crate) async fn usage_of(&self, sandbox: &Sandbox) -> Measured {
        let mut usage = sandbox.backend.usage(&sandbox.id).await.unwrap_or_default();
        let by_kernel = usage.cpu_ms.is_some() || usage.memory_bytes.is_some();
        let mut by = by_kernel.then_some(MeasuredBy::Cgroups);
        let mut io_note = None;
        let complete = by_kernel && usage.pids.is_some() && usage.io_read_bytes.is_some();
        if !complete {
            let seen = match sandbox.agent() {
                Ok(agent) if agent.can_pause() => {
                    tokio::time::timeout(PATIENCE, agent.usage()).await.ok().and_then(Result::ok)
                }
                Ok(_) | Err(_) => None,
            };
            if let Some(seen) = seen {
                if usage.io_read_bytes.is_none() {
                    io_note = Some("no cgroup counts it: a process of another user counts when it has ended");
                }
                usage.cpu_ms = usage.cpu_ms.or(Some(seen.cpu_ms));
                usage.memory_bytes = usage.memory_bytes.or(Some(seen.memory_bytes));
                usage.pids = usage.pids.or(Some(seen.pids));
                usage.io_read_bytes = usage.io_read_bytes.or(Some(seen.io_read_bytes));
                usage.io_write_bytes = usage.io_write_bytes.or(Some(seen.io_write_bytes));
                by = by.or(Some(MeasuredBy::Processes));
            } else if usage.io_read_bytes.is_none() {
                io_note = Some("no cgroup counts it, and the agent of the sandbox cannot be asked");
            }
        }
        Measured { usage, by, io_note }
    }
}
