//! The shape of the commands about children: `spawn` and `children`.

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
