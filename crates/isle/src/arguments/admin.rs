//! The shape of the commands for whoever looks after a daemon: `limits`, `usage` and `inspect`.

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct LimitsArguments {
    /// Memory of new sandboxes, such as 2G
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory: Option<String>,
    /// CPUs of new sandboxes, such as 0.5
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    pub(crate) cpus: Option<f64>,
    /// Processes and threads of new sandboxes
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true)]
    pub(crate) pids: Option<i64>,
    /// Disk of new sandboxes, such as 4G
    #[arg(long, value_name = "SIZE")]
    pub(crate) disk: Option<String>,
    /// How long a command may run when the call says nothing, such as 5m
    #[arg(long, value_name = "TIME")]
    pub(crate) timeout: Option<String>,
    /// Commands that run at once
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true)]
    pub(crate) max_running: Option<i64>,
    /// Calls that wait for their turn
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true)]
    pub(crate) max_waiting: Option<i64>,
    /// Sandboxes of all namespaces
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true)]
    pub(crate) max_sandboxes: Option<i64>,
    /// Sandboxes of each namespace
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true)]
    pub(crate) max_sandboxes_per_namespace: Option<i64>,
    /// What the memory limits of all sandboxes may come to, such as 16G
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory_budget: Option<String>,
    /// Ended runs that are kept of each namespace
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true)]
    pub(crate) keep_runs: Option<i64>,
    /// How long they are kept, such as 7d
    #[arg(long, value_name = "TIME")]
    pub(crate) keep_runs_for: Option<String>,
    /// First take back what was changed before: the configuration counts again
    #[arg(long)]
    pub(crate) reset: bool,
}

#[derive(Debug, Args)]
pub(crate) struct UsageArguments {
    /// A sandbox; all of them when it is left out
    pub(crate) name: Option<String>,
    /// Of a run or job instead
    #[arg(long, value_name = "RUN", conflicts_with = "name")]
    pub(crate) run: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct InspectArguments {
    /// A sandbox; all of them when it is left out
    pub(crate) name: Option<String>,
}
