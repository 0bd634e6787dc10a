//! Arguments of the commands about runs that were started.

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct LogsArguments {
    /// The run, or SANDBOX:NAME of a job
    pub(crate) run: String,
    /// Go on until the run ends
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// Only the last lines of each output; with --follow, begin with them
    #[arg(long, short = 'n', value_name = "LINES")]
    pub(crate) tail: Option<u32>,
    /// Standard error only
    #[arg(long)]
    pub(crate) stderr: bool,
}

#[derive(Debug, Args)]
pub(crate) struct WaitArguments {
    /// The runs, or SANDBOX:NAME of jobs
    #[arg(required = true)]
    pub(crate) runs: Vec<String>,
    /// Give up after this time, such as 30s
    #[arg(long, value_name = "DURATION")]
    pub(crate) timeout: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct KillArguments {
    /// The runs, or SANDBOX:NAME of jobs
    #[arg(required = true)]
    pub(crate) runs: Vec<String>,
    /// End the whole tree at once, without asking it to end first
    #[arg(long, conflicts_with = "signal")]
    pub(crate) force: bool,
    /// Only send this signal, such as INT or 10
    #[arg(long, short)]
    pub(crate) signal: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct HistoryArguments {
    /// Runs of this sandbox only
    pub(crate) name: Option<String>,
    /// How many
    #[arg(long, default_value_t = 20)]
    pub(crate) limit: u32,
}
