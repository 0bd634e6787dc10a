//! The shape of the commands about secrets. A value is never an argument: whoever lists processes, and the
//! history of a shell, would show it.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Args)]
pub(crate) struct SecretArguments {
    #[command(subcommand)]
    pub(crate) command: SecretCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SecretCommand {
    /// Set a secret, or give it another value; read from standard input, or asked for
    Set(SecretSetArguments),
    /// List secrets: names, hosts, versions, expiry; with a sandbox, which of them it has
    #[command(visible_alias = "ls")]
    List {
        /// The sandbox
        sandbox: Option<String>,
    },
    /// Forget secrets
    #[command(visible_alias = "rm")]
    Remove {
        /// Names of secrets
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
    },
    /// Give every command of a sandbox secrets
    Attach(SecretAttachArguments),
    /// Take secrets of a sandbox back
    Detach {
        /// The sandbox
        sandbox: String,
        /// Names of secrets
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct SecretSetArguments {
    /// Its name, such as GITHUB_TOKEN
    pub(crate) name: String,
    /// Read the value from this file of this host
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Where it may go, such as api.example.com or *.example.com; as before when left out
    #[arg(long, value_name = "HOST")]
    pub(crate) host: Vec<String>,
    /// After which time it is no longer used, such as 30d
    #[arg(long, value_name = "DURATION")]
    pub(crate) expires: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct SecretAttachArguments {
    /// The sandbox, made when it is missing
    pub(crate) sandbox: String,
    /// Secrets, as placeholders which their hosts see as values
    #[arg(value_name = "NAME[=VARIABLE]")]
    pub(crate) names: Vec<String>,
    /// A secret as its value, masked in what comes out
    #[arg(long, value_name = "NAME[=VARIABLE]")]
    pub(crate) expose: Vec<String>,
}
