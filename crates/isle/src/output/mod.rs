//! Output formatting: tables, colours, progress, and escaping of untrusted text.

mod escape;
mod paint;
mod progress;
mod table;

use std::io::{self, Write};
use std::process::ExitCode;

use isle_client::{ClientError, Result};
use serde_json::{Value, json};

pub(crate) use escape::{escaped, escaped_json, shortened};
pub(crate) use paint::{Colour, Paint};
pub(crate) use progress::Progress;
pub(crate) use table::Table;

/// Output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Text.
    Human,
    /// JSON (`--json`).
    Json,
}

/// Writes text to standard output. A closed pipe is not reported.
pub(crate) fn print(text: &str) {
    // Fails when the reader closed the pipe; there is no one to report it to.
    let mut stdout = io::stdout().lock();
    drop(stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()));
}

/// Writes name and version of the program.
pub(crate) fn print_version() -> ExitCode {
    print(concat!("isle ", env!("CARGO_PKG_VERSION"), "\n"));
    ExitCode::SUCCESS
}

/// Writes a value as pretty-printed JSON.
pub(crate) fn print_json(value: &Value) {
    print(&format!("{}\n", escaped_json(&format!("{value:#}"))));
}

/// Writes one line to standard error.
pub(crate) fn print_stderr(line: &str) {
    drop(writeln!(io::stderr().lock(), "{line}"));
}

/// Prints an error: code, message, hints.
pub(crate) fn show_error(error: &ClientError, form: Form) {
    if form == Form::Json {
        print_stderr(&escaped_json(&json!({ "error": error }).to_string()));
        return;
    }
    let paint = Paint::for_stderr();
    print_stderr(&format!(
        "{} {}",
        paint.bold(Colour::Red, &format!("error[{}]:", error.code)),
        escaped(&error.message)
    ));
    for hint in &error.next_steps {
        print_stderr(&format!("{} {}", paint.plain(Colour::Cyan, "hint:"), escaped(hint)));
    }
}

/// Prints a value as JSON, or as the text `human` formats.
pub(crate) fn show(form: Form, value: &Value, human: impl FnOnce(&Value) -> String) -> Result<ExitCode> {
    match form {
        Form::Json => print_json(value),
        Form::Human => print(&human(value)),
    }
    Ok(ExitCode::SUCCESS)
}

/// A human-readable number of bytes.
pub(crate) fn human_bytes(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    let mut shown = format!("{bytes} B");
    let mut scale = 1u64;
    for unit in UNITS {
        scale = scale.saturating_mul(1024);
        if bytes < scale {
            break;
        }
        let tenths = bytes.saturating_mul(10) / scale;
        shown = format!("{}.{} {unit}", tenths / 10, tenths % 10);
    }
    shown
}

/// A human-readable duration.
pub(crate) fn human_millis(millis: u64) -> String {
    match millis {
        0..1_000 => format!("{millis} ms"),
        1_000..60_000 => format!("{}.{} s", millis / 1_000, millis % 1_000 / 100),
        60_000..3_600_000 => format!("{} m {} s", millis / 60_000, millis % 60_000 / 1_000),
        _ => format!("{} h {} m", millis / 3_600_000, millis % 3_600_000 / 60_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_times_are_short() {
        assert_eq!(human_bytes(1023), "1023 B");
        assert_eq!(human_bytes(1536), "1.5 KiB");
        assert_eq!(human_bytes(5 << 30), "5.0 GiB");
        assert_eq!(human_millis(999), "999 ms");
        assert_eq!(human_millis(61_000), "1 m 1 s");
    }
}
