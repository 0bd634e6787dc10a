//! What can go wrong while measuring. A benchmark that cannot measure stops and says why.

use std::io;

pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The system refused something.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// A command that had to succeed did not.
    #[error("{command} ended with {status}; run it by hand to see why")]
    Failed { command: String, status: String },
    /// Somebody answered something else than was asked for.
    #[error("{who} answered: {answer}")]
    Answer { who: &'static str, answer: String },
    /// The daemon did not come up.
    #[error("{isle} serve ended before it was ready; its words are above, `{isle} doctor` may know more")]
    NotReady { isle: String },
    /// Somebody pressed Ctrl-C.
    #[error("interrupted")]
    Interrupted,
}

impl Error {
    /// An answer that is not the one expected, shortened to what fits on a screen.
    pub(crate) fn answer(who: &'static str, answer: &[u8]) -> Self {
        let text = String::from_utf8_lossy(answer);
        Self::Answer { who, answer: text.chars().take(600).collect() }
    }
}
