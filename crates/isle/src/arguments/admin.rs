//! Arguments of the operator's commands `limits`, `usage` and `inspect`.

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct LimitsArguments {
    /// Default memory limit of new sandboxes, such as 2G
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory: Option<String>,
    /// Default CPU limit of new sandboxes, such as 0.5
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    pub(crate) cpus: Option<f64>,
    /// Default limit of processes and threads of new sandboxes
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true)]
    pub(crate) pids: Option<i64>,
    /// Default disk limit of new sandboxes, such as 4G
    #[arg(long, value_name = "SIZE")]
    pub(crate) disk: Option<String>,
    /// Default timeout of commands, such as 5m
    #[arg(long, value_name = "DURATION")]
    pub(crate) timeout: Option<String>,
    /// Maximum number of commands running at the same time
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true)]
    pub(crate) max_running: Option<i64>,
    /// Maximum number of calls waiting to run
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true)]
    pub(crate) max_waiting: Option<i64>,
    /// Maximum number of sandboxes in all namespaces
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true)]
    pub(crate) max_sandboxes: Option<i64>,
    /// Maximum number of sandboxes per namespace
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true)]
    pub(crate) max_sandboxes_per_namespace: Option<i64>,
    /// Maximum sum of the memory limits of all sandboxes, such as 16G
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory_budget: Option<String>,
    /// Maximum disk space of finished runs per namespace, such as 1G
    #[arg(long, value_name = "SIZE")]
    pub(crate) keep_output: Option<String>,
    /// Retention time of finished runs, such as 7d
    #[arg(long, value_name = "DURATION")]
    pub(crate) keep_runs_for: Option<String>,
    /// Discard earlier changes and start from the configuration
    #[arg(long)]
    pub(crate) reset: bool,
}

#[derive(Debug, Args)]
pub(crate) struct UsageArguments {
    /// Sandbox name (default: all sandboxes)
    pub(crate) name: Option<String>,
    /// Show usage of this run or job instead
    #[arg(long, value_name = "RUN", conflicts_with = "name")]
    pub(crate) run: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct InspectArguments {
    /// Sandbox name (default: all sandboxes)
    pub(crate) name: Option<String>,
}
