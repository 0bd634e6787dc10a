//! Watches the files by which the daemon and its sandboxes are found: a cleanup of temporary directories, or a
//! person, may remove them while it runs. Files that can be restored are restored; a daemon whose state directory
//! was removed stops, because nothing it does would be stored. The server restores its own socket.

use std::fs::{self, File};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use isle_store::{OwnFiles, Store, StoreError};
use tokio_util::sync::CancellationToken;

/// How often the files are checked.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Number of consecutive checks in which the state directory must be missing: it may be about to be mounted.
const MAX_MISSES: u32 = 3;

/// Why the state directory is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StateGone {
    /// It was moved to another path.
    Moved,
    /// It was deleted; no other daemon can find the running sandboxes.
    Deleted,
}

/// Watches the files until the daemon shuts down. Returns why the state directory is missing, if it is.
pub(super) async fn keep(
    store: Store,
    instance_dir: PathBuf,
    shutdown: CancellationToken,
) -> Option<StateGone> {
    // Kept open to distinguish a moved directory from a deleted one.
    let state = File::open(store.directory()).ok();
    let (mut gone, mut logged) = (0, None);
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return None,
            () = tokio::time::sleep(CHECK_INTERVAL) => {}
        }
        match store.restore_files() {
            Ok(OwnFiles::Intact) => (gone, logged) = (0, None),
            Ok(OwnFiles::Restored(files)) => {
                (gone, logged) = (0, None);
                tracing::warn!(files, "restored files that another process removed or changed");
            }
            Ok(OwnFiles::DirectoryGone) => gone += 1,
            Err(error) => log_once(&mut logged, &error),
        }
        if gone >= MAX_MISSES {
            let state_dir = store.directory().display();
            let deleted =
                state.as_ref().and_then(|state| state.metadata().ok()).is_none_or(|state| state.nlink() == 0);
            let how = if deleted { StateGone::Deleted } else { StateGone::Moved };
            tracing::error!(%state_dir, ?how, "the state directory was removed while the daemon is running; shutting down");
            shutdown.cancel();
            return Some(how);
        }
        restore_directories(&instance_dir);
    }
}

/// New sandboxes need these directories.
fn restore_directories(instance_dir: &Path) {
    if instance_dir.join("sandboxes").is_dir() {
        return;
    }
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(instance_dir).and_then(|()| {
        fs::DirBuilder::new().recursive(true).mode(0o711).create(instance_dir.join("sandboxes"))
    });
    match made {
        Ok(()) => tracing::warn!(
            directory = %instance_dir.display(),
            "restored the runtime directory, which another process removed; sandboxes running now are lost at the next restart"
        ),
        Err(error) => {
            tracing::error!(%error, directory = %instance_dir.display(), "cannot restore the runtime directory")
        }
    }
}

fn log_once(logged: &mut Option<String>, error: &StoreError) {
    let text = error.to_string();
    if logged.as_ref() != Some(&text) {
        tracing::error!(error = %text, "cannot restore files of the state directory");
        *logged = Some(text);
    }
}
