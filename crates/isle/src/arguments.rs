//! The shape of the command line. Values stay text here; they are read where they are used, so that
//! a bad one gets the same code and sentence at every door.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

mod admin;
mod children;
mod events;
mod file;
mod host;
mod job;
mod lifecycle;
mod network;
mod run;
mod runs;
mod secret;
mod sync;
mod tend;
mod token;
mod top;
mod webhooks;

pub(crate) use admin::{InspectArguments, LimitsArguments, UsageArguments};
pub(crate) use children::{BridgeArguments, ChildrenArguments, SpawnArguments};
pub(crate) use events::EventsArguments;
pub(crate) use file::{FileArguments, FileCommand};
pub(crate) use host::{
    AuditArguments, CallArguments, CompletionsArguments, ConfigArguments, DoctorArguments, McpArguments,
    ServeArguments,
};
pub(crate) use job::{
    AttachArguments, BatchArguments, JobArguments, JobCommand, JobListArguments, JobStartArguments,
    JobStopArguments, JobWriteArguments,
};
pub(crate) use lifecycle::{CreateArguments, ExtendArguments, PauseArguments};
pub(crate) use network::{
    AllowArguments, ApproveArguments, ExposeArguments, GrantsArguments, GrantsCommand, NetArguments,
    RevokeArguments, UnexposeArguments,
};
pub(crate) use run::{
    CodeArguments, CommandArguments, ContextsArguments, ExecArguments, RunArguments, SandboxArguments,
    ShellArguments, Surroundings,
};
pub(crate) use runs::{HistoryArguments, KillArguments, LogsArguments, WaitArguments};
pub(crate) use secret::{SecretArguments, SecretCommand, SecretSetArguments};
pub(crate) use sync::{
    PullArguments, PushArguments, StartArguments, StopArguments, SyncArguments, SyncCommand, SyncOptions,
    WatchArguments,
};
pub(crate) use tend::{
    CpArguments, EnvAction, EnvArguments, InstallArguments, ResetArguments, RmArguments, StatusArguments,
    ValidateArguments,
};
pub(crate) use token::{TokenArguments, TokenCommand};
pub(crate) use top::TopArguments;
pub(crate) use webhooks::{WebhooksArguments, WebhooksCommand};

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
    /// Have events sent to addresses of the web, signed
    Webhooks(WebhooksArguments),
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
