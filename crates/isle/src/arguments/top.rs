//! Arguments of `isle top`.

use clap::Args;

/// Arguments of `isle top`.
#[derive(Debug, Args)]
pub(crate) struct TopArguments {
    /// Print one snapshot and exit; implied by --json and when standard output is not a terminal
    #[arg(long)]
    pub(crate) once: bool,
    /// Sort by this column, such as cpu, memory, pids, io, disk, runs, up, left or sandbox
    #[arg(long, short, default_value = "cpu", value_name = "COLUMN")]
    pub(crate) sort: String,
    /// Refresh interval
    #[arg(long, short, default_value = "2s", value_name = "DURATION")]
    pub(crate) interval: String,
}
