//! Watching the limits of a sandbox that no cgroup enforces, by polling `/proc`. While processes run, the
//! agent polls as often as the distance to a limit demands: at the memory limit the largest process is
//! killed, above the limit on processes the newest are, and when the CPU share is used up all are stopped
//! until there is more. This is watching, not enforcing, and the containment report says so. Without
//! processes nothing is polled.

mod cpu;
pub(crate) mod memory;
mod process_count;

use std::time::{Duration, Instant};

use isle_setup::request::{MakeRequest, Volume};

use crate::processes::proc_stat;
use crate::processes::proc_tree::own_pid;
use crate::serve::Shared;
use cpu::CpuAccount;
use memory::MemoryWatcher;

/// The longest interval between polls.
const MAX_INTERVAL: Duration = Duration::from_millis(250);
/// The shortest: polling itself must not use up the CPUs.
const MIN_INTERVAL: Duration = Duration::from_millis(2);
/// Polling takes at most this part of the time: one in ten.
const COST_FACTOR: u32 = 10;

/// The limits that the agent has to watch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WatchedLimits {
    memory: Option<u64>,
    cpus: Option<f64>,
    processes: Option<u64>,
    /// Whether the root of the sandbox is in memory.
    root_in_memory: bool,
}

impl WatchedLimits {
    /// `None` when cgroups enforce all limits.
    pub(crate) fn of(request: &MakeRequest) -> Option<Self> {
        let memory = Some(request.watch_memory).filter(|&bytes| bytes > 0);
        let thousandths = u32::try_from(request.watch_cpus).unwrap_or(u32::MAX);
        let cpus = Some(f64::from(thousandths) / 1000.0).filter(|&cpus| cpus > 0.0);
        let root_in_memory = matches!(request.volume, Volume::Memory);
        let processes = Some(request.watch_processes).filter(|&count| count > 0);
        let watches_something = memory.is_some() || cpus.is_some() || processes.is_some();
        watches_something.then_some(Self { memory, cpus, processes, root_in_memory })
    }
}

/// Watches the limits for as long as the agent runs.
pub(crate) async fn watch(agent: Shared, limits: WatchedLimits) {
    let mut memory = limits.memory.map(|limit| MemoryWatcher::new(limit, limits.root_in_memory));
    let mut cpu = limits.cpus.map(CpuAccount::new);
    request_short_time_slices();
    loop {
        let (began, cost) = (Instant::now(), PollCost::begin());
        let seen = proc_stat::sandbox_processes(&agent.mode.processes);
        if seen.is_empty() {
            if let Some(cpu) = &mut cpu {
                cpu.forget();
            }
            agent.runs.started().await;
            continue;
        }
        if agent.pause.is_on() {
            // No process runs, and none may be resumed.
            agent.pause.resumed().await;
            continue;
        }
        let mut pause = MAX_INTERVAL;
        if let Some(limit) = limits.processes {
            pause = pause.min(process_count::enforce(&agent, &seen, limit));
        }
        if let Some(memory) = &mut memory {
            pause = pause.min(memory.enforce(&agent, &seen, began));
        }
        if let Some(cpu) = &mut cpu {
            pause = pause.min(cpu.enforce(&seen, began));
        }
        let pause = pause.max(MIN_INTERVAL).max(cost.elapsed() * COST_FACTOR);
        // A new run is checked soon.
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = agent.runs.started() => tokio::time::sleep(MIN_INTERVAL).await,
        }
    }
}

/// CPU time spent on polling: on a busy machine it may take much longer in wall-clock time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PollCost(Duration);

impl PollCost {
    pub(crate) fn begin() -> Self {
        Self(own_cpu_time())
    }

    pub(crate) fn elapsed(self) -> Duration {
        own_cpu_time().saturating_sub(self.0)
    }
}

/// The agent has one thread.
fn own_cpu_time() -> Duration {
    proc_stat::cpu_clock(own_pid()).unwrap_or_default()
}

/// Asks the scheduler for short time slices, which are scheduled sooner: the agent may have to stop many
/// processes. Allowed without privileges from Linux 6.12 on; before, it is rejected or ignored. Children of
/// the agent are scheduled as usual.
fn request_short_time_slices() {
    const SLICE: Duration = Duration::from_micros(100);
    const RESET_ON_FORK: u64 = 1;
    #[repr(C)]
    struct Attributes {
        size: u32,
        policy: u32,
        flags: u64,
        nice: i32,
        priority: u32,
        runtime: u64,
        deadline: u64,
        period: u64,
    }
    let attributes = Attributes {
        size: 48,
        policy: libc::SCHED_OTHER.unsigned_abs(),
        flags: RESET_ON_FORK,
        // SAFETY: plain numbers.
        nice: unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) },
        priority: 0,
        runtime: u64::try_from(SLICE.as_nanos()).unwrap_or(0),
        deadline: 0,
        period: 0,
    };
    // SAFETY: the struct is the kernel's, of the size it says; this process has one thread.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
}
