//! The smallest root filesystem for peers that need one: `true` and `sleep` with their libraries,
//! taken from the host, so that no image has to be downloaded.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::prepare;
use crate::scratch::Scratch;

/// A root filesystem in a temporary directory.
#[derive(Debug)]
pub(crate) struct Rootfs {
    directory: Scratch,
}

impl Rootfs {
    pub(crate) fn build() -> Result<Self, String> {
        let directory = Scratch::new("isle-bench-rootfs-").map_err(|error| error.to_string())?;
        let rootfs = Self { directory };
        for name in ["proc", "dev", "sys", "tmp", "etc"] {
            fs::create_dir_all(rootfs.path().join(name)).map_err(|error| error.to_string())?;
        }
        for program in ["/bin/true", "/bin/sleep"] {
            rootfs.copy(Path::new(program))?;
            let listed = prepare(Command::new("ldd").arg(program))?;
            for word in String::from_utf8_lossy(&listed.stdout).split_whitespace() {
                if word.starts_with('/') {
                    rootfs.copy(Path::new(word))?;
                }
            }
        }
        Ok(rootfs)
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("rootfs")
    }

    /// Beside the root filesystem: for bundles and archives.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn copy(&self, file: &Path) -> Result<(), String> {
        let target = self.path().join(file.strip_prefix("/").unwrap_or(file));
        let parent = target.parent().unwrap_or(&target);
        fs::create_dir_all(parent)
            .and_then(|()| fs::copy(file, &target))
            .map(drop)
            .map_err(|error| error.to_string())
    }
}
