//! Arguments of the commands about the daemon, its records and this host.

use clap::Args;

/// Arguments of `isle mcp`.
#[derive(Debug, Args)]
pub(crate) struct McpArguments {
    /// Sets of tools the client is shown: core, files, jobs, contexts, environment, lifecycle, children, admin, network, secrets, or all
    #[arg(long, value_name = "SET,SET")]
    pub(crate) toolsets: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct AuditArguments {
    /// How many rows
    #[arg(long, default_value_t = 50)]
    pub(crate) limit: u32,
    /// Check the whole chain
    #[arg(long)]
    pub(crate) verify: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ServeArguments {
    /// Also listen on TCP, such as 127.0.0.1:7777; a token is always needed there
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<String>,
    /// Let --listen be another address than loopback
    #[arg(long)]
    pub(crate) allow_remote: bool,
    /// Stay in the foreground, as is the default
    #[arg(long, conflicts_with = "background")]
    pub(crate) foreground: bool,
    /// Leave the terminal and say on standard output when ready
    #[arg(long, hide = true)]
    pub(crate) background: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArguments {
    /// Attack a sandbox of each tier and tell what gets through
    #[arg(long)]
    pub(crate) deep: bool,
    /// Attack this tier only
    #[arg(long, requires = "deep")]
    pub(crate) tier: Option<String>,
    /// Look in this process, not from where a daemon would be started
    #[arg(long, hide = true)]
    pub(crate) here: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CallArguments {
    /// Name of the operation
    pub(crate) operation: Option<String>,
    /// Its arguments as a JSON object; `-` reads them from standard input
    pub(crate) input: Option<String>,
    /// Describe the operation and its arguments
    #[arg(long, short)]
    pub(crate) help: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ConfigArguments {
    /// Print the JSON schema of the files
    #[arg(long)]
    pub(crate) schema: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsArguments {
    /// The shell
    pub(crate) shell: clap_complete::Shell,
}
