//! Arguments of the commands that run something in a sandbox.

use std::path::PathBuf;

use clap::Args;

/// What kind of sandbox.
#[derive(Debug, Args)]
#[command(next_help_heading = "Sandbox")]
pub(crate) struct SandboxArguments {
    /// How strongly it is isolated: container or process
    #[arg(long)]
    pub(crate) tier: Option<String>,
    /// Image; `host` is the host's own programs, read-only
    #[arg(long)]
    pub(crate) image: Option<String>,
    /// Memory, such as 512M
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory: Option<String>,
    /// CPUs, such as 0.5
    #[arg(long, value_name = "NUMBER")]
    pub(crate) cpus: Option<String>,
    /// Processes and threads
    #[arg(long, value_name = "COUNT")]
    pub(crate) pids: Option<String>,
    /// Writable layer, such as 1G
    #[arg(long, value_name = "SIZE")]
    pub(crate) disk: Option<String>,
    /// Accept less than the tier promises where this host cannot enforce it
    #[arg(long)]
    pub(crate) allow_downgrade: bool,
}

/// What surrounds a command.
#[derive(Debug, Default, Args)]
pub(crate) struct Surroundings {
    /// Set a variable; NAME alone passes on this shell's value
    #[arg(long, short, value_name = "NAME=VALUE")]
    pub(crate) env: Vec<String>,
    /// Working directory, absolute in the sandbox
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<String>,
    /// As whom: sandbox or root
    #[arg(long)]
    pub(crate) user: Option<String>,
}

/// How a command runs.
#[derive(Debug, Args)]
pub(crate) struct CommandArguments {
    /// End it, and everything it started, after this time, such as 30s
    #[arg(long, value_name = "DURATION")]
    pub(crate) timeout: Option<String>,
    /// Limit each process of it: cpu=10s, memory=64M, file_size=10M, open_files=64, processes=20
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) limit: Vec<String>,
    /// Let it reach a host while it runs, such as example.com:443, or what pip, npm, apt or cargo use here
    #[arg(long, value_name = "HOST[:PORT]")]
    pub(crate) allow: Vec<String>,
    /// If the sandbox has to be made: settings under a name of the configuration
    #[arg(long, value_name = "NAME")]
    pub(crate) profile: Option<String>,
    /// Give it a secret as a placeholder, which its hosts see as the value
    #[arg(long, value_name = "NAME[=VARIABLE]")]
    pub(crate) secret: Vec<String>,
    /// Give it the value of a secret, masked in what it prints
    #[arg(long, value_name = "NAME[=VARIABLE]")]
    pub(crate) expose_secret: Vec<String>,
    #[command(flatten)]
    pub(crate) around: Surroundings,
    /// Language of a script: python, node or shell
    #[arg(long, value_name = "LANGUAGE")]
    pub(crate) lang: Option<String>,
    /// Give it a terminal
    #[arg(long, short)]
    pub(crate) tty: bool,
    /// Command and arguments, or one script file of this host (.py, .js, .sh)
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct RunArguments {
    #[command(flatten)]
    pub(crate) how: CommandArguments,
    /// Place a file of this host in the sandbox
    #[arg(long, value_name = "HOST:GUEST", help_heading = "Sandbox")]
    pub(crate) file: Vec<String>,
    #[command(flatten)]
    pub(crate) sandbox: SandboxArguments,
}

#[derive(Debug, Args)]
pub(crate) struct ExecArguments {
    /// The sandbox
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) how: CommandArguments,
    /// Run alone among runs with --lock in the sandbox, in the order they were started
    #[arg(long)]
    pub(crate) lock: bool,
    /// If the sandbox has to be made: accept less than its tier promises where this host cannot enforce it
    #[arg(long)]
    pub(crate) allow_downgrade: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ShellArguments {
    /// The sandbox
    #[arg(default_value = "default")]
    pub(crate) name: String,
    /// As whom: sandbox or root
    #[arg(long)]
    pub(crate) user: Option<String>,
    /// Working directory, absolute in the sandbox
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<String>,
    /// If the sandbox has to be made: accept less than its tier promises where this host cannot enforce it
    #[arg(long)]
    pub(crate) allow_downgrade: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CodeArguments {
    /// The sandbox
    pub(crate) name: String,
    /// The interpreter that remembers, made on first use; without one nothing stays
    #[arg(long, short, value_name = "CONTEXT")]
    pub(crate) context: Option<String>,
    /// python, node or shell; that of the context, or detected, when left out
    #[arg(long, value_name = "LANGUAGE")]
    pub(crate) lang: Option<String>,
    /// End the call after this time, such as 30s
    #[arg(long, value_name = "DURATION")]
    pub(crate) timeout: Option<String>,
    #[command(flatten)]
    pub(crate) around: Surroundings,
    /// Write pictures to this directory instead of only naming them
    #[arg(long, value_name = "DIR")]
    pub(crate) pictures: Option<PathBuf>,
    /// The code; read from standard input when left out
    pub(crate) code: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ContextsArguments {
    /// The sandbox
    pub(crate) name: String,
    /// Interrupt what runs in this context; it lives on
    #[arg(long, value_name = "CONTEXT", group = "what")]
    pub(crate) interrupt: Option<String>,
    /// Start this context anew; files stay
    #[arg(long, value_name = "CONTEXT", group = "what")]
    pub(crate) restart: Option<String>,
    /// Remove this context
    #[arg(long, value_name = "CONTEXT", group = "what")]
    pub(crate) remove: Option<String>,
}
