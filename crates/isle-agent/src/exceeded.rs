//! Which limit a run exceeded, derived from how its first process exited. A shell exits with 128 plus the
//! signal's number when a signal killed its child.

use isle_wire::{Exceeded, Exit, RunLimits};

use crate::run::Reaped;

/// The limit that the run exceeded, if any.
pub(crate) fn exceeded(limits: &RunLimits, reaped: &Reaped) -> Option<Exceeded> {
    let killed_by = |signal: i32| match reaped.exit {
        Exit::Signal(number) => number == signal,
        Exit::Code(code) => code == 128 + signal,
    };
    if let Some(seconds) = limits.cpu_seconds {
        // A process that survives SIGXCPU is killed a second later.
        let used_up = reaped.usage.cpu_us >= seconds.saturating_mul(1_000_000);
        if killed_by(libc::SIGXCPU) || (used_up && killed_by(libc::SIGKILL)) {
            return Some(Exceeded::CpuSeconds(seconds));
        }
    }
    limits.file_size.filter(|_| killed_by(libc::SIGXFSZ)).map(Exceeded::FileSize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource_usage::ResourceUsage;

    fn result(exit: Exit, cpu_us: u64) -> Option<Exceeded> {
        let limits = RunLimits { cpu_seconds: Some(2), file_size: Some(9), ..RunLimits::default() };
        exceeded(&limits, &Reaped { exit, usage: ResourceUsage { cpu_us, ..ResourceUsage::ZERO } })
    }

    #[test]
    fn a_limit_is_distinguished_from_a_similar_exit() {
        let cpu = Some(Exceeded::CpuSeconds(2));
        assert_eq!(result(Exit::Signal(libc::SIGXCPU), 0), cpu);
        assert_eq!(result(Exit::Code(128 + libc::SIGXCPU), 0), cpu);
        assert_eq!(result(Exit::Signal(libc::SIGKILL), 3_000_000), cpu);
        assert_eq!(result(Exit::Signal(libc::SIGKILL), 1_000_000), None);
        assert_eq!(result(Exit::Signal(libc::SIGXFSZ), 0), Some(Exceeded::FileSize(9)));
        assert_eq!(result(Exit::Code(0), 9_000_000), None);
        let none = RunLimits::default();
        let reaped = Reaped { exit: Exit::Signal(libc::SIGXCPU), usage: ResourceUsage::ZERO };
        assert_eq!(exceeded(&none, &reaped), None);
    }
}
