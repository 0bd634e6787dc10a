//! Failpoints: one after every side effect, so that a test can crash the daemon there, or make the step
//! return an error although it was done. In a release build every call is empty and no name is left;
//! `tests/faults/release.sh` checks that.

#[cfg(debug_assertions)]
mod armed;
mod points;

pub use points::Point;
#[cfg(debug_assertions)]
pub use points::{Can, Where};

/// A point where the daemon can crash, but cannot return an error.
#[cfg(debug_assertions)]
pub fn pass(point: Point) {
    debug_assert!(point.can() == Can::Die, "{} is declared as a point that can fail", point.name());
    // Errors cannot be armed here.
    drop(armed::hit(point));
}

/// A point where the daemon can crash, or return an error.
#[cfg(debug_assertions)]
pub fn fail(point: Point) -> std::io::Result<()> {
    debug_assert!(point.can() == Can::Fail, "{} is declared as a point that cannot fail", point.name());
    armed::hit(point)
}

/// The offset of the wall clock set by tests, in milliseconds.
#[cfg(debug_assertions)]
#[must_use]
pub fn wall_clock_shift_ms() -> i64 {
    armed::wall_clock_shift_ms()
}

/// Empty in a release build.
#[cfg(not(debug_assertions))]
#[inline(always)]
pub const fn pass(_: Point) {}

/// Empty in a release build.
#[cfg(not(debug_assertions))]
#[inline(always)]
pub const fn fail(_: Point) -> std::io::Result<()> {
    Ok(())
}

/// Empty in a release build.
#[cfg(not(debug_assertions))]
#[inline(always)]
#[must_use]
pub const fn wall_clock_shift_ms() -> i64 {
    0
}
