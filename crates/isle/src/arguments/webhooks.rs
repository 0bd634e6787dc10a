//! The shape of the commands about webhooks. The namespace is `--namespace`, as everywhere.

use clap::{Args, Subcommand};

#[derive(Debug, Args)]
pub(crate) struct WebhooksArguments {
    #[command(subcommand)]
    pub(crate) command: WebhooksCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum WebhooksCommand {
    /// Have events sent to an address of the web; the secret of their signatures is shown once
    Add(WebhooksAddArguments),
    /// List webhooks and how each fares
    #[command(visible_alias = "ls")]
    List(WebhooksListArguments),
    /// Send nothing more there
    #[command(visible_alias = "rm")]
    Remove(WebhooksRemoveArguments),
}

#[derive(Debug, Args)]
pub(crate) struct WebhooksAddArguments {
    /// https://HOST/PATH, or http:// to an address of this machine or of a private network
    pub(crate) url: String,
    /// Only this kind, such as run_failed; may be given several times
    #[arg(long, value_name = "KIND")]
    pub(crate) kind: Vec<String>,
    /// Only this sandbox
    #[arg(long, value_name = "NAME")]
    pub(crate) sandbox: Option<String>,
    /// The events of all namespaces
    #[arg(long)]
    pub(crate) all: bool,
    /// An address that is not public and that the name may lead to, such as 10.0.0.0/8; may be given several times
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) address: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct WebhooksListArguments {
    /// Those of all namespaces, and those for all
    #[arg(long)]
    pub(crate) all: bool,
}

#[derive(Debug, Args)]
pub(crate) struct WebhooksRemoveArguments {
    /// Ids of webhooks, as `isle webhooks list` shows them
    #[arg(required = true, value_name = "WEBHOOK")]
    pub(crate) webhooks: Vec<String>,
}
