//! Arguments of `isle secret`. A value is never an argument: it would be visible in the process list and in
//! the shell history.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Args)]
#[command(after_help = super::examples::SECRET)]
pub(crate) struct SecretArguments {
    #[command(subcommand)]
    pub(crate) command: SecretCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SecretCommand {
    /// Set or replace a secret; the value is read from standard input or prompted for
    Set(SecretSetArguments),
    /// List secrets (name, hosts, version, expiry), or those attached to a sandbox
    #[command(visible_alias = "ls")]
    List {
        /// Sandbox name
        sandbox: Option<String>,
    },
    /// Remove secrets
    #[command(visible_alias = "rm")]
    Remove {
        /// Secret names
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
    },
    /// Attach secrets to all commands of a sandbox
    Attach(SecretAttachArguments),
    /// Detach secrets from a sandbox
    Detach {
        /// Sandbox name
        sandbox: String,
        /// Secret names
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct SecretSetArguments {
    /// Secret name, such as GITHUB_TOKEN
    pub(crate) name: String,
    /// Read the value from this file of this host
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Host that may receive the secret, such as api.example.com or *.example.com (default: unchanged)
    #[arg(long, value_name = "HOST")]
    pub(crate) host: Vec<String>,
    /// Position in a request where it may be inserted: default, authorization, api-key, basic-user,
    /// header:NAME, query:NAME or method:NAME (default: unchanged)
    #[arg(long, value_name = "PLACE")]
    pub(crate) place: Vec<String>,
    /// Expire the secret after this time, such as 30d
    #[arg(long, value_name = "DURATION")]
    pub(crate) expires: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct SecretAttachArguments {
    /// Sandbox name; created if it does not exist
    pub(crate) sandbox: String,
    /// Secrets to attach as placeholders that are replaced in requests to their hosts
    #[arg(value_name = "NAME[=VARIABLE]")]
    pub(crate) names: Vec<String>,
    /// Secret to attach as its value; the value is masked in output
    #[arg(long, value_name = "NAME[=VARIABLE]")]
    pub(crate) expose: Vec<String>,
}
