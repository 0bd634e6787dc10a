//! Arguments of the commands about how long sandboxes live.

use clap::Args;

use super::SandboxArguments;

#[derive(Debug, Args)]
pub(crate) struct CreateArguments {
    /// Its name
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) sandbox: SandboxArguments,
    /// How long it lives, such as 2h; none for without an end
    #[arg(long, value_name = "TIME")]
    pub(crate) ttl: Option<String>,
    /// How long it lives unused, such as 30m; left out, a week
    #[arg(long, value_name = "TIME")]
    pub(crate) idle: Option<String>,
    /// Settings under a name of the configuration; flags are stronger
    #[arg(long, value_name = "NAME")]
    pub(crate) profile: Option<String>,
    /// What it may reach, such as example.com:443; may be given several times
    #[arg(long, value_name = "HOST[:PORT]")]
    pub(crate) allow: Vec<String>,
    /// Give every command a secret as a placeholder, which its hosts see as the value
    #[arg(long, value_name = "NAME[=VARIABLE]")]
    pub(crate) secret: Vec<String>,
    /// Give every command the value of a secret, masked in what comes out
    #[arg(long, value_name = "NAME[=VARIABLE]")]
    pub(crate) expose_secret: Vec<String>,
    /// Place a file of this host in it
    #[arg(long, value_name = "HOST:GUEST")]
    pub(crate) file: Vec<String>,
    /// Set a variable of every command in it
    #[arg(long, short, value_name = "NAME=VALUE")]
    pub(crate) env: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ExtendArguments {
    /// The sandbox
    pub(crate) name: String,
    /// How much longer, such as 30m
    pub(crate) by: String,
}

#[derive(Debug, Args)]
pub(crate) struct PauseArguments {
    /// The sandboxes
    #[arg(required = true)]
    pub(crate) names: Vec<String>,
}
