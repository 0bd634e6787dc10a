//! A process that tries to outlive the command that started it: two forks, a session of its own, no
//! signal heard. It goes by itself after a while, so that nobody has to look for it.

use std::process::ExitCode;
use std::time::Duration;

const STAYS: Duration = Duration::from_secs(60);

/// Leaves one behind. Its mark is in the arguments of this program, which it keeps.
pub(crate) fn leave() -> ExitCode {
    for _ in 0..2 {
        // SAFETY: one thread only, so the child may go on as a program of its own.
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
    // Nobody is kept waiting for the end of the output.
    for number in 0..3 {
        library_call!(close(number)).ok();
    }
    std::thread::sleep(STAYS);
    ExitCode::SUCCESS
}
