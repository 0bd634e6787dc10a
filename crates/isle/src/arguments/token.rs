//! The shape of the commands about tenants. The namespace is `--namespace`, as everywhere.

use clap::{Args, Subcommand};

#[derive(Debug, Args)]
pub(crate) struct TokenArguments {
    #[command(subcommand)]
    pub(crate) command: TokenCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Make a token for the namespace of --namespace, and the namespace when it is new; it is shown once
    Create,
    /// List tokens, of one namespace with --namespace
    #[command(visible_alias = "ls")]
    List,
    /// Make tokens worthless
    Revoke(TokenRevokeArguments),
}

#[derive(Debug, Args)]
pub(crate) struct TokenRevokeArguments {
    /// Ids of tokens, as `isle token list` shows them
    #[arg(required = true, value_name = "TOKEN_ID")]
    pub(crate) tokens: Vec<String>,
}
