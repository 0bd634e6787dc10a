//! Resource usage of processes: CPU time, memory and disk I/O. The kernel reports it to `wait4` for a
//! process that has exited, and in `/proc` for a running one; both include the children it waited for.

use std::fs;

use isle_wire::Transferred;
use minicbor::{Decode, Encode};

use crate::processes::{proc_stat, proc_tree};

/// Blocks as the kernel counts them for `getrusage`.
const BLOCK: u64 = 512;

/// Usage of one or several processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub(crate) struct ResourceUsage {
    #[n(0)]
    pub(crate) cpu_us: u64,
    /// Of the largest of them.
    #[n(1)]
    pub(crate) peak_rss_kib: u64,
    /// `None` when that of one of them could not be read.
    #[n(2)]
    pub(crate) transferred: Option<Transferred>,
}

impl ResourceUsage {
    /// No usage.
    pub(crate) const ZERO: Self = Self {
        cpu_us: 0,
        peak_rss_kib: 0,
        transferred: Some(Transferred { read_bytes: 0, written_bytes: 0 }),
    };
    /// Could not be read.
    pub(crate) const UNKNOWN: Self = Self { transferred: None, ..Self::ZERO };

    /// Of a process that was reaped.
    pub(crate) fn of_exited(usage: &libc::rusage) -> Self {
        let micros = |time: libc::timeval| {
            u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000 + u64::try_from(time.tv_usec).unwrap_or(0)
        };
        Self {
            cpu_us: micros(usage.ru_utime) + micros(usage.ru_stime),
            peak_rss_kib: u64::try_from(usage.ru_maxrss).unwrap_or(0),
            transferred: Some(Transferred {
                read_bytes: blocks(usage.ru_inblock),
                written_bytes: blocks(usage.ru_oublock),
            }),
        }
    }

    /// Of a running process.
    pub(crate) fn of_running(pid: i32) -> Self {
        let waited_for = proc_stat::read_stat(pid).map_or(0, |seen| seen.children_cpu_us());
        Self {
            cpu_us: proc_tree::cpu_time_us(pid).saturating_add(waited_for),
            peak_rss_kib: proc_tree::peak_rss_kib(pid),
            transferred: transferred_by(pid),
        }
    }

    /// The sum; of memory the maximum.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            cpu_us: self.cpu_us.saturating_add(other.cpu_us),
            peak_rss_kib: self.peak_rss_kib.max(other.peak_rss_kib),
            transferred: self.transferred.zip(other.transferred).map(|(one, two)| Transferred {
                read_bytes: one.read_bytes.saturating_add(two.read_bytes),
                written_bytes: one.written_bytes.saturating_add(two.written_bytes),
            }),
        }
    }

    /// The difference to an earlier reading. Memory is a peak and has none.
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            cpu_us: self.cpu_us.saturating_sub(earlier.cpu_us),
            peak_rss_kib: self.peak_rss_kib,
            transferred: self.transferred.zip(earlier.transferred).map(|(now, then)| Transferred {
                read_bytes: now.read_bytes.saturating_sub(then.read_bytes),
                written_bytes: now.written_bytes.saturating_sub(then.written_bytes),
            }),
        }
    }
}

/// Bytes of a number of blocks.
pub(crate) fn blocks(count: libc::c_long) -> u64 {
    u64::try_from(count).unwrap_or(0).saturating_mul(BLOCK)
}

/// Disk I/O of a running process; `None` when it cannot be read.
pub(crate) fn transferred_by(pid: i32) -> Option<Transferred> {
    let text = fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
    // Prefixes, because `cancelled_write_bytes` contains `write_bytes`.
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    Some(Transferred { read_bytes: field("read_bytes: ")?, written_bytes: field("write_bytes: ")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spent(cpu_us: u64, peak_rss_kib: u64, bytes: Option<u64>) -> ResourceUsage {
        let transferred =
            bytes.map(|bytes| Transferred { read_bytes: bytes, written_bytes: bytes.saturating_mul(2) });
        ResourceUsage { cpu_us, peak_rss_kib, transferred }
    }

    #[test]
    fn usage_is_added_up_and_memory_is_that_of_the_largest() {
        assert_eq!(spent(1, 8, Some(4)).and(spent(2, 5, Some(3))), spent(3, 8, Some(7)));
        assert_eq!(spent(5, 8, Some(7)).since(spent(2, 5, Some(3))), spent(3, 8, Some(4)));
        assert_eq!(spent(1, 8, Some(4)).and(ResourceUsage::ZERO), spent(1, 8, Some(4)));
    }

    #[test]
    fn unreadable_disk_io_is_not_taken_for_zero() {
        assert_eq!(spent(1, 8, Some(4)).and(ResourceUsage::UNKNOWN), spent(1, 8, None));
        assert_eq!(transferred_by(i32::MAX), None);
    }

    #[test]
    fn the_usage_of_a_running_process_is_read() {
        let own = ResourceUsage::of_running(proc_tree::own_pid());
        assert!(own.cpu_us > 0 && own.peak_rss_kib > 0 && own.transferred.is_some(), "{own:?}");
    }
}
