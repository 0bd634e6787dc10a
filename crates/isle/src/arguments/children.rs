//! The shape of the commands about children: `spawn`, `children` and `bridge`.

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct SpawnArguments {
    /// Whose child
    #[arg(default_value = "default")]
    pub(crate) parent: String,
    /// What to call it; numbered after its parent when left out
    #[arg(long, short)]
    pub(crate) name: Option<String>,
    /// One of the images its parent's policy allows
    #[arg(long)]
    pub(crate) image: Option<String>,
    /// CPUs, at least 1; cut to what is allowed
    #[arg(long)]
    pub(crate) cpus: Option<f64>,
    /// Memory, at least 64M; cut to what is allowed
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory: Option<String>,
    /// How long it lives, such as 60s; cut to what is allowed
    #[arg(long, value_name = "DURATION")]
    pub(crate) ttl: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ChildrenArguments {
    /// Whose
    #[arg(default_value = "default")]
    pub(crate) parent: String,
    /// Destroy these children or grandchildren in place of listing them
    #[arg(long, value_name = "NAME", conflicts_with = "reset_count")]
    pub(crate) destroy: Vec<String>,
    /// Let the sandbox spawn as if it never had
    #[arg(long)]
    pub(crate) reset_count: bool,
}

#[derive(Debug, Args)]
pub(crate) struct BridgeArguments {
    /// The sandbox that gets it
    pub(crate) name: String,
    /// The data, as JSON
    #[arg(conflicts_with_all = ["from", "file", "variable", "context"])]
    pub(crate) value: Option<String>,
    /// What it is called there
    #[arg(long = "as", value_name = "NAME")]
    pub(crate) called: Option<String>,
    /// The sandbox that has it
    #[arg(long, value_name = "SANDBOX")]
    pub(crate) from: Option<String>,
    /// A file there that holds JSON
    #[arg(long, value_name = "PATH")]
    pub(crate) file: Option<String>,
    /// A variable there, in a context
    #[arg(long)]
    pub(crate) variable: Option<String>,
    /// The context of the variable
    #[arg(long)]
    pub(crate) context: Option<String>,
    /// The only context that gets it as a variable
    #[arg(long, value_name = "CONTEXT")]
    pub(crate) to_context: Option<String>,
}
