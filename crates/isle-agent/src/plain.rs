//! A plain agent: an ordinary child process that serves its own surroundings. It sets up nothing and confines
//! nothing; that is up to what it was started in, such as a container of another runtime or a VM. Tests use
//! it as it is.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;

use isle_setup::request::Directories;
use isle_setup::sys::{Doing, Step, forget_signal_choices, prctl};
use minicbor::bytes::ByteVec;
use rustix::fs::{Mode as FileMode, OFlags};
use rustix::io::FdFlags;

use crate::command_line::{LinkOption, PlainOptions};
use crate::link::{Link, listen_at};
use crate::mode::Mode;
use crate::serve::{self, Start};

/// Serves until the last link has ended.
pub(crate) fn run(options: PlainOptions) -> Step<()> {
    let PlainOptions { workspace, home, tmp, control, links } = options;
    forget_signal_choices();
    // Orphans of a supervisor that was killed come to the agent, which kills them.
    prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0).doing(|| "become a subreaper".into())?;
    rustix::process::chdir(&workspace).doing(|| format!("enter the workspace {}", workspace.display()))?;
    // Inherited descriptors first: no descriptor that is opened here can have the number of one of them.
    let (inherited, others): (Vec<_>, Vec<_>) =
        links.into_iter().partition(|link| matches!(link, LinkOption::Pipes { .. } | LinkOption::Socket(_)));
    let mut taken = Vec::new();
    let mut opened = Vec::new();
    for link in inherited.into_iter().chain(others) {
        let shown = format!("open the link {link:?}");
        opened.push(open(link, &mut taken).doing(|| shown)?);
    }
    let bytes = |path: &std::path::Path| ByteVec::from(path.as_os_str().as_bytes().to_vec());
    let directories = Directories {
        workspace: bytes(&workspace),
        home: bytes(&home),
        tmp: bytes(&tmp),
        cache: None,
        control: control.as_deref().map(bytes),
    };
    let mode = Mode::plain(directories);
    serve::serve(Start { mode, links: opened, notifications: None, missing: Vec::new() });
    Ok(())
}

fn open(link: LinkOption, taken: &mut Vec<RawFd>) -> io::Result<Link> {
    Ok(match link {
        LinkOption::Stdio => {
            let (input, output) = (take_over(0)?, take_over(1)?);
            Link::Pipes { input, output }
        }
        LinkOption::Pipes { input, output } => {
            Link::Pipes { input: inherited(input, taken)?, output: inherited(output, taken)? }
        }
        LinkOption::Socket(number) => Link::Socket(inherited(number, taken)?),
        LinkOption::Device(path) => Link::Device(path),
        LinkOption::Listen(path) => Link::Listener(listen_at(&path)?),
    })
}

/// Takes a standard stream as a link and leaves `/dev/null` in its place, so that nothing else uses it.
fn take_over(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: duplicates a descriptor; the result is checked and owned here alone.
    let copy = isle_setup::sys::check(unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3) }.into())?;
    // SAFETY: a fresh descriptor without another owner.
    let copy = unsafe { OwnedFd::from_raw_fd(i32::try_from(copy).unwrap_or(-1)) };
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, FileMode::empty())?;
    // SAFETY: replaces a standard stream, which stays open; no value owns its number.
    isle_setup::sys::check(unsafe { libc::dup2(std::os::fd::AsRawFd::as_raw_fd(&null), number) }.into())?;
    Ok(copy)
}

/// A descriptor that the parent left open for this program; each may be given once.
fn inherited(number: RawFd, taken: &mut Vec<RawFd>) -> io::Result<OwnedFd> {
    // The standard streams are given as `stdio`.
    if number <= 2 || taken.contains(&number) {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // SAFETY: only queries a number; a descriptor that is not open is an error.
    isle_setup::sys::check(unsafe { libc::fcntl(number, libc::F_GETFD) }.into())?;
    taken.push(number);
    // SAFETY: it is open, was given by the parent for this use, was not taken before, and this program has
    // opened no descriptor of its own yet.
    let descriptor = unsafe { OwnedFd::from_raw_fd(number) };
    rustix::io::fcntl_setfd(&descriptor, FdFlags::CLOEXEC)?;
    Ok(descriptor)
}
