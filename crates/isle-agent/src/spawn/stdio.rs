//! Standard input and output of a program: pipes, or a terminal.

use std::io;
use std::os::fd::OwnedFd;

use isle_setup::SANDBOX_ID;
use isle_wire::{ExecRequest, StdinMode, TerminalSize};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::mode::GuestUsers;

/// The agent's ends.
pub(crate) enum ProgramIo {
    Pipes { stdin: Option<OwnedFd>, stdout: OwnedFd, stderr: OwnedFd },
    Terminal { master: OwnedFd },
}

/// The program's ends of its input and output.
pub(super) struct ProgramEnds(pub(super) [OwnedFd; 3]);

/// Opens pipes or a terminal for a program.
pub(super) fn open_io(users: GuestUsers, request: &ExecRequest) -> io::Result<(ProgramIo, ProgramEnds)> {
    if let Some(size) = request.terminal {
        let (master, slave) = open_terminal(users, size)?;
        let copies = [slave.try_clone()?, slave.try_clone()?, slave];
        return Ok((ProgramIo::Terminal { master }, ProgramEnds(copies)));
    }
    let (stdout, their_stdout) = pipe_with(PipeFlags::CLOEXEC)?;
    let (stderr, their_stderr) = pipe_with(PipeFlags::CLOEXEC)?;
    let (stdin, their_stdin) = match request.stdin {
        StdinMode::Null => {
            let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
            (None, rustix::fs::open("/dev/null", flags, rustix::fs::Mode::empty())?)
        }
        StdinMode::Stream => {
            let (theirs, ours) = pipe_with(PipeFlags::CLOEXEC)?;
            (Some(ours), theirs)
        }
    };
    for ours in [Some(&stdout), Some(&stderr), stdin.as_ref()].into_iter().flatten() {
        rustix::io::ioctl_fionbio(ours, true)?;
    }
    Ok((ProgramIo::Pipes { stdin, stdout, stderr }, ProgramEnds([their_stdin, their_stdout, their_stderr])))
}

fn open_terminal(users: GuestUsers, size: TerminalSize) -> io::Result<(OwnedFd, OwnedFd)> {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    let name = ptsname(&master, Vec::new())?;
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY | rustix::fs::OFlags::CLOEXEC;
    let slave = rustix::fs::open(&name, flags, rustix::fs::Mode::empty())?;
    if users == GuestUsers::Switched {
        // The sandbox user must be able to open its own terminal by name.
        rustix::fs::fchmod(&slave, rustix::fs::Mode::from_raw_mode(0o620))?;
        rustix::fs::fchown(
            &slave,
            Some(rustix::fs::Uid::from_raw(SANDBOX_ID)),
            Some(rustix::fs::Gid::from_raw(5)),
        )?;
    }
    resize(&master, size)?;
    rustix::io::ioctl_fionbio(&master, true)?;
    Ok((master, slave))
}

/// Sets the size of a terminal; the kernel notifies the program.
pub(crate) fn resize(terminal: &OwnedFd, size: TerminalSize) -> io::Result<()> {
    let size =
        rustix::termios::Winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 };
    Ok(rustix::termios::tcsetwinsize(terminal, size)?)
}
