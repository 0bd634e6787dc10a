//! The shape of the commands that keep directories alike and watch them: `sync` and `watch`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Args)]
pub(crate) struct SyncArguments {
    #[command(subcommand)]
    pub(crate) command: SyncCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SyncCommand {
    /// Send what differs into a sandbox
    Push(PushArguments),
    /// Fetch what differs out of a sandbox
    Pull(PullArguments),
    /// Let a sandbox follow a directory of this host, below one of the daemon's host_roots
    Start(StartArguments),
    /// End live syncs
    Stop(StopArguments),
    /// List live syncs
    Ls,
}

/// What belongs to a tree.
#[derive(Debug, Args)]
pub(crate) struct SyncOptions {
    /// Leave out what matches, as in a .gitignore file; counts before those files
    #[arg(long, value_name = "PATTERN")]
    pub(crate) exclude: Vec<String>,
    /// With the .git directory
    #[arg(long)]
    pub(crate) git: bool,
    /// With what .gitignore files leave out
    #[arg(long)]
    pub(crate) ignored: bool,
    /// Remove what is only on the other side
    #[arg(long)]
    pub(crate) delete: bool,
    /// Only say what would be done
    #[arg(long, short = 'n')]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Args)]
pub(crate) struct PushArguments {
    /// Directory of this host
    pub(crate) from: PathBuf,
    /// NAME or NAME:PATH
    pub(crate) to: String,
    #[command(flatten)]
    pub(crate) options: SyncOptions,
}

#[derive(Debug, Args)]
pub(crate) struct PullArguments {
    /// NAME or NAME:PATH
    pub(crate) from: String,
    /// Directory of this host
    pub(crate) to: PathBuf,
    #[command(flatten)]
    pub(crate) options: SyncOptions,
}

#[derive(Debug, Args)]
pub(crate) struct StartArguments {
    /// Directory of this host
    pub(crate) from: PathBuf,
    /// NAME or NAME:PATH
    pub(crate) to: String,
    /// Leave out what matches, as in a .gitignore file; counts before those files
    #[arg(long, value_name = "PATTERN")]
    pub(crate) exclude: Vec<String>,
    /// With the .git directory
    #[arg(long)]
    pub(crate) git: bool,
    /// With what .gitignore files leave out
    #[arg(long)]
    pub(crate) ignored: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StopArguments {
    /// The syncs
    #[arg(required = true)]
    pub(crate) syncs: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct WatchArguments {
    /// The sandbox
    pub(crate) name: String,
    /// Directory or file, relative to /workspace or absolute in the sandbox
    #[arg(default_value = ".")]
    pub(crate) path: String,
    /// Only the directory itself, not what is below its directories
    #[arg(long)]
    pub(crate) flat: bool,
}
