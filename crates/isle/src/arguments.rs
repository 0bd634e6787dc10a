//! The shape of the command line. Values stay text here; they are read where they are used, so that
//! a bad one gets the same code and sentence at every door.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

mod admin;
mod children;
mod events;
mod file;
mod job;
mod lifecycle;
mod network;
mod secret;
mod sync;
mod token;
mod top;

pub(crate) use admin::{InspectArguments, LimitsArguments, UsageArguments};
pub(crate) use children::{BridgeArguments, ChildrenArguments, SpawnArguments};
pub(crate) use events::EventsArguments;
pub(crate) use file::{FileArguments, FileCommand};
pub(crate) use job::{
    AttachArguments, BatchArguments, JobArguments, JobCommand, JobListArguments, JobStartArguments,
    JobStopArguments, JobWriteArguments,
};
pub(crate) use lifecycle::{CreateArguments, ExtendArguments, PauseArguments};
pub(crate) use network::{
    AllowArguments, ApproveArguments, ExposeArguments, GrantsArguments, GrantsCommand, NetArguments,
    RevokeArguments, UnexposeArguments,
};
pub(crate) use secret::{SecretArguments, SecretCommand, SecretSetArguments};
pub(crate) use sync::{
    PullArguments, PushArguments, StartArguments, StopArguments, SyncArguments, SyncCommand, SyncOptions,
    WatchArguments,
};
pub(crate) use token::{TokenArguments, TokenCommand};
pub(crate) use top::TopArguments;

/// Sandboxes for AI agents.
#[derive(Debug, Parser)]
#[command(
    name = "isle",
    version,
    about,
    max_term_width = 100,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Arguments {
    /// Reads the command line, or says what is wrong with it and ends the program.
    pub(crate) fn read() -> Self {
        let quick = matches!(std::env::args_os().nth(1), Some(word) if word == "run" || word == "exec");
        // What cannot be read quickly is read again in full, for the words about it.
        match quick.then(Quick::try_parse) {
            Some(Ok(Quick { global, command: QuickCommand::Run(arguments) })) => {
                Self { global, command: Command::Run(arguments) }
            }
            Some(Ok(Quick { global, command: QuickCommand::Exec(arguments) })) => {
                Self { global, command: Command::Exec(arguments) }
            }
            Some(Err(_)) | None => Self::parse(),
        }
    }
}

/// A command line that can only be one of the commands that are run all the time: describing all the
/// others takes longer than reading it.
#[derive(Debug, Parser)]
#[command(name = "isle", disable_help_flag = true)]
struct Quick {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: QuickCommand,
}

#[derive(Debug, Subcommand)]
#[command(disable_help_subcommand = true)]
enum QuickCommand {
    #[command(disable_help_flag = true)]
    Run(RunArguments),
    #[command(disable_help_flag = true)]
    Exec(ExecArguments),
}

/// What every command takes.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Everywhere")]
pub(crate) struct Global {
    /// Print JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Where the daemon keeps its state
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
    /// The daemon's socket
    #[arg(long, global = true, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// Work in this namespace; only the operator may choose
    #[arg(long, global = true, value_name = "NAMESPACE")]
    pub(crate) namespace: Option<String>,
    /// Read this file in place of the user's own settings
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a command or script in a fresh sandbox that is gone afterwards
    Run(RunArguments),
    /// Run a command in a named sandbox, made on first use
    Exec(ExecArguments),
    /// Open a shell in a named sandbox
    Shell(ShellArguments),
    /// Run code in a named sandbox and show what it gives back; with --context it remembers
    Code(CodeArguments),
    /// List the contexts of a sandbox, or interrupt, restart or remove one
    Contexts(ContextsArguments),
    /// Set, unset or list variables of a sandbox, which stay
    Env(EnvArguments),
    /// Check a file of code without running it: syntax, dangers, suggested fixes
    Validate(ValidateArguments),
    /// Install packages in a sandbox with pip, npm, apt or apk
    Install(InstallArguments),
    /// Make a named sandbox with settings of its own
    Create(CreateArguments),
    /// Give a sandbox that has a TTL more time
    Extend(ExtendArguments),
    /// Stop everything in sandboxes until they are resumed
    Pause(PauseArguments),
    /// Let everything in paused sandboxes go on
    Resume(PauseArguments),
    /// Make sandboxes anew; /workspace, variables and package caches stay
    Reset(ResetArguments),
    /// Run several commands in a named sandbox, in order, as one run
    Batch(BatchArguments),
    /// Start, list, write to and stop commands that go on by themselves
    Job(JobArguments),
    /// Look at a job as it goes on, and type into it
    Attach(AttachArguments),
    /// Make a child of a sandbox, with a share of its rights
    Spawn(SpawnArguments),
    /// List children and grandchildren of a sandbox, or destroy them
    Children(ChildrenArguments),
    /// Hand JSON to a sandbox: a value, or a file or variable of another one
    Bridge(BridgeArguments),
    /// Let a sandbox reach hosts, until that is taken back
    Allow(AllowArguments),
    /// Take grants of a sandbox back; what they allowed is cut
    Revoke(RevokeArguments),
    /// Show what a sandbox may reach
    Grants(GrantsArguments),
    /// Show what a sandbox connected to and what it was denied
    Net(NetArguments),
    /// Show a port of a sandbox on this host
    Expose(ExposeArguments),
    /// Take a port of a sandbox from this host
    Unexpose(UnexposeArguments),
    /// Set, list and remove secrets, and give them to sandboxes; values are never shown
    Secret(SecretArguments),
    /// List sandboxes
    Ls,
    /// Show a sandbox, or the daemon and everything in it
    Status(StatusArguments),
    /// Destroy sandboxes
    Rm(RmArguments),
    /// Copy files into or out of a sandbox: NAME:PATH on one side
    Cp(CpArguments),
    /// List, print, search and change single files of a sandbox; clone repositories
    File(FileArguments),
    /// Make a directory of a sandbox like one of this host, or the other way round
    Sync(SyncArguments),
    /// Show what happens to files of a sandbox, as it happens
    Watch(WatchArguments),
    /// Show the output of a run or job
    Logs(LogsArguments),
    /// Wait until runs or jobs have ended
    Wait(WaitArguments),
    /// End runs or jobs
    Kill(KillArguments),
    /// Show what sandboxes and runs take of the host
    Usage(UsageArguments),
    /// Show what sandboxes hold: variables, contexts, jobs, syncs, limits, deadlines
    Inspect(InspectArguments),
    /// Show or change defaults and ceilings of the daemon
    Limits(LimitsArguments),
    /// Make, list and revoke tokens of namespaces
    Token(TokenArguments),
    /// List runs
    History(HistoryArguments),
    /// Show sandboxes and what they use, live
    Top(TopArguments),
    /// Show what happened, and with --follow what happens
    Events(EventsArguments),
    /// Show the audit log, or prove that nobody changed it
    Audit(AuditArguments),
    /// Run the daemon here
    Serve(ServeArguments),
    /// End the daemon; named sandboxes live on
    Stop,
    /// End the daemon and start one of this version; named sandboxes live on
    Restart,
    /// Set a damaged database aside, so that the daemon starts again; sandboxes live on
    Repair,
    /// Speak MCP on standard input and output
    Mcp(McpArguments),
    /// Call an operation with a JSON object; without a name, list them
    #[command(disable_help_flag = true)]
    Call(CallArguments),
    /// What this host offers, what each tier enforces here, and how to fix what is missing
    Doctor(DoctorArguments),
    /// See Isle work, in under a minute
    Try,
    /// Show settings and where each value comes from
    Config(ConfigArguments),
    /// Print completions for a shell
    Completions(CompletionsArguments),
}

/// Arguments of `isle mcp`.
#[derive(Debug, Args)]
pub(crate) struct McpArguments {
    /// Sets of tools the client is shown: core, files, jobs, contexts, environment, lifecycle, children, admin, network, secrets, or all
    #[arg(long, value_name = "SET,SET")]
    pub(crate) toolsets: Option<String>,
}

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

/// How a command runs.
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

#[derive(Debug, Args)]
pub(crate) struct EnvArguments {
    /// The sandbox
    pub(crate) name: String,
    #[command(subcommand)]
    pub(crate) action: EnvAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum EnvAction {
    /// Set variables; every later command sees them
    Set {
        /// NAME=VALUE; NAME alone takes this shell's value
        #[arg(required = true, value_name = "NAME=VALUE")]
        variables: Vec<String>,
    },
    /// Forget variables
    Unset {
        /// Their names
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
    },
    /// List variables
    Ls,
}

#[derive(Debug, Args)]
pub(crate) struct ValidateArguments {
    /// File of this host; `-` is standard input
    pub(crate) file: PathBuf,
    /// The sandbox whose interpreters read it
    #[arg(long, default_value = "default", value_name = "NAME")]
    pub(crate) sandbox: String,
    /// python, node or shell; by the file's ending, or detected, when left out
    #[arg(long, value_name = "LANGUAGE")]
    pub(crate) lang: Option<String>,
    /// Suggest no fixes
    #[arg(long)]
    pub(crate) no_fix: bool,
    /// Reject code with dangers in it
    #[arg(long)]
    pub(crate) reject_findings: bool,
    /// Leave out dangers of this name
    #[arg(long, value_name = "FINDING")]
    pub(crate) ignore: Vec<String>,
    /// Print the code with the fixes in it
    #[arg(long, conflicts_with = "no_fix")]
    pub(crate) show: bool,
}

#[derive(Debug, Args)]
pub(crate) struct InstallArguments {
    /// The sandbox
    pub(crate) name: String,
    /// Names with versions, or paths of package files in the sandbox
    #[arg(required = true, value_name = "PACKAGE")]
    pub(crate) packages: Vec<String>,
    /// pip, npm, apt or apk; by what the image has when left out
    #[arg(long, value_name = "MANAGER")]
    pub(crate) manager: Option<String>,
    /// Address of another package index
    #[arg(long, value_name = "URL")]
    pub(crate) index: Option<String>,
    /// Take addresses as packages too
    #[arg(long)]
    pub(crate) allow_urls: bool,
    /// Let it reach what a client uses on this host (pip, npm, apt), or a host
    #[arg(long, value_name = "CLIENT|HOST")]
    pub(crate) allow: Vec<String>,
    /// Give up after this time; 120s when left out
    #[arg(long, value_name = "DURATION")]
    pub(crate) timeout: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ResetArguments {
    /// The sandboxes
    #[arg(required = true)]
    pub(crate) names: Vec<String>,
    /// Also empty /workspace, which else stays
    #[arg(long)]
    pub(crate) wipe: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StatusArguments {
    /// The sandbox
    pub(crate) name: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct RmArguments {
    /// The sandboxes
    #[arg(required_unless_present = "all")]
    pub(crate) names: Vec<String>,
    /// Every sandbox there is
    #[arg(long, conflicts_with = "names")]
    pub(crate) all: bool,
    /// Also delete /workspace, which else stays for the next sandbox of that name
    #[arg(long)]
    pub(crate) wipe: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CpArguments {
    /// From: PATH or NAME:PATH
    pub(crate) from: String,
    /// To: PATH or NAME:PATH; `-` is standard output
    pub(crate) to: String,
}

#[derive(Debug, Args)]
pub(crate) struct LogsArguments {
    /// The run, or SANDBOX:NAME of a job
    pub(crate) run: String,
    /// Go on until the run ends
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// Only the last lines of each output; with --follow, begin with them
    #[arg(long, short = 'n', value_name = "LINES")]
    pub(crate) tail: Option<u32>,
    /// Standard error only
    #[arg(long)]
    pub(crate) stderr: bool,
}

#[derive(Debug, Args)]
pub(crate) struct WaitArguments {
    /// The runs, or SANDBOX:NAME of jobs
    #[arg(required = true)]
    pub(crate) runs: Vec<String>,
    /// Give up after this time, such as 30s
    #[arg(long, value_name = "DURATION")]
    pub(crate) timeout: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct KillArguments {
    /// The runs, or SANDBOX:NAME of jobs
    #[arg(required = true)]
    pub(crate) runs: Vec<String>,
    /// End the whole tree at once, without asking it to end first
    #[arg(long, conflicts_with = "signal")]
    pub(crate) force: bool,
    /// Only send this signal, such as INT or 10
    #[arg(long, short)]
    pub(crate) signal: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct HistoryArguments {
    /// Runs of this sandbox only
    pub(crate) name: Option<String>,
    /// How many
    #[arg(long, default_value_t = 20)]
    pub(crate) limit: u32,
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
