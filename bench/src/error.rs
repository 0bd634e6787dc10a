//! Errors of the benchmark. A benchmark that cannot measure stops with the reason.

use std::io;

pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// A system call failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// A command failed.
    #[error("{command} ended with {status}; run it by hand to see why")]
    Failed { command: String, status: String },
    /// An unexpected response.
    #[error("{who} answered: {answer}")]
    Answer { who: &'static str, answer: String },
    /// The daemon did not start.
    #[error("{isle} serve ended before it was ready; its words are above, `{isle} doctor` may know more")]
    NotReady { isle: String },
    /// Interrupted by Ctrl-C.
    #[error("interrupted")]
    Interrupted,
}

impl Error {
    /// An unexpected response, truncated.
    pub(crate) fn answer(who: &'static str, answer: &[u8]) -> Self {
        let text = String::from_utf8_lossy(answer);
        Self::Answer { who, answer: text.chars().take(600).collect() }
    }
}
