//! Waiting for a condition instead of for a time. The deadline is generous: it only ends tests that
//! would never end.

use std::time::{Duration, Instant};

const DEADLINE: Duration = Duration::from_secs(60);
const PACE: Duration = Duration::from_millis(10);

/// Looks again and again until there is something.
pub fn until_some<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        std::thread::sleep(PACE);
    }
}

/// Looks again and again until it is so.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    until_some(what, || is_so().then_some(()));
}
