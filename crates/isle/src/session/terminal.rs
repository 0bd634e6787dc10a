//! This terminal: its size, and handing every key to the sandbox while a session lasts.

use std::io::{self, IsTerminal};

use isle_client::{Result, Terminal};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

/// The window's size; `None` when standard output is no terminal.
pub(crate) fn window() -> Option<Terminal> {
    let size = tcgetwinsize(rustix::stdio::stdout()).ok()?;
    (size.ws_row > 0 && size.ws_col > 0).then_some(Terminal { rows: size.ws_row, columns: size.ws_col })
}

/// The terminal in raw mode; back to what it was when dropped, whatever the reason.
#[derive(Debug)]
pub(crate) struct RawTerminal {
    before: Termios,
}

impl RawTerminal {
    /// Enters raw mode; `None` when standard input is no terminal.
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
        enter().map(Some).map_err(|error| isle_engine::Error::internal(error).into())
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        // A terminal that is gone needs no restoring.
        let _ = tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, &self.before);
    }
}
