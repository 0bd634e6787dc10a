//! What processes took of the machine: CPU time, memory, and bytes from and to disks. The kernel tells it of
//! one that has ended to whoever waits for it, and of a living one in `/proc`; both count the children it
//! waited for.

use std::fs;

use isle_wire::Transferred;
use minicbor::{Decode, Encode};

use crate::family;
use crate::ration::look;

/// Blocks as the kernel counts them for `getrusage`.
const BLOCK: u64 = 512;

/// What one or several processes took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub(crate) struct Spent {
    #[n(0)]
    pub(crate) cpu_us: u64,
    /// Of the largest of them.
    #[n(1)]
    pub(crate) peak_rss_kib: u64,
    /// `None` when one of them could not be looked at.
    #[n(2)]
    pub(crate) transferred: Option<Transferred>,
}

impl Spent {
    /// Nothing at all.
    pub(crate) const NOTHING: Self = Self {
        cpu_us: 0,
        peak_rss_kib: 0,
        transferred: Some(Transferred { read_bytes: 0, written_bytes: 0 }),
    };
    /// Nobody could look.
    pub(crate) const UNKNOWN: Self = Self { transferred: None, ..Self::NOTHING };

    /// Of a process that was waited for.
    pub(crate) fn of_ended(usage: &libc::rusage) -> Self {
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

    /// Of a process that lives.
    pub(crate) fn of_living(pid: i32) -> Self {
        let waited_for = look::roughly(pid).map_or(0, |seen| seen.waited_for_us());
        Self {
            cpu_us: family::cpu_time_us(pid).saturating_add(waited_for),
            peak_rss_kib: family::peak_rss_kib(pid),
            transferred: transferred_by(pid),
        }
    }

    /// Both together.
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

    /// What came after an earlier look. Memory has no after: it is the highest so far.
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

/// Bytes of so many of the kernel's blocks.
pub(crate) fn blocks(count: libc::c_long) -> u64 {
    u64::try_from(count).unwrap_or(0).saturating_mul(BLOCK)
}

/// What a living process moved from and to disks; `None` when it may not be looked at.
pub(crate) fn transferred_by(pid: i32) -> Option<Transferred> {
    let text = fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
    // The line `cancelled_write_bytes` ends with the same words as another.
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    Some(Transferred { read_bytes: field("read_bytes: ")?, written_bytes: field("write_bytes: ")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spent(cpu_us: u64, peak_rss_kib: u64, bytes: Option<u64>) -> Spent {
        let transferred =
            bytes.map(|bytes| Transferred { read_bytes: bytes, written_bytes: bytes.saturating_mul(2) });
        Spent { cpu_us, peak_rss_kib, transferred }
    }

    #[test]
    fn what_several_took_is_added_up_and_memory_is_that_of_the_largest() {
        assert_eq!(spent(1, 8, Some(4)).and(spent(2, 5, Some(3))), spent(3, 8, Some(7)));
        assert_eq!(spent(5, 8, Some(7)).since(spent(2, 5, Some(3))), spent(3, 8, Some(4)));
        assert_eq!(spent(1, 8, Some(4)).and(Spent::NOTHING), spent(1, 8, Some(4)));
    }

    #[test]
    fn bytes_of_one_who_cannot_be_looked_at_are_not_taken_for_none() {
        assert_eq!(spent(1, 8, Some(4)).and(Spent::UNKNOWN), spent(1, 8, None));
        assert_eq!(transferred_by(i32::MAX), None);
    }

    #[test]
    fn a_living_process_is_looked_at() {
        let own = Spent::of_living(family::own_pid());
        assert!(own.cpu_us > 0 && own.peak_rss_kib > 0 && own.transferred.is_some(), "{own:?}");
    }
}
