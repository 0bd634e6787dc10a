//! The unified tree.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use isle_core::backend::{Limits, Usage};

use super::{Holds, cpu_quota, field, number};

/// Our directory in the unified tree, with the controllers it was given.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(super) base: PathBuf,
    pub(super) holds: Holds,
    /// The directory of an earlier version beside ours.
    pub(super) earlier: Option<PathBuf>,
}

impl Tree {
    pub(super) fn holds(&self) -> Holds {
        self.holds
    }

    pub(super) fn base(&self) -> PathBuf {
        self.base.clone()
    }

    pub(super) fn remove_base(&self) {
        fs::remove_dir(&self.base).ok();
    }

    pub(super) fn directory(&self, id: &str) -> PathBuf {
        let earlier = self.earlier.as_ref().map(|earlier| earlier.join(id));
        earlier.filter(|directory| directory.is_dir()).unwrap_or_else(|| self.base.join(id))
    }

    pub(super) fn create(&self, id: &str, limits: &Limits) -> io::Result<Vec<OwnedFd>> {
        let directory = self.directory(id);
        fs::create_dir(&directory)?;
        self.set_limits(id, limits)?;
        Ok(vec![fs::File::open(&directory)?.into()])
    }

    pub(super) fn set_limits(&self, id: &str, limits: &Limits) -> io::Result<()> {
        let directory = self.directory(id);
        if self.holds.memory {
            fs::write(directory.join("memory.max"), limits.memory.0.to_string())?;
            // Absent on kernels without swap.
            fs::write(directory.join("memory.swap.max"), b"0").ok();
        }
        if self.holds.pids {
            fs::write(directory.join("pids.max"), limits.pids.to_string())?;
        }
        if self.holds.cpu {
            fs::write(directory.join("cpu.max"), format!("{} 100000", cpu_quota(limits.cpus)))?;
        }
        Ok(())
    }

    pub(super) fn usage(&self, id: &str) -> Usage {
        let directory = self.directory(id);
        Usage {
            cpu_ms: field(directory.join("cpu.stat"), "usage_usec").map(|micros| micros / 1000),
            memory_bytes: number(directory.join("memory.current")),
            memory_peak_bytes: number(directory.join("memory.peak")),
            pids: number(directory.join("pids.current")).and_then(|count| u32::try_from(count).ok()),
            disk_bytes: None,
            disk_inodes: None,
            disk_inodes_limit: None,
            disk_note: None,
            io_read_bytes: summed(&directory, "rbytes="),
            io_write_bytes: summed(&directory, "wbytes="),
            oom_kills: field(self.oom_counter(id), "oom_kill"),
        }
    }

    pub(super) fn population(&self, id: &str) -> Option<PathBuf> {
        self.holds.pids.then(|| self.directory(id).join("pids.current"))
    }

    pub(super) fn fork_counter(&self, id: &str) -> Option<PathBuf> {
        self.holds.pids.then(|| self.directory(id).join("pids.events"))
    }

    pub(super) fn oom_counter(&self, id: &str) -> PathBuf {
        self.directory(id).join("memory.events")
    }
}

/// A field of `io.stat` over all devices; `None` where the controller is not on.
fn summed(directory: &Path, key: &str) -> Option<u64> {
    let text = fs::read_to_string(directory.join("io.stat")).ok()?;
    let values = text.split_whitespace().filter_map(|word| word.strip_prefix(key)?.parse::<u64>().ok());
    Some(values.fold(0, u64::saturating_add))
}
