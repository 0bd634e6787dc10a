//! What a sandbox uses, in one place for all who ask: its cgroups as far as they count, and where nothing
//! counts, its agent, which looks at its processes.

use std::time::Duration;

use isle_api::ops::usage::MeasuredBy;

use super::Sandbox;
use isle_core::backend::Usage;

/// How long an agent may take to look around. One that is kept from running must not keep others.
const PATIENCE: Duration = Duration::from_secs(2);

/// What a sandbox uses, and who says so.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    pub(crate) usage: Usage,
    pub(crate) by: Option<MeasuredBy>,
    /// Why bytes from and to disks are not known, or are those of ended processes only.
    pub(crate) io_note: Option<&'static str>,
}

impl Sandbox {
    /// What a sandbox uses now. One that died uses nothing that could be asked for.
    pub(crate) async fn usage(&self) -> Measured {
        let mut usage = self.backend.usage(&self.id).await.unwrap_or_default();
        let by_kernel = usage.cpu_ms.is_some() || usage.memory_bytes.is_some();
        let mut by = by_kernel.then_some(MeasuredBy::Cgroups);
        let mut io_note = None;
        let complete = by_kernel && usage.pids.is_some() && usage.io_read_bytes.is_some();
        if !complete {
            let seen = match self.agent() {
                Ok(agent) => tokio::time::timeout(PATIENCE, agent.usage()).await.ok().and_then(Result::ok),
                Err(_) => None,
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
