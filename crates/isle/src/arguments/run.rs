//! Arguments of the commands that run something in a sandbox.

use std::path::PathBuf;

use clap::Args;

/// Tier, image and limits of a sandbox.
#[derive(Debug, Args)]
#[command(next_help_heading = "Sandbox")]
pub(crate) struct SandboxArguments {
    /// Isolation tier: container or process
    #[arg(long)]
    pub(crate) tier: Option<String>,
    /// Backend that creates the sandbox; the first that offers the tier by default
    #[arg(long)]
    pub(crate) backend: Option<String>,
    /// Image; `host` uses the host's programs, read-only
    #[arg(long)]
    pub(crate) image: Option<String>,
    /// Memory limit, such as 512M
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory: Option<String>,
    /// CPU limit, such as 0.5
    #[arg(long, value_name = "NUMBER")]
    pub(crate) cpus: Option<String>,
    /// Limit of processes and threads
    #[arg(long, value_name = "COUNT")]
    pub(crate) pids: Option<String>,
    /// Disk limit (writable layer and workspace), such as 1G
    #[arg(long, value_name = "SIZE")]
    pub(crate) disk: Option<String>,
    /// Create the sandbox even if this host cannot enforce all guarantees of the tier
    #[arg(long)]
    pub(crate) allow_downgrade: bool,
}

/// Environment, working directory and user of a process.
#[derive(Debug, Default, Args)]
pub(crate) struct ProcessArguments {
    /// Set an environment variable; NAME alone passes this shell's value
    #[arg(long, short, value_name = "NAME=VALUE")]
    pub(crate) env: Vec<String>,
    /// Working directory, absolute in the sandbox
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<String>,
    /// User to run as: sandbox or root
    #[arg(long)]
    pub(crate) user: Option<String>,
}

/// How a command is run.
#[derive(Debug, Args)]
pub(crate) struct CommandArguments {
    /// Kill the process tree after this time, such as 30s
    #[arg(long, value_name = "DURATION")]
    pub(crate) timeout: Option<String>,
    /// Limit each process: cpu=10s, memory=64M, file_size=10M, open_files=64, processes=20
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) limit: Vec<String>,
    /// Allow this run to connect to a host, such as example.com:443, or to the registries of pip, npm, apt or
    /// cargo; other processes of the same sandbox and user can use the grant during the run
    #[arg(long, value_name = "HOST[:PORT]")]
    pub(crate) allow: Vec<String>,
    /// Profile of the configuration, if the sandbox is created
    #[arg(long, value_name = "NAME")]
    pub(crate) profile: Option<String>,
    /// Set a variable to a placeholder that is replaced by the secret in requests to its hosts
    #[arg(long, value_name = "NAME[=VARIABLE]")]
    pub(crate) secret: Vec<String>,
    /// Set a variable to the value of a secret; the value is masked in output
    #[arg(long, value_name = "NAME[=VARIABLE]")]
    pub(crate) expose_secret: Vec<String>,
    #[command(flatten)]
    pub(crate) process: ProcessArguments,
    /// Language of a script: python, node or shell
    #[arg(long, value_name = "LANGUAGE")]
    pub(crate) lang: Option<String>,
    /// Allocate a terminal
    #[arg(long, short)]
    pub(crate) tty: bool,
    /// Command and arguments, or a script file of this host (.py, .js, .sh)
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

#[derive(Debug, Args)]
#[command(after_help = super::examples::RUN)]
pub(crate) struct RunArguments {
    #[command(flatten)]
    pub(crate) how: CommandArguments,
    /// Copy a file of this host into the sandbox
    #[arg(long, value_name = "HOST:GUEST", help_heading = "Sandbox")]
    pub(crate) file: Vec<String>,
    #[command(flatten)]
    pub(crate) sandbox: SandboxArguments,
}

#[derive(Debug, Args)]
#[command(after_help = super::examples::EXEC)]
pub(crate) struct ExecArguments {
    /// Sandbox name
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) how: CommandArguments,
    /// Run exclusively among runs with --lock in this sandbox, in start order
    #[arg(long)]
    pub(crate) lock: bool,
    /// If the sandbox is created: the backend that creates it
    #[arg(long)]
    pub(crate) backend: Option<String>,
    /// If the sandbox is created: accept that this host cannot enforce all guarantees of its tier
    #[arg(long)]
    pub(crate) allow_downgrade: bool,
}

#[derive(Debug, Args)]
#[command(after_help = super::examples::SHELL)]
pub(crate) struct ShellArguments {
    /// Sandbox name
    #[arg(default_value = "default")]
    pub(crate) name: String,
    /// User to run as: sandbox or root
    #[arg(long)]
    pub(crate) user: Option<String>,
    /// Working directory, absolute in the sandbox
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<String>,
    /// If the sandbox is created: the backend that creates it
    #[arg(long)]
    pub(crate) backend: Option<String>,
    /// If the sandbox is created: accept that this host cannot enforce all guarantees of its tier
    #[arg(long)]
    pub(crate) allow_downgrade: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CodeArguments {
    /// Sandbox name
    pub(crate) name: String,
    /// Persistent interpreter to use, created on first use (default: none, no state is kept)
    #[arg(long, short, value_name = "CONTEXT")]
    pub(crate) context: Option<String>,
    /// Language: python, node or shell (default: the context's, or detected)
    #[arg(long, value_name = "LANGUAGE")]
    pub(crate) lang: Option<String>,
    /// Kill the code after this time, such as 30s
    #[arg(long, value_name = "DURATION")]
    pub(crate) timeout: Option<String>,
    #[command(flatten)]
    pub(crate) process: ProcessArguments,
    /// Write images to this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) pictures: Option<PathBuf>,
    /// Code to run (default: read standard input)
    pub(crate) code: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ContextsArguments {
    /// Sandbox name
    pub(crate) name: String,
    /// Interrupt the code running in this context; keep its state
    #[arg(long, value_name = "CONTEXT", group = "what")]
    pub(crate) interrupt: Option<String>,
    /// Restart this context; discard its state, keep files
    #[arg(long, value_name = "CONTEXT", group = "what")]
    pub(crate) restart: Option<String>,
    /// Remove this context
    #[arg(long, value_name = "CONTEXT", group = "what")]
    pub(crate) remove: Option<String>,
}
