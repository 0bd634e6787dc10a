//! Ctrl-C ends the benchmark as an error does, so that daemons and sandboxes are cleaned up.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{Error, Result};

static ASKED: AtomicBool = AtomicBool::new(false);

extern "C" fn remember(_signal: libc::c_int) {
    ASKED.store(true, Ordering::Relaxed);
}

/// Records signals that would kill this process.
pub(crate) fn watch() -> io::Result<()> {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: the handler only stores to an atomic, which is allowed in a signal handler.
        let previous = unsafe { libc::signal(signal, remember as *const () as libc::sighandler_t) };
        if previous == libc::SIG_ERR {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Fails once after an interrupt, so that cleaning up afterwards is not disturbed.
pub(crate) fn check() -> Result<()> {
    if ASKED.swap(false, Ordering::Relaxed) { Err(Error::Interrupted) } else { Ok(()) }
}
