//! The result: rows with medians, ratios, targets and verdicts, as a table and as JSON.

use std::io::{self, Write};

use serde::Serialize;

use crate::Effort;
use crate::statistics::Samples;

/// The target of a row.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Target {
    AtMost(f64),
    AtLeast(f64),
}

impl Target {
    fn holds(self, value: f64) -> bool {
        match self {
            Self::AtMost(most) => value <= most,
            Self::AtLeast(least) => value >= least,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    Ok,
    Miss,
}

/// One measured thing.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) section: &'static str,
    pub(crate) name: String,
    pub(crate) unit: &'static str,
    pub(crate) samples: usize,
    pub(crate) p50: f64,
    pub(crate) p95: f64,
    /// What the ratio is to.
    pub(crate) against: Option<String>,
    pub(crate) ratio: Option<f64>,
    /// Promised of the ratio where there is one, else of the median.
    pub(crate) target: Option<Target>,
    pub(crate) verdict: Option<Verdict>,
}

impl Row {
    pub(crate) fn new(
        section: &'static str,
        name: impl Into<String>,
        unit: &'static str,
        samples: &Samples,
    ) -> Self {
        Self {
            section,
            name: name.into(),
            unit,
            samples: samples.count(),
            p50: samples.median(),
            p95: samples.p95(),
            against: None,
            ratio: None,
            target: None,
            verdict: None,
        }
    }

    /// A thing measured once.
    pub(crate) fn single(
        section: &'static str,
        name: impl Into<String>,
        unit: &'static str,
        value: f64,
    ) -> Self {
        Self::new(section, name, unit, &[value].into_iter().collect())
    }

    /// The ratio of medians.
    pub(crate) fn against(mut self, name: &str, base: f64) -> Self {
        self.against = Some(name.to_owned());
        self.ratio = Some(self.p50 / base);
        self
    }

    pub(crate) fn target(mut self, target: Target) -> Self {
        let value = self.ratio.unwrap_or(self.p50);
        self.target = Some(target);
        self.verdict = Some(if target.holds(value) { Verdict::Ok } else { Verdict::Miss });
        self
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct Report {
    machine: Machine,
    effort: &'static str,
    rows: Vec<Row>,
    /// What was not measured, and why.
    skipped: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Machine {
    kernel: String,
    cpus: usize,
    memory_bytes: u64,
    /// Load average at the start: a busy machine makes every number doubtful.
    load: String,
}

impl Report {
    pub(crate) fn new(effort: Effort) -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let memory = read("/proc/meminfo");
        let kilobytes = memory.split_whitespace().nth(1).and_then(|word| word.parse::<u64>().ok());
        let machine = Machine {
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            cpus: std::thread::available_parallelism().map_or(0, usize::from),
            memory_bytes: kilobytes.unwrap_or(0) * 1024,
            load: read("/proc/loadavg").split(' ').next().unwrap_or_default().to_owned(),
        };
        let effort = match effort {
            Effort::Quick => "quick",
            Effort::Usual => "usual",
            Effort::Full => "full",
        };
        Self { machine, effort, rows: Vec::new(), skipped: Vec::new() }
    }

    pub(crate) fn add(&mut self, row: Row) {
        self.rows.push(row);
    }

    pub(crate) fn skip(&mut self, what: &str, why: impl std::fmt::Display) {
        self.skipped.push(format!("{what}: {why}"));
    }

    pub(crate) fn misses(&self) -> usize {
        self.rows.iter().filter(|row| row.verdict == Some(Verdict::Miss)).count()
    }

    pub(crate) fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let Machine { kernel, cpus, memory_bytes, load } = &self.machine;
        writeln!(
            out,
            "{cpus} cores, {} GiB, Linux {kernel}, load {load} at the start; effort: {}",
            memory_bytes >> 30,
            self.effort
        )?;
        let mut table = vec![["", "p50", "p95", "ratio", "to", "target", ""].map(str::to_owned).to_vec()];
        let mut section = "";
        for row in &self.rows {
            if row.section != section {
                section = row.section;
                table.push(vec![section.to_uppercase()]);
            }
            table.push(cells(row));
        }
        let widths: Vec<usize> = (0..7)
            .map(|column| {
                table
                    .iter()
                    .filter(|line| line.len() > 1)
                    .filter_map(|line| line.get(column))
                    .map(|cell| cell.chars().count())
                    .max()
                    .unwrap_or(0)
            })
            .collect();
        for line in &table {
            let padded: Vec<String> = line
                .iter()
                .zip(&widths)
                .enumerate()
                .map(|(column, (cell, width))| match column {
                    1..=3 => format!("{cell:>width$}"),
                    _ => format!("{cell:<width$}"),
                })
                .collect();
            writeln!(out, "{}", padded.join("  ").trim_end())?;
        }
        for skipped in &self.skipped {
            writeln!(out, "not measured: {skipped}")?;
        }
        match self.misses() {
            0 => writeln!(out, "every target met"),
            misses => writeln!(out, "targets missed: {misses}"),
        }
    }
}

fn cells(row: &Row) -> Vec<String> {
    let value = |value: f64| match row.unit {
        "ms" if value < 10.0 => format!("{value:.3} ms"),
        "ms" => format!("{value:.1} ms"),
        unit if value < 10.0 => format!("{value:.2} {unit}"),
        unit => format!("{value:.1} {unit}"),
    };
    let number = |number: f64| format!("{number:.2}");
    let of = if row.ratio.is_some() { "×".to_owned() } else { format!(" {}", row.unit) };
    vec![
        format!("  {}", row.name),
        value(row.p50),
        if row.samples > 1 { value(row.p95) } else { String::new() },
        row.ratio.map(|ratio| format!("{}×", number(ratio))).unwrap_or_default(),
        row.against.clone().unwrap_or_default(),
        match row.target {
            None => String::new(),
            Some(Target::AtMost(most)) => format!("≤ {most}{of}"),
            Some(Target::AtLeast(least)) => format!("≥ {least}{of}"),
        },
        match row.verdict {
            None => "",
            Some(Verdict::Ok) => "ok",
            Some(Verdict::Miss) => "MISS",
        }
        .to_owned(),
    ]
}
