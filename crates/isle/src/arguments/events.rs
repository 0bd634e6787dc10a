//! Arguments of `isle events`.

use clap::Args;

/// Arguments of `isle events`.
#[derive(Debug, Args)]
pub(crate) struct EventsArguments {
    /// Stream new events until interrupted
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// Only events of this kind, such as run_failed; repeatable
    #[arg(long, value_name = "KIND")]
    pub(crate) kind: Vec<String>,
    /// Only events of this sandbox
    #[arg(long, value_name = "NAME")]
    pub(crate) sandbox: Option<String>,
    /// Only events of this run
    #[arg(long, value_name = "RUN")]
    pub(crate) run: Option<String>,
    /// Events of all namespaces (operator only)
    #[arg(long)]
    pub(crate) all: bool,
    /// Only events of the last DURATION, such as 10m
    #[arg(long, value_name = "DURATION")]
    pub(crate) since: Option<String>,
    /// Maximum number of past events to show
    #[arg(long, short = 'n', default_value_t = 20, value_name = "COUNT")]
    pub(crate) limit: u32,
    /// With --follow, start after the event with this id; reports how many events are no longer stored
    #[arg(long, value_name = "ID", requires = "follow", conflicts_with_all = ["since", "limit"])]
    pub(crate) after: Option<u64>,
}
