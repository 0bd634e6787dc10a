//! Which limits a run ran into. Looked at only when it did not end well: counters of the kernel where
//! there are some, what is full, and, for limits that nothing counts, the command's own words.

use isle_wire::{Ended, Exceeded, Exit, Full, FullResource};

use super::Run;
use isle_api::shapes::{Evidence, LimitHit, LimitName, RunState};
use isle_core::backend::{DiskLimit, DiskStops, Lifetime, OPEN_FILES};
use isle_core::values::{ByteSize, Span};

const FORK_REFUSED: &[&str] =
    &["fork: Resource temporarily unavailable", "Cannot fork", "can't start new thread"];
const MEMORY_REFUSED: &[&str] = &["Cannot allocate memory", "MemoryError", "memory exhausted"];
/// How much of the end of standard error is searched.
const LAST_WORDS: usize = 8 * 1024;
/// Share of its CPUs, in percent, from which on a run that was too slow was held back by them.
const BUSY: u64 = 80;

/// What the kernel has counted against a sandbox at some moment.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counters {
    pub(crate) oom_kills: Option<u64>,
    pub(crate) refused_forks: Option<u64>,
    disk_stops: DiskStops,
}

impl Counters {
    /// Reads them; with the native backend, two short reads of files that are open already.
    pub(crate) async fn read(run: &Run) -> Self {
        let (backend, id) = (&run.sandbox.backend, &run.sandbox.id);
        Self {
            oom_kills: backend.oom_kills(id).await,
            refused_forks: backend.refused_forks(id).await,
            disk_stops: backend.disk_stops(id).await,
        }
    }
}

/// Whether a counter went up.
fn rose(before: Option<u64>, after: Option<u64>) -> bool {
    matches!((before, after), (Some(before), Some(after)) if after > before)
}

/// Whether a sandbox was stopped for its disk limit during a run. It may have been resumed already: the files of a
/// run that was killed no longer count.
fn was_stopped(before: DiskStops, after: DiskStops) -> bool {
    before.now || after.now || after.count > before.count
}

/// What happened to the sandbox while a run went on.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Happenings {
    /// The kernel, or the agent in its place, killed a process for lack of memory.
    pub(crate) ran_out_of_memory: bool,
    /// The kernel refused a process or thread, or the agent in its place ended one.
    refused_a_fork: bool,
    /// Nothing counts those.
    counts_memory: bool,
    counts_forks: bool,
    stopped_for_disk: bool,
}

impl Happenings {
    /// Compares with what was counted when the run began. What does not matter to a run that ended
    /// well is not looked at then.
    pub(crate) async fn since(before: Counters, run: &Run, ended: &Ended) -> Self {
        let (backend, id) = (&run.sandbox.backend, &run.sandbox.id);
        let memory = Self {
            ran_out_of_memory: ended.killed_for_memory > 0
                || rose(before.oom_kills, backend.oom_kills(id).await),
            counts_memory: before.oom_kills.is_some(),
            counts_forks: before.refused_forks.is_some(),
            ..Self::default()
        };
        if ended.exit == Exit::Code(0) && !ended.timed_out {
            return memory;
        }
        Self {
            refused_a_fork: ended.killed_for_processes > 0
                || rose(before.refused_forks, backend.refused_forks(id).await),
            stopped_for_disk: was_stopped(before.disk_stops, backend.disk_stops(id).await),
            ..memory
        }
    }
}

/// The limits a run ran into that ended in `state`.
pub(crate) fn limits_hit(run: &Run, ended: &Ended, state: RunState, happenings: Happenings) -> Vec<LimitHit> {
    let spec = &run.sandbox.spec;
    let limits = &spec.limits;
    let mut hit = Vec::new();
    if happenings.ran_out_of_memory {
        hit.push(one(run, LimitName::Memory, limits.memory.to_string(), Evidence::Counted));
    }
    if state == RunState::Completed {
        return hit;
    }
    if state == RunState::TimedOut {
        let time = run.timeout.map_or_else(|| "unknown".to_owned(), |timeout| timeout.to_string());
        hit.push(one(run, LimitName::Timeout, time, Evidence::Counted));
        if was_busy(ended, limits.cpus) {
            hit.push(one(run, LimitName::Cpus, limits.cpus.to_string(), Evidence::Counted));
        }
    }
    if happenings.refused_a_fork {
        hit.push(one(run, LimitName::Pids, limits.pids.to_string(), Evidence::Counted));
    }
    if happenings.stopped_for_disk {
        hit.push(one(run, LimitName::Disk, limits.disk.to_string(), Evidence::Counted));
    }
    hit.extend(ended.full.iter().map(|full| room_hit(run, *full)));
    let words = LastWords::of(run);
    let file_size = run
        .limits
        .file_size
        .or((run.sandbox.capabilities.disk_limit == DiskLimit::PerFile).then_some(limits.disk));
    match (ended.exceeded, file_size) {
        (Some(exceeded), _) => hit.push(own(run, exceeded)),
        (None, Some(most)) if words.say(&["File too large"]) => {
            hit.push(own_or(run, LimitName::FileSize, run.limits.file_size, most.to_string()));
        }
        (None, _) => {}
    }
    if words.say(&["Too many open files"]) {
        let most = run.limits.open_files.map_or(OPEN_FILES, |own| OPEN_FILES.min(own.into()));
        let value = format!("{most} per process");
        hit.push(own_or(run, LimitName::OpenFiles, run.limits.open_files, value));
    }
    if let Some(processes) = run.limits.processes
        && !happenings.refused_a_fork
        && words.say(FORK_REFUSED)
    {
        hit.push(own_or(run, LimitName::Pids, Some(processes), processes.to_string()));
    }
    if let Some(memory) = run.limits.memory
        && !happenings.ran_out_of_memory
        && words.say(MEMORY_REFUSED)
    {
        hit.push(own_or(run, LimitName::Memory, Some(memory), format!("{memory} per process")));
    }
    if !happenings.counts_forks && run.limits.processes.is_none() && words.say(FORK_REFUSED) {
        hit.push(one(run, LimitName::Pids, limits.pids.to_string(), Evidence::Said));
    }
    if !happenings.counts_memory && run.limits.memory.is_none() && words.say(MEMORY_REFUSED) {
        hit.push(one(run, LimitName::Memory, limits.memory.to_string(), Evidence::Said));
    }
    hit
}

/// Marks what was counted against the whole sandbox while other runs went on in it: it may be theirs.
pub(crate) fn mark_shared(hits: &mut [LimitHit], ended: &Ended, state: RunState) {
    for hit in hits.iter_mut().filter(|hit| hit.evidence == Evidence::Counted) {
        hit.shared = match hit.limit {
            LimitName::Memory => ended.killed_for_memory == 0 && state != RunState::OomKilled,
            LimitName::Pids => ended.killed_for_processes == 0,
            LimitName::Disk => true,
            _ => false,
        };
    }
}

/// The sentence about a limit, for people.
pub(crate) fn sentence(hit: &LimitHit) -> String {
    let LimitHit { limit, value, evidence, raise, shared: _ } = hit;
    let what = match limit {
        LimitName::Memory => format!("the sandbox's memory limit of {value} was reached"),
        LimitName::Pids => format!("the sandbox's limit of {value} processes and threads was reached"),
        LimitName::Disk => format!("the sandbox's disk of {value} is full"),
        LimitName::Inodes => format!("the sandbox's disk has no room for more than {value} files"),
        LimitName::SharedMemory => format!("/dev/shm of {value} is full"),
        LimitName::OpenFiles => format!("the limit of open files was reached ({value})"),
        LimitName::FileSize => format!("a file may have at most {value}"),
        LimitName::Cpus => format!("it used all of its {value} CPUs"),
        LimitName::CpuTime => format!("a process used up its CPU time of {value}"),
        LimitName::Timeout => format!("its time of {value} was up"),
    };
    match evidence {
        // Words may be about something else, or anybody's.
        Evidence::Said => format!("by its own last words, {what}; {raise}"),
        Evidence::Counted | Evidence::Full => format!("{what}; {raise}"),
    }
}

fn one(run: &Run, limit: LimitName, value: String, evidence: Evidence) -> LimitHit {
    LimitHit { limit, value, evidence, raise: raise(limit, run.sandbox.spec.lifetime), shared: false }
}

/// How a limit is raised.
fn raise(limit: LimitName, lifetime: Lifetime) -> String {
    let setting = |name: &str| match lifetime {
        Lifetime::OneShot => format!("use less, or give the run more `{name}`"),
        Lifetime::Named => {
            format!(
                "use less, or destroy the sandbox and make it anew with more `{name}`; its workspace stays"
            )
        }
    };
    match limit {
        LimitName::Memory => setting("memory"),
        LimitName::Pids => setting("pids"),
        LimitName::Cpus => setting("cpus"),
        LimitName::Disk | LimitName::Inodes => match lifetime {
            Lifetime::OneShot => "remove files, or give the run more `disk`".into(),
            Lifetime::Named => {
                "remove files; for a larger disk copy out what you need, destroy the sandbox with `wipe`, and make it anew with more `disk`".into()
            }
        },
        LimitName::SharedMemory => "remove files there, or keep them in /tmp, which is as large as `disk`".into(),
        LimitName::OpenFiles => "close files that are no longer needed, or spread them over several processes; it cannot be raised".into(),
        LimitName::FileSize => setting("disk"),
        LimitName::CpuTime => own_raise(limit),
        LimitName::Timeout => "raise `timeout`, or split the work".into(),
    }
}

/// The limit of the run itself, or of each of its processes, that the agent saw end it.
fn own(run: &Run, exceeded: Exceeded) -> LimitHit {
    match exceeded {
        Exceeded::CpuSeconds(seconds) => {
            one(run, LimitName::CpuTime, Span::seconds(seconds).to_string(), Evidence::Counted)
        }
        Exceeded::FileSize(bytes) => {
            // Where the disk limit applies to each file, the sandbox's own limit is as large as its disk.
            let sandbox = &run.sandbox;
            let is_own =
                sandbox.capabilities.disk_limit != DiskLimit::PerFile || bytes < sandbox.spec.limits.disk.0;
            let hit = one(run, LimitName::FileSize, ByteSize(bytes).to_string(), Evidence::Counted);
            if is_own { LimitHit { raise: own_raise(LimitName::FileSize), ..hit } } else { hit }
        }
    }
}

/// A limit the command spoke of: its run's own, when it has one.
fn own_or<T>(run: &Run, limit: LimitName, own: Option<T>, value: String) -> LimitHit {
    let hit = one(run, limit, value, Evidence::Said);
    if own.is_some() { LimitHit { raise: own_raise(limit), ..hit } } else { hit }
}

/// How a limit of the run itself is raised.
fn own_raise(limit: LimitName) -> String {
    let name = match limit {
        LimitName::CpuTime => "cpu",
        LimitName::FileSize => "file_size",
        LimitName::OpenFiles => "open_files",
        LimitName::Pids => "processes",
        LimitName::Memory
        | LimitName::Disk
        | LimitName::Inodes
        | LimitName::SharedMemory
        | LimitName::Cpus
        | LimitName::Timeout => "memory",
    };
    format!("use less, or raise `limits.{name}` of the run")
}

fn room_hit(run: &Run, full: Full) -> LimitHit {
    let bytes = |full: Full| ByteSize(full.limit).to_string();
    let disk = run.sandbox.spec.limits.disk;
    match full.resource {
        // A file system much larger than the limit is the host's own, under a sandbox without a quota.
        FullResource::Disk if full.limit > disk.0.saturating_mul(2) => LimitHit {
            raise: "free space on the host".into(),
            ..one(run, LimitName::Disk, format!("{} (the host's)", bytes(full)), Evidence::Full)
        },
        FullResource::Disk => one(run, LimitName::Disk, disk.to_string(), Evidence::Full),
        FullResource::Inodes => one(run, LimitName::Inodes, full.limit.to_string(), Evidence::Full),
        FullResource::SharedMemory => one(run, LimitName::SharedMemory, bytes(full), Evidence::Full),
    }
}

/// Whether a run used (almost) all the CPU time it could have had.
#[expect(
    clippy::cast_precision_loss,
    reason = "microseconds of a run are far below what a float counts exactly"
)]
fn was_busy(ended: &Ended, cpus: f64) -> bool {
    ended.cpu_us as f64 * 100.0 >= cpus * ended.wall_us as f64 * BUSY as f64
}

/// What a command that did not end well said of its disk. Nothing counts such errors, so its words have
/// to do.
pub(crate) fn broken_disk(run: &Run) -> Option<String> {
    LastWords::of(run).say(&["Input/output error", "Structure needs cleaning"]).then(|| {
        "by its own last words, the disk under the sandbox gives errors; the host's kernel log tells more, \
         and destroying the sandbox works"
            .to_owned()
    })
}

/// The end of standard error.
struct LastWords(String);

impl LastWords {
    fn of(run: &Run) -> Self {
        let bytes = crate::lock(&run.live).stderr.last(LAST_WORDS);
        Self(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn say(&self, any: &[&str]) -> bool {
        any.iter().any(|words| self.0.contains(words))
    }
}
