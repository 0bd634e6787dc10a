//! Definition of the command line. Values stay text here and are parsed where they are used, so that an
//! invalid one gets the same code and message in the CLI, over HTTP and over MCP.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

mod admin;
mod children;
mod events;
mod examples;
mod file;
mod host;
mod job;
mod lifecycle;
mod network;
mod run;
mod runs;
mod sandbox;
mod secret;
mod sync;
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
    RevokeArguments, UnexposeArguments, UrlArguments,
};
pub(crate) use run::{
    CodeArguments, CommandArguments, ContextsArguments, ExecArguments, ProcessArguments, RunArguments,
    SandboxArguments, ShellArguments,
};
pub(crate) use runs::{HistoryArguments, KillArguments, LogsArguments, WaitArguments};
pub(crate) use sandbox::{
    CpArguments, EnvAction, EnvArguments, InstallArguments, ResetArguments, RmArguments, StatusArguments,
    ValidateArguments,
};
pub(crate) use secret::{SecretArguments, SecretCommand, SecretSetArguments};
pub(crate) use sync::{
    PullArguments, PushArguments, StartArguments, StopArguments, SyncArguments, SyncCommand, SyncOptions,
    WatchArguments,
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
    /// Parses the command line; prints the error and exits when it is invalid.
    pub(crate) fn read() -> Self {
        let quick = matches!(std::env::args_os().nth(1), Some(word) if word == "run" || word == "exec");
        // What the short parser rejects is parsed again in full, for the complete error message.
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

/// A parser for the two most frequent commands only: building the full parser takes longer than parsing.
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

/// Options of every command.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    /// Print JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// State directory of the daemon
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
    /// Unix socket of the daemon
    #[arg(long, global = true, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// Use this namespace (operator only)
    #[arg(long, global = true, value_name = "NAMESPACE")]
    pub(crate) namespace: Option<String>,
    /// Read this file instead of the user's configuration file
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a command or script in a new sandbox and remove it afterwards
    Run(RunArguments),
    /// Run a command in a named sandbox; create it on first use
    Exec(ExecArguments),
    /// Open a shell in a named sandbox
    Shell(ShellArguments),
    /// Run code in a named sandbox and print the result; --context keeps interpreter state
    Code(CodeArguments),
    /// List the contexts of a sandbox, or interrupt, restart or remove one
    Contexts(ContextsArguments),
    /// Set, unset or list persistent environment variables of a sandbox
    Env(EnvArguments),
    /// Check a source file without running it: syntax, dangerous calls, suggested fixes
    Validate(ValidateArguments),
    /// Install packages in a sandbox with pip, npm, apt or apk
    Install(InstallArguments),
    /// Create a named sandbox
    Create(CreateArguments),
    /// Extend the TTL of a sandbox
    Extend(ExtendArguments),
    /// Pause all processes of sandboxes
    Pause(PauseArguments),
    /// Resume paused sandboxes
    Resume(PauseArguments),
    /// Recreate sandboxes; keep /workspace, variables and package caches
    Reset(ResetArguments),
    /// Run several commands in a named sandbox in order, as one run
    Batch(BatchArguments),
    /// Start, list, write to and stop background jobs
    Job(JobArguments),
    /// Attach to a running job
    Attach(AttachArguments),
    /// Create a child sandbox with a subset of its parent's permissions
    Spawn(SpawnArguments),
    /// List or destroy child sandboxes
    Children(ChildrenArguments),
    /// Copy JSON into a sandbox: a value, or a file or variable of another sandbox
    Bridge(BridgeArguments),
    /// Allow a sandbox to connect to hosts
    Allow(AllowArguments),
    /// Revoke network grants of a sandbox and close the connections they allowed
    Revoke(RevokeArguments),
    /// List network grants and pending requests; approve or deny requests
    Grants(GrantsArguments),
    /// Show allowed and denied connections of a sandbox
    Net(NetArguments),
    /// Forward a port of a sandbox to this host
    Expose(ExposeArguments),
    /// Stop forwarding a port
    Unexpose(UnexposeArguments),
    /// Print a URL with an access ticket for a port of a sandbox
    Url(UrlArguments),
    /// Set, list, remove, attach and detach secrets; values are never printed
    Secret(SecretArguments),
    /// List sandboxes
    Ls,
    /// Show the status of a sandbox, or of the daemon
    Status(StatusArguments),
    /// Destroy sandboxes
    Rm(RmArguments),
    /// Copy files between this host and a sandbox (NAME:PATH)
    Cp(CpArguments),
    /// List, print, search, edit, move and remove files in a sandbox; clone repositories
    File(FileArguments),
    /// Synchronize a directory between this host and a sandbox
    Sync(SyncArguments),
    /// Watch files of a sandbox for changes
    Watch(WatchArguments),
    /// Show the output of a run or job
    Logs(LogsArguments),
    /// Wait until runs or jobs exit
    Wait(WaitArguments),
    /// Kill runs or jobs, or send them a signal
    Kill(KillArguments),
    /// Show resource usage of sandboxes and runs
    Usage(UsageArguments),
    /// Show variables, secrets, contexts, jobs, syncs, limits and deadlines of sandboxes
    Inspect(InspectArguments),
    /// Show or change default limits and quotas of the daemon
    Limits(LimitsArguments),
    /// Create, list and revoke access tokens of namespaces
    Token(TokenArguments),
    /// List runs
    History(HistoryArguments),
    /// Show sandboxes and their resource usage, live
    Top(TopArguments),
    /// Show events; --follow streams new ones
    Events(EventsArguments),
    /// Send signed events to HTTP endpoints
    Webhooks(WebhooksArguments),
    /// Show or verify the audit log
    Audit(AuditArguments),
    /// Run the daemon in the foreground
    Serve(ServeArguments),
    /// Stop the daemon; named sandboxes keep running
    Stop,
    /// Restart the daemon with this version; named sandboxes keep running
    Restart,
    /// Move a corrupt database aside so that the daemon can start; sandboxes keep running
    Repair,
    /// Serve MCP on standard input and output
    Mcp(McpArguments),
    /// Call an API operation with a JSON object; list operations without a name
    #[command(disable_help_flag = true)]
    Call(CallArguments),
    /// Check this host: what each tier enforces, and how to fix what is missing
    Doctor(DoctorArguments),
    /// Run a one-minute demo on this host
    Try,
    /// Show settings and the origin of each value
    Config(ConfigArguments),
    /// Print shell completions
    Completions(CompletionsArguments),
}
