//! Keeping the limits of a sandbox that no cgroup keeps, by looking. While something runs, the agent looks
//! as often as the room that is left demands: at its memory limit the largest process is killed, of too many
//! processes the newest are, and whoever has used up its share of the CPUs is stopped until there is more. That is watching, not enforcing, and
//! the containment report says so. Where nothing runs, nothing is looked at.

mod cpu;
pub(crate) mod look;
mod memory;
mod processes;
pub(crate) mod usage;

use std::time::{Duration, Instant};

use isle_linux::request::{MakeRequest, Volume};

use crate::family::own_pid;
use crate::serve::Shared;
use cpu::Shares;
use memory::Memory;

/// The longest time nobody looks.
const CALM: Duration = Duration::from_millis(250);
/// The shortest: looking itself must not be what the CPUs are used for.
const HASTE: Duration = Duration::from_millis(2);
/// Looking takes at most this part of the time.
const EFFORT: u32 = 10;

/// What a sandbox may have, as far as that is the agent's to keep.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ration {
    memory: Option<u64>,
    cpus: Option<f64>,
    processes: Option<u64>,
    /// Whether the root of the sandbox is in memory.
    root_in_memory: bool,
}

impl Ration {
    /// `None` when cgroups keep everything.
    pub(crate) fn of(request: &MakeRequest) -> Option<Self> {
        let memory = Some(request.watch_memory).filter(|&bytes| bytes > 0);
        let thousandths = u32::try_from(request.watch_cpus).unwrap_or(u32::MAX);
        let cpus = Some(f64::from(thousandths) / 1000.0).filter(|&cpus| cpus > 0.0);
        let root_in_memory = matches!(request.volume, Volume::Memory);
        let processes = Some(request.watch_processes).filter(|&count| count > 0);
        let keeps_something = memory.is_some() || cpus.is_some() || processes.is_some();
        keeps_something.then_some(Self { memory, cpus, processes, root_in_memory })
    }
}

/// Keeps a ration for as long as the sandbox lives.
pub(crate) async fn keep(agent: Shared, ration: Ration) {
    let mut memory = ration.memory.map(|limit| Memory::new(limit, ration.root_in_memory));
    let mut shares = ration.cpus.map(Shares::new);
    be_prompt();
    loop {
        let (began, effort) = (Instant::now(), Effort::begin());
        let seen = look::everybody();
        if seen.is_empty() {
            if let Some(shares) = &mut shares {
                shares.forget();
            }
            agent.runs.begun().await;
            continue;
        }
        if agent.pause.is_on() {
            // Nobody uses anything, and nobody may be let go on.
            agent.pause.off().await;
            continue;
        }
        let mut pause = CALM;
        if let Some(most) = ration.processes {
            pause = pause.min(processes::keep(&agent, &seen, most));
        }
        if let Some(memory) = &mut memory {
            pause = pause.min(memory.keep(&agent, &seen, began));
        }
        if let Some(shares) = &mut shares {
            pause = pause.min(shares.keep(&seen, began));
        }
        let pause = pause.max(HASTE).max(effort.spent() * EFFORT);
        // Whatever begins is looked at soon.
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = agent.runs.begun() => tokio::time::sleep(HASTE).await,
        }
    }
}

/// What looking costs, in CPU time: on a busy machine it may take much longer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effort(Duration);

impl Effort {
    pub(crate) fn begin() -> Self {
        Self(own_time())
    }

    pub(crate) fn spent(self) -> Duration {
        own_time().saturating_sub(self.0)
    }
}

/// The agent has one thread.
fn own_time() -> Duration {
    look::clock(own_pid()).unwrap_or_default()
}

/// Asks the scheduler for short turns, which come soon: whoever has to be stopped may be many. Anybody may
/// ask for that, from Linux 6.12 on; before, it is refused or ignored, and the agent takes its turn as
/// everybody does. What the agent starts is scheduled as usual.
fn be_prompt() {
    const TURN: Duration = Duration::from_micros(100);
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
        runtime: u64::try_from(TURN.as_nanos()).unwrap_or(0),
        deadline: 0,
        period: 0,
    };
    // SAFETY: the struct is the kernel's, of the size it says; this process has one thread.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
}
