//! Progress of a long transfer: one line that is redrawn, on a terminal only.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use super::{Form, escaped, human_bytes};

/// Shorter transfers show no progress line.
const DELAY: Duration = Duration::from_millis(500);
const REDRAW_INTERVAL: Duration = Duration::from_millis(100);
const WIDTH: u64 = 24;

/// One transfer.
#[derive(Debug)]
pub(crate) struct Progress {
    what: &'static str,
    total: Option<u64>,
    done: u64,
    began: Instant,
    drawn: Option<Instant>,
    shown: bool,
}

impl Progress {
    /// Shown if standard error is a terminal.
    pub(crate) fn new(form: Form, what: &'static str, total: Option<u64>) -> Self {
        let shown = form == Form::Human && io::stderr().is_terminal();
        Self { what, total, done: 0, began: Instant::now(), drawn: None, shown }
    }

    /// Whether progress is shown.
    pub(crate) fn is_shown(&self) -> bool {
        self.shown
    }

    /// Adds transferred bytes.
    pub(crate) fn add(&mut self, bytes: usize) {
        self.done += u64::try_from(bytes).unwrap_or(0);
        if self.is_due() {
            self.draw(&line(self.what, self.done, self.total, self.began.elapsed()));
        }
    }

    /// Shows a message of the daemon.
    pub(crate) fn message(&mut self, message: &str) {
        if self.is_due() {
            self.draw(&escaped(message));
        }
    }

    fn is_due(&self) -> bool {
        let waits =
            self.drawn.map_or(self.began.elapsed() < DELAY, |drawn| drawn.elapsed() < REDRAW_INTERVAL);
        self.shown && !waits
    }

    fn draw(&mut self, line: &str) {
        self.drawn = Some(Instant::now());
        drop(write!(io::stderr().lock(), "\r\x1b[K{line}"));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.drawn.is_some() {
            drop(write!(io::stderr().lock(), "\r\x1b[K"));
        }
    }
}

fn line(what: &str, done: u64, total: Option<u64>, elapsed: Duration) -> String {
    let millis = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX).max(1);
    let pace = human_bytes(done.saturating_mul(1000) / millis);
    match total.filter(|total| *total > 0) {
        None => format!("{what} {}, {pace}/s", human_bytes(done)),
        Some(total) => {
            let full = (done.min(total).saturating_mul(WIDTH) / total).min(WIDTH);
            let bar: String = (0..WIDTH).map(|at| if at < full { '#' } else { '-' }).collect();
            let percent = done.min(total).saturating_mul(100) / total;
            format!("{what} [{bar}] {percent}% of {}, {pace}/s", human_bytes(total))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_far_and_how_fast() {
        let second = Duration::from_secs(1);
        assert_eq!(line("copying", 2048, None, second), "copying 2.0 KiB, 2.0 KiB/s");
        assert_eq!(
            line("copying", 512, Some(1024), second),
            "copying [############------------] 50% of 1.0 KiB, 512 B/s"
        );
        assert!(line("copying", 9999, Some(1024), second).contains("100%"));
    }
}
