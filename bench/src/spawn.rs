//! Starting a program and waiting for its end as cheaply as a program can: `posix_spawn` with
//! everything prepared beforehand. This is the floor everything else is compared with.

use std::ffi::{CString, OsStr};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::ptr;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::interrupt;

/// A command line, ready to be started many times.
#[derive(Debug)]
pub(crate) struct Prepared {
    program: CString,
    arguments: Vec<CString>,
    environment: Vec<CString>,
}

impl Prepared {
    /// `words` begins with the absolute path of the program.
    pub(crate) fn new<W: AsRef<OsStr>>(words: &[W]) -> Result<Self> {
        let arguments = words
            .iter()
            .map(|word| CString::new(word.as_ref().as_bytes()))
            .collect::<std::result::Result<Vec<_>, _>>()
            .map_err(io::Error::other)?;
        let program =
            arguments.first().cloned().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        let environment = vec![c"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".into()];
        Ok(Self { program, arguments, environment })
    }

    /// Adds a variable to the environment.
    pub(crate) fn variable(mut self, name: &str, value: impl AsRef<OsStr>) -> Result<Self> {
        let mut entry = format!("{name}=").into_bytes();
        entry.extend_from_slice(value.as_ref().as_bytes());
        self.environment.push(CString::new(entry).map_err(io::Error::other)?);
        Ok(self)
    }

    /// Starts it, waits for its end, and tells how long that took. It must succeed.
    pub(crate) fn time(&self) -> Result<Duration> {
        interrupt::check()?;
        let begin = Instant::now();
        let status = self.run()?;
        let took = begin.elapsed();
        if status == 0 { Ok(took) } else { Err(self.failure(status)) }
    }

    fn run(&self) -> io::Result<libc::c_int> {
        let pointers = |strings: &[CString]| -> Vec<*mut libc::c_char> {
            strings.iter().map(|string| string.as_ptr().cast_mut()).chain([ptr::null_mut()]).collect()
        };
        let (arguments, environment) = (pointers(&self.arguments), pointers(&self.environment));
        let mut pid = 0;
        // SAFETY: both lists end with a null pointer and live, with their strings, until the call returns.
        let refused = unsafe {
            libc::posix_spawn(
                &raw mut pid,
                self.program.as_ptr(),
                ptr::null(),
                ptr::null(),
                arguments.as_ptr(),
                environment.as_ptr(),
            )
        };
        if refused != 0 {
            return Err(io::Error::from_raw_os_error(refused));
        }
        let mut status = 0;
        // SAFETY: `pid` is a child of ours that nobody else waits for.
        while unsafe { libc::waitpid(pid, &raw mut status, 0) } < 0 {
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
        Ok(status)
    }

    fn failure(&self, status: libc::c_int) -> Error {
        let words: Vec<_> = self.arguments.iter().map(|word| word.to_string_lossy()).collect();
        Error::Failed { command: words.join(" "), status: format!("wait status {status:#x}") }
    }
}

/// Gives standard input and output to `/dev/null` and returns what standard output was. Children
/// then inherit quiet streams without any work at their start.
pub(crate) fn quiet_standard_streams() -> io::Result<File> {
    let null = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    // SAFETY: duplicates a descriptor this process owns; the copy is owned by the File alone.
    let console = unsafe {
        let copy = libc::fcntl(1, libc::F_DUPFD_CLOEXEC, 10);
        if copy < 0 {
            return Err(io::Error::last_os_error());
        }
        File::from_raw_fd(copy)
    };
    for standard in [0, 1] {
        // SAFETY: replaces a standard stream, which nothing in this program holds as its own.
        if unsafe { libc::dup2(null.as_raw_fd(), standard) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(console)
}
