//! A command on a new terminal, as for an interactive user: attacks on the terminal need one. Standard output
//! is not changed.

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

/// Runs it and returns its status.
pub(crate) fn run(arguments: Vec<String>) -> ExitCode {
    let Some((program, rest)) = arguments.split_first() else { return ExitCode::from(2) };
    let opened = library_call!(posix_openpt(libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC));
    let master = match crate::kernel::descriptor(opened) {
        Ok(master) => master,
        Err(error) => {
            eprintln!("isle-probe: no terminal: {error}");
            return ExitCode::FAILURE;
        }
    };
    let number = std::os::fd::AsRawFd::as_raw_fd(&master);
    let mut name: [libc::c_char; 64] = [0; 64];
    let named = library_call!(grantpt(number))
        .and_then(|_| library_call!(unlockpt(number)))
        .and_then(|_| library_call!(ptsname_r(number, name.as_mut_ptr(), name.len())));
    if let Err(error) = named {
        eprintln!("isle-probe: no terminal: {error}");
        return ExitCode::FAILURE;
    }
    let mut command = Command::new(program);
    command.args(rest);
    let take_terminal = move || {
        library_call!(setsid())?;
        let terminal = i32::try_from(library_call!(open(name.as_ptr(), libc::O_RDWR))?).unwrap_or(-1);
        library_call!(ioctl(terminal, libc::TIOCSCTTY, 0))?;
        library_call!(dup2(terminal, 0))?;
        library_call!(close(terminal)).map(drop)
    };
    // SAFETY: raw system calls only, with a name that was read before.
    unsafe { command.pre_exec(take_terminal) };
    match command.status() {
        Ok(status) => ExitCode::from(u8::try_from(status.code().unwrap_or(125)).unwrap_or(125)),
        Err(error) => {
            eprintln!("isle-probe: could not start {program}: {error}");
            ExitCode::FAILURE
        }
    }
}
