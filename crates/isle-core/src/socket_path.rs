//! Unix sockets in directories with long paths. The kernel takes addresses of at most 108 bytes; a path
//! through an open directory is short wherever the directory is.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// What the kernel takes, with the NUL at its end.
const LONGEST: usize = 107;

/// A socket's path that the kernel takes as an address, for as long as this lives.
#[derive(Debug)]
pub struct SocketPath {
    path: PathBuf,
    _directory: Option<File>,
}

impl SocketPath {
    /// The path itself when it is short enough, else one through its directory.
    pub fn new(path: &Path) -> io::Result<Self> {
        let parts = path.parent().zip(path.file_name());
        match parts.filter(|_| path.as_os_str().len() > LONGEST) {
            None => Ok(Self { path: path.to_owned(), _directory: None }),
            Some((directory, name)) => {
                let directory = File::open(directory)?;
                let path = Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string()).join(name);
                Ok(Self { path, _directory: Some(directory) })
            }
        }
    }
}

impl AsRef<Path> for SocketPath {
    fn as_ref(&self) -> &Path {
        &self.path
    }
}
