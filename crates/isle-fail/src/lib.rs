//! Failpoints: one after every side effect, so that a test can have the daemon die there, or be told
//! that the step failed although it was done. In a release build every call is empty and no name is
//! left; `tests/faults/release.sh` looks.

#[cfg(debug_assertions)]
mod armed;
mod points;

pub use points::Point;
#[cfg(debug_assertions)]
pub use points::{Can, Where};

/// A point where the daemon can die and nothing can fail: what follows has no way to say no.
#[cfg(debug_assertions)]
pub fn pass(point: Point) {
    debug_assert!(point.can() == Can::Die, "{} is declared as one that can fail", point.name());
    // An error was not asked for, and none is given.
    drop(armed::hit(point));
}

/// A point where the daemon can die, or the step can be told as failed.
#[cfg(debug_assertions)]
pub fn fail(point: Point) -> std::io::Result<()> {
    debug_assert!(point.can() == Can::Fail, "{} is declared as one that cannot fail", point.name());
    armed::hit(point)
}

/// How far tests have moved the wall clock, in milliseconds.
#[cfg(debug_assertions)]
#[must_use]
pub fn wall_clock_shift_ms() -> i64 {
    armed::wall_clock_shift_ms()
}

/// Nothing, in a release build.
#[cfg(not(debug_assertions))]
#[inline(always)]
pub const fn pass(_: Point) {}

/// Nothing, in a release build.
#[cfg(not(debug_assertions))]
#[inline(always)]
pub const fn fail(_: Point) -> std::io::Result<()> {
    Ok(())
}

/// Nothing, in a release build.
#[cfg(not(debug_assertions))]
#[inline(always)]
#[must_use]
pub const fn wall_clock_shift_ms() -> i64 {
    0
}
