//! Arguments of `isle events`.

use clap::Args;

/// Arguments of `isle events`.
#[derive(Debug, Args)]
pub(crate) struct EventsArguments {
    /// Go on with what happens from now on, until interrupted
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// Only this kind, such as run_failed; may be given several times
    #[arg(long, value_name = "KIND")]
    pub(crate) kind: Vec<String>,
    /// Only this sandbox
    #[arg(long, value_name = "NAME")]
    pub(crate) sandbox: Option<String>,
    /// Only this run
    #[arg(long, value_name = "RUN")]
    pub(crate) run: Option<String>,
    /// What happened in all namespaces; for the operator
    #[arg(long)]
    pub(crate) all: bool,
    /// Only what happened within this time, such as 10m
    #[arg(long, value_name = "DURATION")]
    pub(crate) since: Option<String>,
    /// How many of those that happened already
    #[arg(long, short = 'n', default_value_t = 20, value_name = "COUNT")]
    pub(crate) limit: u32,
    /// With --follow: all that happened after the event with this id, told as lost when it is gone
    #[arg(long, value_name = "ID", requires = "follow", conflicts_with_all = ["since", "limit"])]
    pub(crate) after: Option<u64>,
}
