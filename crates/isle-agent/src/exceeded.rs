//! Which limit of a run ended it, told from how its first process ended. A shell in between answers
//! with 128 and the signal's number when that is what ended its child.

use isle_wire::{Exceeded, Exit, RunLimits};

use crate::runs::Reaped;

/// The limit that ended the run, if one did.
pub(crate) fn exceeded(limits: &RunLimits, reaped: &Reaped) -> Option<Exceeded> {
    let ended_by = |signal: i32| match reaped.exit {
        Exit::Signal(number) => number == signal,
        Exit::Code(code) => code == 128 + signal,
    };
    if let Some(seconds) = limits.cpu_seconds {
        // Whoever survives the first signal is killed a second later.
        let used_up = reaped.spent.cpu_us >= seconds.saturating_mul(1_000_000);
        if ended_by(libc::SIGXCPU) || (used_up && ended_by(libc::SIGKILL)) {
            return Some(Exceeded::CpuSeconds(seconds));
        }
    }
    limits.file_size.filter(|_| ended_by(libc::SIGXFSZ)).map(Exceeded::FileSize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spent::Spent;

    fn ended(exit: Exit, cpu_us: u64) -> Option<Exceeded> {
        let limits = RunLimits { cpu_seconds: Some(2), file_size: Some(9), ..RunLimits::default() };
        exceeded(&limits, &Reaped { exit, spent: Spent { cpu_us, ..Spent::NOTHING } })
    }

    #[test]
    fn a_limit_is_told_from_an_end_that_looks_like_it() {
        let cpu = Some(Exceeded::CpuSeconds(2));
        assert_eq!(ended(Exit::Signal(libc::SIGXCPU), 0), cpu);
        assert_eq!(ended(Exit::Code(128 + libc::SIGXCPU), 0), cpu);
        assert_eq!(ended(Exit::Signal(libc::SIGKILL), 3_000_000), cpu);
        assert_eq!(ended(Exit::Signal(libc::SIGKILL), 1_000_000), None);
        assert_eq!(ended(Exit::Signal(libc::SIGXFSZ), 0), Some(Exceeded::FileSize(9)));
        assert_eq!(ended(Exit::Code(0), 9_000_000), None);
        let none = RunLimits::default();
        let reaped = Reaped { exit: Exit::Signal(libc::SIGXCPU), spent: Spent::NOTHING };
        assert_eq!(exceeded(&none, &reaped), None);
    }
}
