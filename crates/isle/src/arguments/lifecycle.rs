//! Arguments of `create`, `extend`, `pause` and `resume`.

use clap::Args;

use super::SandboxArguments;

#[derive(Debug, Args)]
#[command(after_help = super::examples::CREATE)]
pub(crate) struct CreateArguments {
    /// Sandbox name
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) sandbox: SandboxArguments,
    /// Time to live, such as 2h, or none for no limit
    #[arg(long, value_name = "DURATION")]
    pub(crate) ttl: Option<String>,
    /// Remove the sandbox after this idle time, such as 30m (default: 7d)
    #[arg(long, value_name = "DURATION")]
    pub(crate) idle: Option<String>,
    /// Profile of the configuration; flags override its settings
    #[arg(long, value_name = "NAME")]
    pub(crate) profile: Option<String>,
    /// Allow connections to this host, such as example.com:443; repeatable
    #[arg(long, value_name = "HOST[:PORT]")]
    pub(crate) allow: Vec<String>,
    /// Set a variable to a placeholder that is replaced by the secret in requests to its hosts
    #[arg(long, value_name = "NAME[=VARIABLE]")]
    pub(crate) secret: Vec<String>,
    /// Set a variable to the value of a secret; the value is masked in output
    #[arg(long, value_name = "NAME[=VARIABLE]")]
    pub(crate) expose_secret: Vec<String>,
    /// Copy a file of this host into the sandbox
    #[arg(long, value_name = "HOST:GUEST")]
    pub(crate) file: Vec<String>,
    /// Set an environment variable for all commands of the sandbox
    #[arg(long, short, value_name = "NAME=VALUE")]
    pub(crate) env: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ExtendArguments {
    /// Sandbox name
    pub(crate) name: String,
    /// Time to add, such as 30m
    pub(crate) by: String,
}

#[derive(Debug, Args)]
pub(crate) struct PauseArguments {
    /// Sandbox names
    #[arg(required = true)]
    pub(crate) names: Vec<String>,
}
