//! Clocks. Wall-clock time is for people and for records; a deadline is kept as a reading of the boot
//! clock together with the boot id, because neither jumps when the time is set.

use std::time::{SystemTime, UNIX_EPOCH};

/// Milliseconds since the epoch, as the wall clock has it.
#[must_use]
pub fn wall_clock_ms() -> i64 {
    let now = match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_millis()).map_or(i64::MIN, |millis| -millis),
    };
    now.saturating_add(isle_fail::wall_clock_shift_ms())
}

/// Milliseconds since this machine booted, time asleep included. Never goes back, and setting the wall
/// clock does not move it. Comparable only between readings with the same [`boot_id`].
#[must_use]
pub fn boot_clock_ms() -> i64 {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let clock = rustix::time::ClockId::Boottime;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let clock = rustix::time::ClockId::Monotonic;
    let now = rustix::time::clock_gettime(clock);
    now.tv_sec * 1_000 + now.tv_nsec / 1_000_000
}

/// Which boot of the machine this is; `None` where the host does not say. A deadline read back under
/// another boot id must be recomputed from wall-clock time.
#[must_use]
pub fn boot_id() -> Option<String> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let id = text.trim();
    (!id.is_empty()).then(|| id.to_owned())
}
