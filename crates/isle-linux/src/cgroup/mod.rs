//! Cgroups: limits that hold for a sandbox as a whole, and its accounts. Both layouts are served:
//! one unified tree (v2) and one tree per controller (v1).

mod detect;
mod v1;
mod v2;

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use isle_core::backend::{Lifetime, Limits, Usage};

pub(super) use detect::detect;

/// The cgroups this daemon may use.
#[derive(Debug)]
pub(super) enum Cgroups {
    /// One tree per controller.
    V1(v1::Trees),
    /// The unified tree.
    V2(v2::Tree),
    /// None that it may write.
    Absent {
        /// Why.
        reason: String,
        /// What would change that.
        fix: String,
    },
}

/// Which limits a layout can hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Holds {
    pub(super) memory: bool,
    pub(super) pids: bool,
    pub(super) cpu: bool,
}

impl Cgroups {
    pub(super) fn holds(&self) -> Holds {
        match self {
            Self::V1(trees) => trees.holds(),
            Self::V2(tree) => tree.holds(),
            Self::Absent { .. } => Holds { memory: false, pids: false, cpu: false },
        }
    }

    /// Makes the cgroups of a sandbox; returns what its first process enters them by. CPU time of a
    /// one-shot is known from its only run, so it is not accounted here.
    pub(super) fn create(&self, id: &str, limits: &Limits, lifetime: Lifetime) -> io::Result<Vec<OwnedFd>> {
        let made = match self {
            Self::V1(trees) => trees.create(id, limits, lifetime),
            Self::V2(tree) => tree.create(id, limits),
            Self::Absent { .. } => return Ok(Vec::new()),
        };
        if made.is_err() {
            self.remove_now(id);
        }
        made
    }

    /// Changes the limits of a sandbox that exists.
    pub(super) fn set_limits(&self, id: &str, limits: &Limits) -> io::Result<()> {
        match self {
            Self::V1(trees) => trees.set_limits(id, limits),
            Self::V2(tree) => tree.set_limits(id, limits),
            Self::Absent { .. } => Ok(()),
        }
    }

    pub(super) fn usage(&self, id: &str) -> Usage {
        match self {
            Self::V1(trees) => trees.usage(id),
            Self::V2(tree) => tree.usage(id),
            Self::Absent { .. } => Usage::default(),
        }
    }

    /// The files in which the kernel counts what the limits of a sandbox did to it.
    pub(super) fn counters(&self, id: &str) -> Counters {
        let (kills, forks) = match self {
            Self::V1(trees) => (trees.oom_counter(id), trees.fork_counter(id)),
            Self::V2(tree) => (Some(tree.oom_counter(id)), tree.fork_counter(id)),
            Self::Absent { .. } => (None, None),
        };
        let open = |path: Option<PathBuf>| fs::File::open(path?).ok();
        Counters { kills: open(kills), forks: open(forks) }
    }

    /// The file in which the kernel counts the processes of a sandbox, kept open.
    pub(super) fn population(&self, id: &str) -> Option<fs::File> {
        let path = match self {
            Self::V1(trees) => trees.population(id)?,
            Self::V2(tree) => tree.population(id)?,
            Self::Absent { .. } => return None,
        };
        fs::File::open(path).ok()
    }

    /// Looks for the cgroups of a sandbox under the name an earlier version gave them, too. They are found by
    /// the sandbox's id only, never listed: others may have used the same name.
    pub(super) fn adopt(&mut self, name: &str, earlier: &str) {
        let beside = |base: &Path| {
            let earlier = base.parent().filter(|_| base.ends_with(name))?.join(earlier);
            earlier.is_dir().then_some(earlier)
        };
        match self {
            Self::V1(trees) => trees.earlier = trees.bases().filter_map(|base| beside(base)).collect(),
            Self::V2(tree) => tree.earlier = beside(&tree.base),
            Self::Absent { .. } => {}
        }
    }

    /// Every directory that belongs to a sandbox.
    fn directories(&self, id: &str) -> Vec<PathBuf> {
        match self {
            Self::V1(trees) => trees.directories(id),
            Self::V2(tree) => vec![tree.directory(id)],
            Self::Absent { .. } => Vec::new(),
        }
    }

    /// Kills what is still in a sandbox's cgroups and removes them. On a thread of its own: the
    /// kernel serialises changes of cgroups.
    pub(super) async fn remove(&self, id: &str) -> io::Result<()> {
        let directories = self.directories(id);
        if directories.is_empty() {
            return Ok(());
        }
        tokio::task::spawn_blocking(move || {
            directories.iter().try_for_each(|directory| empty_and_remove(directory))
        })
        .await
        .map_err(io::Error::other)?
    }

    /// Kills every process of a sandbox, without waiting.
    pub(super) fn kill(&self, id: &str) {
        for directory in self.directories(id) {
            kill_members(&directory);
        }
    }

    fn remove_now(&self, id: &str) {
        for directory in self.directories(id) {
            remove_directory(&directory).ok();
        }
    }

    /// Sandboxes that have cgroups, in any tree: a daemon that died may have removed only some.
    pub(super) fn list(&self) -> Vec<String> {
        let bases = match self {
            Self::V1(trees) => trees.bases().cloned().collect(),
            Self::V2(tree) => vec![tree.base()],
            Self::Absent { .. } => Vec::new(),
        };
        let entries = bases.into_iter().filter_map(|base| fs::read_dir(base).ok()).flatten().flatten();
        entries
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| name.starts_with("sb_"))
            .collect()
    }

    /// Removes the directories above the sandboxes' when none is left.
    pub(super) fn remove_base(&self) {
        match self {
            Self::V1(trees) => trees.remove_bases(),
            Self::V2(tree) => tree.remove_base(),
            Self::Absent { .. } => {}
        }
    }
}

fn empty_and_remove(directory: &Path) -> io::Result<()> {
    let mut tries = 0;
    while let Err(error) = remove_directory(directory) {
        if error.raw_os_error() != Some(libc::EBUSY) || tries > 500 {
            return Err(error);
        }
        tries += 1;
        kill_members(directory);
        // A killed process leaves its cgroup when it is reaped, which nothing announces on v1.
        std::thread::sleep(Duration::from_millis(if tries < 20 { 1 } else { 10 }));
    }
    Ok(())
}

fn remove_directory(path: &Path) -> io::Result<()> {
    match fs::remove_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Kills every process of one cgroup: at once where the kernel can, else one by one.
fn kill_members(directory: &Path) {
    if fs::write(directory.join("cgroup.kill"), b"1").is_ok() {
        return;
    }
    let Ok(members) = fs::read_to_string(directory.join("cgroup.procs")) else { return };
    for pid in members.lines().filter_map(|line| line.parse::<i32>().ok()).filter(|&pid| pid > 1) {
        // SAFETY: plain numbers; the pid was in a cgroup that only ever held this sandbox, and
        // reading and killing are a moment apart. A reused pid could only be another new process
        // in between, which the kernel hands out last.
        unsafe { libc::kill(pid, libc::SIGKILL) };
    }
}

/// Where the kernel counts what the limits of a sandbox did to it. Kept open: each count is one system
/// call.
#[derive(Debug, Default)]
pub(super) struct Counters {
    kills: Option<fs::File>,
    forks: Option<fs::File>,
}

impl Counters {
    /// Processes killed for lack of memory.
    pub(super) fn oom_kills(&self) -> Option<u64> {
        count(self.kills.as_ref()?, "oom_kill ")
    }

    /// Processes and threads that were refused.
    pub(super) fn refused_forks(&self) -> Option<u64> {
        count(self.forks.as_ref()?, "max ")
    }
}

fn count(counter: &fs::File, name: &str) -> Option<u64> {
    let mut buffer = [0u8; 512];
    let count = counter.read_at(&mut buffer, 0).ok()?;
    let text = std::str::from_utf8(&buffer[..count]).ok()?;
    text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

/// Reads a file with one number.
fn number(path: PathBuf) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Reads `name value` out of a file of such lines.
fn field(path: PathBuf, name: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

/// CPU time per period for a number of CPUs, in microseconds of a 100 ms period.
fn cpu_quota(cpus: f64) -> u64 {
    let quota = (cpus * 100_000.0).round().clamp(1_000.0, 1e12);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "clamped to a positive range"
    )]
    let quota = quota as u64;
    quota
}
