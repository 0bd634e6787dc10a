//! The outcome of an attack, and how it follows from the result of a system call.

use std::fmt::Display;
use std::io;

use crate::kernel::errno_name;

/// Whether the attack succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// It failed.
    Contained,
    /// It succeeded.
    Escaped,
    /// It could not be tried here.
    NotTestable,
}

impl Verdict {
    /// As in the JSON lines.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Contained => "contained",
            Self::Escaped => "escaped",
            Self::NotTestable => "not_testable",
        }
    }

    /// The verdict of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Contained, Self::Escaped, Self::NotTestable].into_iter().find(|one| one.as_str() == name)
    }
}

/// A verdict and its evidence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The verdict.
    pub verdict: Verdict,
    /// What was seen.
    pub seen: String,
}

/// A canary that the attack needs is missing.
#[derive(Debug)]
pub(crate) struct NoCanary(pub(crate) &'static str);

/// What an attack returns.
pub(crate) type Tried = Result<Outcome, NoCanary>;

impl Outcome {
    pub(crate) fn contained(seen: impl Display) -> Self {
        Self { verdict: Verdict::Contained, seen: seen.to_string() }
    }

    pub(crate) fn escaped(seen: impl Display) -> Self {
        Self { verdict: Verdict::Escaped, seen: seen.to_string() }
    }

    pub(crate) fn not_testable(seen: impl Display) -> Self {
        Self { verdict: Verdict::NotTestable, seen: seen.to_string() }
    }

    /// Success is an escape.
    pub(crate) fn of<T>(what: impl Display, result: &io::Result<T>) -> Self {
        match result {
            Ok(_) => Self::escaped(format_args!("{what} worked")),
            Err(error) => Self::contained(format_args!("{what}: {}", errno_name(error))),
        }
    }

    /// For calls with arguments that cannot work, so that nothing happens: any error but a denial means that
    /// the caller had the permission.
    pub(crate) fn of_right<T>(what: impl Display, result: &io::Result<T>) -> Self {
        match result {
            Ok(_) => Self::escaped(format_args!("{what} worked")),
            Err(error) if is_refusal(error) => Self::contained(format_args!("{what}: {}", errno_name(error))),
            Err(error) => Self::escaped(format_args!("{what}: {}, so it was allowed", errno_name(error))),
        }
    }

    /// Several attempts: an escape if any succeeded.
    pub(crate) fn any(outcomes: impl IntoIterator<Item = Self>) -> Self {
        let mut contained: Vec<String> = Vec::new();
        let mut untried: Vec<String> = Vec::new();
        for outcome in outcomes {
            match outcome.verdict {
                Verdict::Escaped => return outcome,
                Verdict::Contained => contained.push(outcome.seen),
                Verdict::NotTestable => untried.push(outcome.seen),
            }
        }
        match (contained.is_empty(), untried.is_empty()) {
            (true, true) => Self::contained("nothing to attack"),
            (true, false) => Self::not_testable(shortened(&untried)),
            (false, _) => Self::contained(shortened(&contained)),
        }
    }
}

/// Whether an error means that the call is not permitted or does not exist.
pub(crate) fn is_refusal(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EPERM | libc::EACCES | libc::ENOSYS | libc::EROFS | libc::EAFNOSUPPORT)
    )
}

fn shortened(seen: &[String]) -> String {
    const SHOWN: usize = 4;
    let mut text = seen.iter().take(SHOWN).cloned().collect::<Vec<_>>().join("; ");
    if seen.len() > SHOWN {
        text.push_str(&format!("; and {} more", seen.len() - SHOWN));
    }
    text
}
