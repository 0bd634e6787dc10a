//! Arguments of `isle token`. The namespace is the global option `--namespace`.

use clap::{Args, Subcommand};

#[derive(Debug, Args)]
pub(crate) struct TokenArguments {
    #[command(subcommand)]
    pub(crate) command: TokenCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Create a token for the namespace given with --namespace and print it once; creates the namespace if new
    Create,
    /// List tokens; --namespace selects one namespace
    #[command(visible_alias = "ls")]
    List,
    /// Revoke tokens
    Revoke(TokenRevokeArguments),
}

#[derive(Debug, Args)]
pub(crate) struct TokenRevokeArguments {
    /// Token ids as printed by `isle token list`
    #[arg(required = true, value_name = "TOKEN_ID")]
    pub(crate) tokens: Vec<String>,
}
