//! One tree per controller.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use isle_core::backend::{Lifetime, Limits, Usage};

use super::{Holds, cpu_quota, field, number};

/// Our directory in each controller's tree that may be written.
#[derive(Debug)]
pub(crate) struct Trees {
    pub(super) memory: Option<PathBuf>,
    pub(super) pids: Option<PathBuf>,
    pub(super) cpu: Option<PathBuf>,
    pub(super) cpuacct: Option<PathBuf>,
    /// Directories of an earlier version beside ours.
    pub(super) earlier: Vec<PathBuf>,
}

impl Trees {
    pub(super) fn holds(&self) -> Holds {
        Holds { memory: self.memory.is_some(), pids: self.pids.is_some(), cpu: self.cpu.is_some() }
    }

    pub(super) fn bases(&self) -> impl Iterator<Item = &PathBuf> {
        let mut seen: Vec<&PathBuf> = Vec::new();
        for base in [&self.memory, &self.pids, &self.cpu, &self.cpuacct].into_iter().flatten() {
            // cpu and cpuacct are often one tree.
            if !seen.contains(&base) {
                seen.push(base);
            }
        }
        seen.into_iter()
    }

    pub(super) fn remove_bases(&self) {
        for base in self.bases() {
            fs::remove_dir(base).ok();
        }
    }

    pub(super) fn directories(&self, id: &str) -> Vec<PathBuf> {
        self.bases().map(|base| self.of(base, id)).collect()
    }

    /// The directory of a sandbox in one tree.
    fn of(&self, base: &Path, id: &str) -> PathBuf {
        let beside = self.earlier.iter().filter(|earlier| earlier.parent() == base.parent());
        let earlier = beside.map(|earlier| earlier.join(id)).find(|directory| directory.is_dir());
        earlier.unwrap_or_else(|| base.join(id))
    }

    pub(super) fn create(&self, id: &str, limits: &Limits, lifetime: Lifetime) -> io::Result<Vec<OwnedFd>> {
        let accounts = self.cpuacct.as_ref().filter(|base| self.cpu.as_ref() != Some(base));
        let mut members = Vec::new();
        for base in self.bases() {
            if lifetime == Lifetime::OneShot && accounts == Some(base) {
                continue;
            }
            let directory = base.join(id);
            if let Err(error) = fs::create_dir(&directory) {
                if error.kind() != io::ErrorKind::NotFound {
                    return Err(error);
                }
                // The base was removed by a daemon that ended meanwhile.
                fs::create_dir_all(&directory)?;
            }
            members.push(fs::OpenOptions::new().write(true).open(directory.join("tasks"))?.into());
        }
        self.set_limits(id, limits)?;
        Ok(members)
    }

    pub(super) fn set_limits(&self, id: &str, limits: &Limits) -> io::Result<()> {
        if let Some(memory) = &self.memory {
            let directory = self.of(memory, id);
            let bytes = limits.memory.0.to_string();
            // With swap accounting the memory limit must stay at or below the other one: raise that
            // one first, lower it last. Without swap accounting the file does not exist.
            fs::write(directory.join("memory.memsw.limit_in_bytes"), &bytes).ok();
            fs::write(directory.join("memory.limit_in_bytes"), &bytes)?;
            fs::write(directory.join("memory.memsw.limit_in_bytes"), &bytes).ok();
        }
        if let Some(pids) = &self.pids {
            fs::write(self.of(pids, id).join("pids.max"), limits.pids.to_string())?;
        }
        if let Some(cpu) = &self.cpu {
            fs::write(self.of(cpu, id).join("cpu.cfs_quota_us"), cpu_quota(limits.cpus).to_string())?;
        }
        Ok(())
    }

    pub(super) fn usage(&self, id: &str) -> Usage {
        let memory = |file: &str| self.memory.as_ref().and_then(|base| number(self.of(base, id).join(file)));
        Usage {
            cpu_ms: self
                .cpuacct
                .as_ref()
                .and_then(|base| number(self.of(base, id).join("cpuacct.usage")))
                .map(|nanoseconds| nanoseconds / 1_000_000),
            memory_bytes: memory("memory.usage_in_bytes"),
            memory_peak_bytes: memory("memory.max_usage_in_bytes"),
            pids: self
                .pids
                .as_ref()
                .and_then(|base| number(self.of(base, id).join("pids.current")))
                .and_then(|count| u32::try_from(count).ok()),
            disk_bytes: None,
            disk_inodes: None,
            disk_inodes_limit: None,
            disk_note: None,
            io_read_bytes: None,
            io_write_bytes: None,
            oom_kills: self.oom_counter(id).and_then(|path| field(path, "oom_kill")),
        }
    }

    pub(super) fn population(&self, id: &str) -> Option<PathBuf> {
        Some(self.of(self.pids.as_ref()?, id).join("pids.current"))
    }

    pub(super) fn fork_counter(&self, id: &str) -> Option<PathBuf> {
        Some(self.of(self.pids.as_ref()?, id).join("pids.events"))
    }

    pub(super) fn oom_counter(&self, id: &str) -> Option<PathBuf> {
        Some(self.of(self.memory.as_ref()?, id).join("memory.oom_control"))
    }
}
