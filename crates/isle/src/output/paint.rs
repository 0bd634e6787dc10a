//! Colours, only on a terminal and not if `NO_COLOR` is set.

use std::io::IsTerminal;

/// Colours used in the output.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Colour {
    Red,
    Green,
    Yellow,
    Cyan,
    Grey,
}

/// Adds colours if they are enabled.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Paint {
    on: bool,
}

impl Paint {
    pub(crate) fn for_stdout() -> Self {
        Self::when(std::io::stdout().is_terminal())
    }

    pub(crate) fn for_stderr() -> Self {
        Self::when(std::io::stderr().is_terminal())
    }

    fn when(terminal: bool) -> Self {
        let disabled = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
        Self { on: terminal && !disabled && !dumb }
    }

    pub(crate) fn plain(self, colour: Colour, text: &str) -> String {
        self.wrap("", colour, text)
    }

    pub(crate) fn bold(self, colour: Colour, text: &str) -> String {
        self.wrap("1;", colour, text)
    }

    fn wrap(self, weight: &str, colour: Colour, text: &str) -> String {
        if !self.on {
            return text.to_owned();
        }
        let number = match colour {
            Colour::Red => 31,
            Colour::Green => 32,
            Colour::Yellow => 33,
            Colour::Cyan => 36,
            Colour::Grey => 90,
        };
        format!("\u{1b}[{weight}{number}m{text}\u{1b}[0m")
    }
}
