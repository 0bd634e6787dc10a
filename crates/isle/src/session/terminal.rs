//! This terminal: its size, and raw mode for the duration of a session.

use std::io::{self, IsTerminal};

use isle_api::session::TerminalShape;
use isle_client::Result;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

/// The window size; `None` when standard output is not a terminal.
pub(crate) fn window() -> Option<TerminalShape> {
    let size = tcgetwinsize(rustix::stdio::stdout()).ok()?;
    (size.ws_row > 0 && size.ws_col > 0).then_some(TerminalShape { rows: size.ws_row, columns: size.ws_col })
}

/// The terminal in raw mode; restored when dropped.
#[derive(Debug)]
pub(crate) struct RawTerminal {
    before: Termios,
}

impl RawTerminal {
    /// Enters raw mode; `None` when standard input is not a terminal.
    pub(crate) fn enter() -> Result<Option<Self>> {
        if !io::stdin().is_terminal() {
            return Ok(None);
        }
        let stdin = rustix::stdio::stdin();
        let enter = || -> rustix::io::Result<Self> {
            let before = tcgetattr(stdin)?;
            let mut raw = before.clone();
            raw.make_raw();
            tcsetattr(stdin, OptionalActions::Now, &raw)?;
            Ok(Self { before })
        };
        enter().map(Some).map_err(|error| isle_core::Error::internal(error).into())
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        // A closed terminal cannot be restored.
        let _ = tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, &self.before);
    }
}
