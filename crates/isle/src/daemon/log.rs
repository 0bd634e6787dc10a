//! Writes the daemon's log to standard error, one line per event. It contains names, paths and text from
//! guests and callers, so control characters are escaped: they must not forge a line or control a terminal.

use std::io::{self, Write};

use tracing_subscriber::fmt::MakeWriter;

use crate::output::{Form, escaped, escaped_json};

/// Writes events; each call contains one event.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LogWriter {
    form: Form,
}

impl LogWriter {
    pub(crate) fn new(form: Form) -> Self {
        Self { form }
    }

    fn line(self, event: &[u8]) -> String {
        let text = String::from_utf8_lossy(event);
        let text = text.strip_suffix('\n').unwrap_or(&text);
        let mut line = match self.form {
            Form::Json => escaped_json(text).replace('\n', " "),
            Form::Human => escaped_but_colours(text),
        };
        line.push('\n');
        line
    }
}

/// Escapes everything but colours, which come from the logger; it removes escape sequences from logged values.
fn escaped_but_colours(text: &str) -> String {
    let mut pieces = text.split('\u{1b}');
    let mut safe = escaped(pieces.next().unwrap_or_default());
    for piece in pieces {
        let end = piece.strip_prefix('[').and_then(|rest| {
            let digits = rest.find(|c: char| !c.is_ascii_digit() && c != ';')?;
            rest[digits..].starts_with('m').then_some(digits + 2)
        });
        match end {
            Some(end) => {
                safe.push('\u{1b}');
                safe.push_str(&piece[..end]);
                safe.push_str(&escaped(&piece[end..]));
            }
            None => {
                safe.push_str("\\u{1b}");
                safe.push_str(&escaped(piece));
            }
        }
    }
    safe
}

impl Write for LogWriter {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        io::stderr().lock().write_all(self.line(event).as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for LogWriter {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        *self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line_that_does_nothing_to_a_terminal() {
        let line =
            LogWriter::new(Form::Human).line("a\nforged\u{1b}]0;title\u{7}\u{202e}b\u{9b}2J\r\n".as_bytes());
        assert_eq!(line, "a\\nforged\\u{1b}]0;title\\u{7}\\u{202e}b\\u{9b}2J\\r\n");
        let line = LogWriter::new(Form::Human).line(b"\x1b[2mgrey\x1b[0m plain\n");
        assert_eq!(line, "\u{1b}[2mgrey\u{1b}[0m plain\n", "the logger's own colours stay");
    }

    #[test]
    fn an_event_in_json_keeps_its_meaning() {
        let line = LogWriter::new(Form::Json).line("{\"a\":\"\u{9b}\u{202e}\\n\"}\n".as_bytes());
        assert_eq!(line, "{\"a\":\"\\u009b\\u202e\\n\"}\n");
    }
}
