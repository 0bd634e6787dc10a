//! Arguments of the commands about the daemon, its records and this host.

use clap::Args;

/// Arguments of `isle mcp`.
#[derive(Debug, Args)]
#[command(after_help = super::examples::MCP)]
pub(crate) struct McpArguments {
    /// Toolsets to offer: core, files, jobs, contexts, environment, lifecycle, children, admin, network, secrets, or all
    #[arg(long, value_name = "SET,SET")]
    pub(crate) toolsets: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct AuditArguments {
    /// Maximum number of rows to show
    #[arg(long, default_value_t = 50)]
    pub(crate) limit: u32,
    /// Verify the audit chain
    #[arg(long)]
    pub(crate) verify: bool,
    /// Verify only rows added since the last successful verification
    #[arg(long, requires = "verify")]
    pub(crate) since_last: bool,
}

#[derive(Debug, Args)]
#[command(after_help = super::examples::SERVE)]
pub(crate) struct ServeArguments {
    /// Also listen on this TCP address, such as 127.0.0.1:7777; clients need a token
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<String>,
    /// Allow --listen addresses other than loopback
    #[arg(long)]
    pub(crate) allow_remote: bool,
    /// Stay in the foreground (default)
    #[arg(long, conflicts_with = "background")]
    pub(crate) foreground: bool,
    /// Detach from the terminal and report readiness on standard output
    #[arg(long, hide = true)]
    pub(crate) background: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArguments {
    /// Run the containment attacks in a sandbox of each tier and report the results
    #[arg(long)]
    pub(crate) deep: bool,
    /// Test only this tier
    #[arg(long, requires = "deep")]
    pub(crate) tier: Option<String>,
    /// Check in this process, not in the scope in which a daemon would start
    #[arg(long, hide = true)]
    pub(crate) here: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CallArguments {
    /// Name of the operation
    pub(crate) operation: Option<String>,
    /// Arguments as a JSON object; `-` reads standard input
    pub(crate) input: Option<String>,
    /// Describe the operation and its arguments
    #[arg(long, short)]
    pub(crate) help: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ConfigArguments {
    /// Print the JSON schema of the configuration files
    #[arg(long)]
    pub(crate) schema: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsArguments {
    /// Shell
    pub(crate) shell: clap_complete::Shell,
}
