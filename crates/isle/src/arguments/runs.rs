//! Arguments of `logs`, `wait`, `kill` and `history`.

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct LogsArguments {
    /// Run id, or SANDBOX:NAME of a job
    pub(crate) run: String,
    /// Follow the output until the run exits
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// Only the last LINES of each stream; with --follow, start with them
    #[arg(long, short = 'n', value_name = "LINES")]
    pub(crate) tail: Option<u32>,
    /// Only standard error
    #[arg(long)]
    pub(crate) stderr: bool,
}

#[derive(Debug, Args)]
pub(crate) struct WaitArguments {
    /// Run ids, or SANDBOX:NAME of jobs
    #[arg(required = true)]
    pub(crate) runs: Vec<String>,
    /// Stop waiting after this time, such as 30s
    #[arg(long, value_name = "DURATION")]
    pub(crate) timeout: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct KillArguments {
    /// Run ids, or SANDBOX:NAME of jobs
    #[arg(required = true)]
    pub(crate) runs: Vec<String>,
    /// Send SIGKILL to the process tree immediately
    #[arg(long, conflicts_with = "signal")]
    pub(crate) force: bool,
    /// Send only this signal, such as INT or 10
    #[arg(long, short)]
    pub(crate) signal: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct HistoryArguments {
    /// Only runs of this sandbox
    pub(crate) name: Option<String>,
    /// Maximum number of runs to show
    #[arg(long, default_value_t = 20)]
    pub(crate) limit: u32,
}
