//! Rotates the log file of a background daemon while it runs. The file is the daemon's standard error, so it
//! cannot be renamed: its contents are copied, then it is truncated. It is opened for appending, so writing
//! continues at its start.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Size at which a log is rotated; one old log is kept.
pub(super) const MAX_LOG_BYTES: u64 = 8 * 1024 * 1024;
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Path of the previous log.
pub(super) fn old_log(log: &Path) -> PathBuf {
    log.with_extension("log.old")
}

/// Checks the size of the log periodically until the daemon exits.
pub(super) async fn rotate_periodically(log: PathBuf) {
    // Warn once while the disk stays full, so that warnings do not fill the log.
    let mut warned = false;
    loop {
        tokio::time::sleep(CHECK_INTERVAL).await;
        let log = log.clone();
        let rotated = match tokio::task::spawn_blocking(move || truncate_when_large(&log)).await {
            Ok(rotated) => rotated,
            Err(error) => Err(io::Error::other(error)),
        };
        if let Err(error) = &rotated
            && !warned
        {
            tracing::warn!(%error, "cannot rotate the log");
        }
        warned = rotated.is_err();
    }
}

fn truncate_when_large(log: &Path) -> io::Result<()> {
    let known = match log.metadata() {
        // A daemon in the foreground has no log file: it logs to its standard error.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        known => known?,
    };
    if known.len() <= MAX_LOG_BYTES || !is_standard_error(&known)? {
        return Ok(());
    }
    // On a full disk the copy fails; freeing space is more important than old lines.
    let copied = std::fs::copy(log, old_log(log));
    OpenOptions::new().write(true).open(log)?.set_len(0)?;
    copied.map(drop)
}

/// Whether this process writes to the file: another daemon's log is not touched.
fn is_standard_error(known: &std::fs::Metadata) -> io::Result<bool> {
    let own = rustix::fs::fstat(rustix::stdio::stderr())?;
    Ok((own.st_dev, own.st_ino) == (known.dev(), known.ino()))
}
