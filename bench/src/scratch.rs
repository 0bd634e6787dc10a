//! Temporary directories that are removed with everything in them, unless something is mounted
//! there: removing through a mount would remove what belongs to others.

use std::fs;
use std::io;
use std::path::Path;

use tempfile::TempDir;

#[derive(Debug)]
pub(crate) struct Scratch {
    /// `None` only while it is being dropped.
    directory: Option<TempDir>,
}

impl Scratch {
    pub(crate) fn new(prefix: &str) -> io::Result<Self> {
        let directory = tempfile::Builder::new().prefix(prefix).tempdir()?;
        Ok(Self { directory: Some(directory) })
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.as_ref().map_or(Path::new("/nonexistent"), TempDir::path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let Some(directory) = self.directory.take() else { return };
        // Without the list of mounts nothing is removed.
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok();
        if mounts.is_some_and(|mounts| !mounted_below(&mounts, directory.path())) {
            return;
        }
        let kept = directory.keep();
        eprintln!("isle-bench: {} is kept: something is still mounted there", kept.display());
    }
}

fn mounted_below(mounts: &str, directory: &Path) -> bool {
    mounts
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .any(|point| Path::new(point).starts_with(directory))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_below_is_found_and_one_beside_is_not() {
        let mounts =
            "236 27 254:0 / /tmp/a/b rw - ext4 /dev/vda rw\n237 27 254:0 / /tmp/ab rw - ext4 /dev/vda rw\n";
        assert!(mounted_below(mounts, Path::new("/tmp/a")));
        assert!(!mounted_below(mounts, Path::new("/tmp/a/c")));
        assert!(!mounted_below("237 27 254:0 / /tmp/ab rw - ext4 /dev/vda rw\n", Path::new("/tmp/a")));
    }

    #[test]
    fn a_directory_nobody_uses_is_removed() {
        let scratch = Scratch::new("isle-bench-test-").unwrap();
        let path = scratch.path().to_owned();
        assert!(path.is_dir());
        drop(scratch);
        assert!(!path.exists());
    }
}
