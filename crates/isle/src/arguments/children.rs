//! Arguments of `spawn`, `children` and `bridge`.

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct SpawnArguments {
    /// Parent sandbox
    #[arg(default_value = "default")]
    pub(crate) parent: String,
    /// Name of the child (default: the next number)
    #[arg(long, short)]
    pub(crate) name: Option<String>,
    /// Image, one of those the parent's spawn policy allows
    #[arg(long)]
    pub(crate) image: Option<String>,
    /// CPU limit, at least 1; capped by the spawn policy
    #[arg(long)]
    pub(crate) cpus: Option<f64>,
    /// Memory limit, at least 64M; capped by the spawn policy
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory: Option<String>,
    /// TTL, such as 60s; capped by the spawn policy
    #[arg(long, value_name = "DURATION")]
    pub(crate) ttl: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ChildrenArguments {
    /// Parent sandbox
    #[arg(default_value = "default")]
    pub(crate) parent: String,
    /// Destroy these children or grandchildren
    #[arg(long, value_name = "NAME", conflicts_with = "reset_count")]
    pub(crate) destroy: Vec<String>,
    /// Reset the number of children spawned so far to zero
    #[arg(long)]
    pub(crate) reset_count: bool,
}

#[derive(Debug, Args)]
pub(crate) struct BridgeArguments {
    /// Target sandbox
    pub(crate) name: String,
    /// JSON value to copy
    #[arg(conflicts_with_all = ["from", "file", "variable", "context"])]
    pub(crate) value: Option<String>,
    /// Name of the data in the target sandbox
    #[arg(long = "as", value_name = "NAME")]
    pub(crate) called: Option<String>,
    /// Source sandbox
    #[arg(long, value_name = "SANDBOX")]
    pub(crate) from: Option<String>,
    /// JSON file in the source sandbox
    #[arg(long, value_name = "PATH")]
    pub(crate) file: Option<String>,
    /// Variable of a context in the source sandbox
    #[arg(long)]
    pub(crate) variable: Option<String>,
    /// Context of the variable
    #[arg(long)]
    pub(crate) context: Option<String>,
    /// Set the variable in this context only
    #[arg(long, value_name = "CONTEXT")]
    pub(crate) to_context: Option<String>,
}
