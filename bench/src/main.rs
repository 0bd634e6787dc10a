//! `isle-bench`: measures an isle binary against bare processes and other sandboxes, interleaved in one run,
//! and reports which targets are met.

mod arms;
mod daemon;
mod error;
mod http;
mod https_client;
mod interrupt;
mod mcp;
mod peers;
mod processes;
mod report;
mod scratch;
mod sections;
mod spawn;
mod statistics;
mod tls;

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, ValueEnum};

use crate::error::Result;
use crate::report::Report;
use crate::sections::Bench;

/// How long to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effort {
    /// Just enough to see that everything works.
    Quick,
    /// A few minutes; medians settle.
    Usual,
    /// With a thousand sandboxes and ten gibibytes of output.
    Full,
}

/// A part of the benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Section {
    /// Warm exec, fresh one-shots and MCP beside the peers, interleaved.
    Latency,
    /// One-shots with eight clients.
    Throughput,
    /// Memory of one idle sandbox, then of many; with --full a thousand of them.
    Crowd,
    /// 10 MB in and out.
    Files,
    /// Memory of the daemon while a command prints gibibytes.
    Output,
    /// Python and Node.js code, without a context and in one, beside the plain interpreters.
    Code,
    /// Two hundred clients at once, and two tenants of which one sends ten times as much.
    Tenants,
    /// Pausing and resuming many processes; finding expired sandboxes.
    Lifecycle,
    /// Bulk data, connections and intercepted TLS through the gate, compared with proxies and a user-space
    /// network.
    Network,
}

/// Measure an isle binary beside bare processes and other sandboxes
#[derive(Debug, Parser)]
#[command(name = "isle-bench")]
struct Arguments {
    /// The isle binary
    isle: PathBuf,
    /// Fewer rounds: shows that everything works, not how fast it is
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// Also a thousand sandboxes and ten gibibytes of output
    #[arg(long)]
    full: bool,
    /// Only these parts
    #[arg(long, value_name = "NAME")]
    only: Vec<Section>,
    /// Write the report here as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Fail when a target is missed
    #[arg(long)]
    check: bool,
}

fn main() -> ExitCode {
    // A copy of this program inside a sandbox, or beside a proxy, is a client.
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.first().is_some_and(|word| word == https_client::WORD) {
        return https_client::main(&words[1..]);
    }
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(report) if arguments.check && report.misses() > 0 => ExitCode::FAILURE,
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("isle-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<Report> {
    // What is measured inherits our descriptors, so that starting it costs no more than it must.
    let mut console = spawn::quiet_standard_streams()?;
    interrupt::watch()?;
    let effort = match (arguments.quick, arguments.full) {
        (true, _) => Effort::Quick,
        (false, true) => Effort::Full,
        (false, false) => Effort::Usual,
    };
    let bench = Bench::new(&arguments.isle, effort)?;
    let mut report = Report::new(effort);
    for section in Section::value_variants() {
        if arguments.only.is_empty() || arguments.only.contains(section) {
            bench.run(*section, &mut report)?;
        }
    }
    report.print(&mut console)?;
    if let Some(path) = &arguments.json {
        let text = serde_json::to_vec_pretty(&report).map_err(io::Error::other)?;
        std::fs::write(path, text)?;
    }
    Ok(report)
}
