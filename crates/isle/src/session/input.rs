//! Standard input, read by a separate thread: O_NONBLOCK would affect every process that shares the
//! descriptor.

use std::io::{self, Read};

use isle_client::Result;
use rustix::fs::{FileType, fstat};
use tokio::sync::mpsc;

/// Whether there is anything to send: not when standard input is closed or `/dev/null`.
pub(crate) fn has_stdin() -> bool {
    let Ok(stat) = fstat(rustix::stdio::stdin()) else { return false };
    let is_null = FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice
        && (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev)) == (1, 3);
    !is_null
}

/// Chunks of standard input.
#[derive(Debug)]
pub(crate) struct Stdin {
    chunks: mpsc::Receiver<Vec<u8>>,
}

impl Stdin {
    /// Starts the thread. It may block on a read until the process exits.
    pub(crate) fn start() -> Result<Self> {
        let (sender, chunks) = mpsc::channel(4);
        std::thread::Builder::new()
            .name("stdin".into())
            .spawn(move || {
                let mut stdin = io::stdin().lock();
                let mut buffer = vec![0; 64 * 1024];
                loop {
                    match stdin.read(&mut buffer) {
                        Ok(0) => break,
                        Ok(count) => {
                            if sender.blocking_send(buffer[..count].to_vec()).is_err() {
                                break;
                            }
                        }
                        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                        Err(_) => break,
                    }
                }
            })
            .map_err(isle_core::Error::internal)?;
        Ok(Self { chunks })
    }

    /// The next chunk; `None` at end of file.
    pub(crate) async fn next(stdin: Option<&mut Self>) -> Option<Vec<u8>> {
        stdin?.chunks.recv().await
    }
}
