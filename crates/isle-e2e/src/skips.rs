//! Tests that cannot run here. A skip is never silent: it is printed, and where `ISLE_TEST_RUN` names the
//! directory of a run it is written there, so that the totals at the end do not count it as passed.
//! With `ISLE_NO_SKIP=1` a skip is a failure, unless a run as another user makes up for it.

use std::io::Write;
use std::path::PathBuf;

use serde_json::json;

/// Why a test cannot run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    reason: String,
    cause: Cause,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    Host,
    User,
}

impl Missing {
    /// This host lacks something that could be installed or another host has.
    pub fn on_host(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), cause: Cause::Host }
    }

    /// It cannot be done as this user; the run as the other one (root, or an ordinary user) does it.
    pub fn for_user(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), cause: Cause::User }
    }
}

/// What this user can do only when the condition holds, with the reason when it does not.
pub fn needs_user(condition: bool, reason: impl Into<String>) -> Result<(), Missing> {
    if condition { Ok(()) } else { Err(Missing::for_user(reason)) }
}

/// What only root can do, as "mount a small disk".
pub fn needs_root(what: &str) -> Result<(), Missing> {
    needs_user(rustix::process::geteuid().is_root(), format!("only root can {what}"))
}

/// Whether a part of a test can be done; records it where it cannot.
pub fn part(needed: Result<(), Missing>) -> bool {
    let missing = needed.err();
    missing.iter().for_each(|missing| record(missing, Extent::Part));
    missing.is_none()
}

/// Whether all of a test is skipped, or one of the things it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// Nothing of it counts.
    Whole,
    /// The rest of it counts.
    Part,
}

/// Writes a skip down; what the macros expand to.
#[doc(hidden)]
pub fn record(missing: &Missing, extent: Extent) {
    let Missing { reason, cause } = missing;
    let required = std::env::var_os("ISLE_NO_SKIP").is_some_and(|value| value == "1");
    assert!(!required || *cause == Cause::User, "skipped, and ISLE_NO_SKIP=1 forbids it: {reason}");
    println!("skipped: {reason}");
    let Some(run) = crate::run::directory() else { return };
    let record = json!({
        "program": test_program(),
        "test": std::thread::current().name().unwrap_or("?"),
        "user": if rustix::process::geteuid().is_root() { "root" } else { "ordinary user" },
        "reason": reason,
        "cause": if *cause == Cause::User { "user" } else { "host" },
        "partly": extent == Extent::Part,
    });
    // One write, so that tests that run side by side do not mix their lines.
    let file = std::fs::OpenOptions::new().append(true).create(true).open(run.join("skips.jsonl"));
    file.and_then(|mut file| file.write_all(format!("{record}\n").as_bytes()))
        .unwrap_or_else(|why| panic!("the skip could not be recorded in {}: {why}", run.display()));
}

/// The name of the test program, without the hash that cargo adds.
fn test_program() -> String {
    let path: PathBuf = std::env::current_exe().unwrap_or_default();
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    name.rsplit_once('-').map_or(name.clone(), |(name, _)| name.to_owned())
}

/// Skips the test this stands in, with a reason as for `format!`.
#[macro_export]
macro_rules! skip {
    ($($reason:tt)+) => {{
        $crate::skips::record(&$crate::Missing::on_host(format!($($reason)+)), $crate::skips::Extent::Whole);
        return;
    }};
}

/// Leaves out one of the things a test does, and continues.
#[macro_export]
macro_rules! skip_part {
    ($($reason:tt)+) => {
        $crate::skips::record(&$crate::Missing::on_host(format!($($reason)+)), $crate::skips::Extent::Part)
    };
}

/// The value of a `Result<_, Missing>`; where it is missing, the test this stands in is skipped.
/// With a condition and a reason: skips the test unless the condition holds.
#[macro_export]
macro_rules! require {
    ($needed:expr $(,)?) => {
        match $needed {
            Ok(value) => value,
            Err(missing) => {
                $crate::skips::record(&missing, $crate::skips::Extent::Whole);
                return;
            }
        }
    };
    ($condition:expr, $($reason:tt)+) => {
        if !$condition {
            $crate::skip!($($reason)+);
        }
    };
}
