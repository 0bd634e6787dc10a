//! Arguments of `isle webhooks`. The namespace is the global option `--namespace`.

use clap::{Args, Subcommand};

#[derive(Debug, Args)]
pub(crate) struct WebhooksArguments {
    #[command(subcommand)]
    pub(crate) command: WebhooksCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum WebhooksCommand {
    /// Add a webhook and print its signing secret once
    Add(WebhooksAddArguments),
    /// List webhooks and their delivery status
    #[command(visible_alias = "ls")]
    List(WebhooksListArguments),
    /// Remove webhooks
    #[command(visible_alias = "rm")]
    Remove(WebhooksRemoveArguments),
}

#[derive(Debug, Args)]
pub(crate) struct WebhooksAddArguments {
    /// https://HOST/PATH, or http:// for loopback and private addresses
    pub(crate) url: String,
    /// Only events of this kind, such as run_failed; repeatable
    #[arg(long, value_name = "KIND")]
    pub(crate) kind: Vec<String>,
    /// Only events of this sandbox
    #[arg(long, value_name = "NAME")]
    pub(crate) sandbox: Option<String>,
    /// Events of all namespaces
    #[arg(long)]
    pub(crate) all: bool,
    /// Private address range the host name may resolve to, such as 10.0.0.0/8; repeatable
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) address: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct WebhooksListArguments {
    /// Webhooks of all namespaces
    #[arg(long)]
    pub(crate) all: bool,
}

#[derive(Debug, Args)]
pub(crate) struct WebhooksRemoveArguments {
    /// Webhook ids as printed by `isle webhooks list`
    #[arg(required = true, value_name = "WEBHOOK")]
    pub(crate) webhooks: Vec<String>,
}
