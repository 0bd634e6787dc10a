//! Prints the steps of the demo and records them for `--json`.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::output::{Colour, Form, Paint, escaped, print};

/// Lines of output shown per step.
const MOST_LINES: usize = 14;

/// Output of the demo.
#[derive(Debug)]
pub(super) struct Stage {
    form: Form,
    paint: Paint,
    count: usize,
    steps: Vec<Value>,
    timings: Vec<Value>,
}

/// One step.
#[derive(Debug)]
pub(super) struct Step {
    what: String,
    shown: String,
    lines: Vec<String>,
    began: Instant,
    took: Duration,
}

impl Step {
    pub(super) fn begin(what: &str, shown: &str) -> Self {
        let (what, shown) = (what.to_owned(), shown.to_owned());
        Self { what, shown, lines: Vec::new(), began: Instant::now(), took: Duration::ZERO }
    }

    pub(super) fn line(&mut self, text: &str) {
        self.lines.extend(text.lines().map(escaped));
    }

    /// Output, exit status and violations of a run.
    pub(super) fn output(&mut self, result: &Value) {
        for stream in ["stdout", "stderr"] {
            self.line(result[stream].as_str().unwrap_or_default());
        }
        let state = result["state"].as_str().unwrap_or_default();
        match result["exit_code"].as_i64() {
            Some(0) => {}
            Some(code) => self.lines.push(format!("(exit code {code})")),
            None => self.lines.push(format!("({})", state.replace('_', " "))),
        }
        if let Some(note) = result["note"].as_str() {
            self.line(note);
        }
        for violation in result["violations"].as_array().into_iter().flatten() {
            let part = |name: &str| violation[name].as_str().unwrap_or_default().to_owned();
            self.line(&format!("denied {}: {}", part("what"), part("remedy")));
        }
    }

    pub(super) fn done(&mut self) {
        self.took = self.began.elapsed();
    }
}

impl Stage {
    pub(super) fn new(form: Form) -> Self {
        Self { form, paint: Paint::for_stdout(), count: 0, steps: Vec::new(), timings: Vec::new() }
    }

    pub(super) fn title(&self, text: &str) {
        self.put(&format!("\n  {}\n\n", self.paint.bold(Colour::Cyan, text)));
    }

    pub(super) fn note(&self, text: &str) {
        self.put(&format!("  {text}\n"));
    }

    pub(super) fn warn(&self, text: &str) {
        self.put(&format!("  {}\n", self.paint.plain(Colour::Yellow, &escaped(text))));
    }

    /// Prints text unchanged.
    pub(super) fn put(&self, text: &str) {
        if self.form == Form::Human {
            print(text);
        }
    }

    pub(super) fn paint(&self) -> Paint {
        self.paint
    }

    pub(super) fn show(&mut self, step: &Step) {
        self.count += 1;
        let (paint, number) = (self.paint, self.count);
        let took = paint.plain(Colour::Grey, &millis(step.took));
        let mut text =
            format!("\n  {} {}  {took}\n", paint.bold(Colour::Cyan, &format!("{number}.")), step.what);
        for line in step.shown.lines() {
            text.push_str(&format!("     {} {line}\n", paint.plain(Colour::Green, "$")));
        }
        for line in step.lines.iter().take(MOST_LINES) {
            text.push_str(&format!("     {} {line}\n", paint.plain(Colour::Grey, "│")));
        }
        if step.lines.len() > MOST_LINES {
            let more = format!("… {} more lines", step.lines.len() - MOST_LINES);
            text.push_str(&format!("     {}\n", paint.plain(Colour::Grey, &more)));
        }
        self.put(&text);
        let took_us = u64::try_from(step.took.as_micros()).unwrap_or(u64::MAX);
        self.steps.push(
            json!({ "what": step.what, "command": step.shown, "output": step.lines, "took_us": took_us }),
        );
    }

    /// Prints and records a measured latency.
    pub(super) fn timing(&mut self, what: &str, median: Duration, count: usize) {
        let shown = self.paint.bold(Colour::Green, &format!("{:>9}", millis(median)));
        self.put(&format!("     {shown}  {what}, median of {count}\n"));
        let median_us = u64::try_from(median.as_micros()).unwrap_or(u64::MAX);
        self.timings.push(json!({ "what": what, "median_us": median_us, "count": count }));
    }

    /// The whole demo as JSON.
    pub(super) fn record(&self) -> Value {
        json!({ "steps": self.steps, "timings": self.timings })
    }
}

/// A duration with significant digits.
pub(super) fn millis(time: Duration) -> String {
    let micros = time.as_micros();
    match micros {
        0..10_000 => format!("{}.{:02} ms", micros / 1_000, micros % 1_000 / 10),
        10_000..1_000_000 => format!("{} ms", micros / 1_000),
        _ => format!("{}.{} s", micros / 1_000_000, micros % 1_000_000 / 100_000),
    }
}
