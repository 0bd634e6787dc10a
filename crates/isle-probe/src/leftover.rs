//! A process that tries to outlive the command that started it: two forks, a new session, signals ignored. It
//! exits after a while, so that it need not be cleaned up.

use std::process::ExitCode;
use std::time::Duration;

const STAYS: Duration = Duration::from_secs(60);

/// Starts one. It is recognized by the arguments of this program, which it keeps.
pub(crate) fn leave() -> ExitCode {
    for _ in 0..2 {
        // SAFETY: there is only one thread, so the child may run any code.
        match unsafe { libc::fork() } {
            -1 => return ExitCode::FAILURE,
            0 => {
                library_call!(setsid()).ok();
            }
            _ => return ExitCode::SUCCESS,
        }
    }
    for signal in [libc::SIGHUP, libc::SIGTERM, libc::SIGINT] {
        // SAFETY: ignores a signal.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    // Close the output, so that its reader sees the end.
    for number in 0..3 {
        library_call!(close(number)).ok();
    }
    std::thread::sleep(STAYS);
    ExitCode::SUCCESS
}
