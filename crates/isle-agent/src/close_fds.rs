//! Closing the descriptors a child does not need.

use std::os::fd::RawFd;

/// Closes every descriptor except the first three and `keep`.
pub(crate) fn close_all_but(keep: impl IntoIterator<Item = RawFd>) {
    let mut kept: Vec<u32> = keep.into_iter().filter_map(|one| u32::try_from(one).ok()).collect();
    kept.sort_unstable();
    let mut next = 3u32;
    for one in kept.into_iter().chain([u32::MAX]) {
        if one > next {
            // SAFETY: closes numbers nothing here will use again; their owners are in stack frames of
            // the agent, which this process never returns to.
            unsafe { libc::syscall(libc::SYS_close_range, next, one - 1, 0) };
        }
        next = next.max(one.saturating_add(1));
    }
}
