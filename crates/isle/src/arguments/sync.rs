//! Arguments of `sync` and `watch`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::commands::transfer_report::GitDirsOption;

#[derive(Debug, Args)]
pub(crate) struct SyncArguments {
    #[command(subcommand)]
    pub(crate) command: SyncCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SyncCommand {
    /// Copy changed files into a sandbox
    Push(PushArguments),
    /// Copy changed files out of a sandbox
    Pull(PullArguments),
    /// Start a live sync of a host directory (below one of host_roots) into a sandbox
    Start(StartArguments),
    /// Stop live syncs
    Stop(StopArguments),
    /// List live syncs
    Ls,
}

/// Selects the files of a tree.
#[derive(Debug, Args)]
pub(crate) struct SyncOptions {
    /// Exclude files that match a .gitignore pattern; overrides .gitignore files
    #[arg(long, value_name = "PATTERN")]
    pub(crate) exclude: Vec<String>,
    /// Include the .git directory; a pull fetches only commits and refs from it
    #[arg(long)]
    pub(crate) git: bool,
    /// Include files ignored by .gitignore files
    #[arg(long)]
    pub(crate) ignored: bool,
    /// Delete files that exist only on the receiving side
    #[arg(long)]
    pub(crate) delete: bool,
    /// Print what would be done without doing it
    #[arg(long, short = 'n')]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Args)]
pub(crate) struct PushArguments {
    /// Directory on this host
    pub(crate) from: PathBuf,
    /// Sandbox directory: NAME or NAME:PATH
    pub(crate) to: String,
    #[command(flatten)]
    pub(crate) options: SyncOptions,
}

#[derive(Debug, Args)]
pub(crate) struct PullArguments {
    /// Sandbox directory: NAME or NAME:PATH
    pub(crate) from: String,
    /// Directory on this host
    pub(crate) to: PathBuf,
    #[command(flatten)]
    pub(crate) options: SyncOptions,
    /// Copy git directories as files, hooks and configuration included; only for trusted sandboxes
    #[arg(long, value_name = "WHAT", default_value = "skip", hide_default_value = true)]
    pub(crate) git_dirs: GitDirsOption,
}

#[derive(Debug, Args)]
pub(crate) struct StartArguments {
    /// Directory on this host
    pub(crate) from: PathBuf,
    /// Sandbox directory: NAME or NAME:PATH
    pub(crate) to: String,
    /// Exclude files that match a .gitignore pattern; overrides .gitignore files
    #[arg(long, value_name = "PATTERN")]
    pub(crate) exclude: Vec<String>,
    /// Include the .git directory
    #[arg(long)]
    pub(crate) git: bool,
    /// Include files ignored by .gitignore files
    #[arg(long)]
    pub(crate) ignored: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StopArguments {
    /// Sync ids
    #[arg(required = true)]
    pub(crate) syncs: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct WatchArguments {
    /// Sandbox name
    pub(crate) name: String,
    /// Directory or file in the sandbox, relative to /workspace or absolute
    #[arg(default_value = ".")]
    pub(crate) path: String,
    /// Do not watch subdirectories
    #[arg(long)]
    pub(crate) flat: bool,
}
