//! Arguments of `env`, `validate`, `install`, `reset`, `status`, `rm` and `cp`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::commands::transfer_report::GitDirsOption;

#[derive(Debug, Args)]
pub(crate) struct EnvArguments {
    /// Sandbox name
    pub(crate) name: String,
    #[command(subcommand)]
    pub(crate) action: EnvAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum EnvAction {
    /// Set variables for all later commands
    Set {
        /// NAME=VALUE; NAME alone passes this shell's value
        #[arg(required = true, value_name = "NAME=VALUE")]
        variables: Vec<String>,
    },
    /// Unset variables
    Unset {
        /// Variable names
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
    },
    /// List variables
    Ls,
}

#[derive(Debug, Args)]
pub(crate) struct ValidateArguments {
    /// File on this host; `-` reads standard input
    pub(crate) file: PathBuf,
    /// Sandbox whose interpreters are used
    #[arg(long, default_value = "default", value_name = "NAME")]
    pub(crate) sandbox: String,
    /// Language: python, node or shell (default: by file extension, or detected)
    #[arg(long, value_name = "LANGUAGE")]
    pub(crate) lang: Option<String>,
    /// Do not suggest fixes
    #[arg(long)]
    pub(crate) no_fix: bool,
    /// Reject code with dangerous calls
    #[arg(long)]
    pub(crate) reject_findings: bool,
    /// Ignore findings with this name
    #[arg(long, value_name = "FINDING")]
    pub(crate) ignore: Vec<String>,
    /// Print the code with the fixes applied
    #[arg(long, conflicts_with = "no_fix")]
    pub(crate) show: bool,
}

#[derive(Debug, Args)]
pub(crate) struct InstallArguments {
    /// Sandbox name
    pub(crate) name: String,
    /// Package names with optional versions, or package files in the sandbox
    #[arg(required = true, value_name = "PACKAGE")]
    pub(crate) packages: Vec<String>,
    /// Package manager: pip, npm, apt or apk (default: the one the image has)
    #[arg(long, value_name = "MANAGER")]
    pub(crate) manager: Option<String>,
    /// URL of another package index
    #[arg(long, value_name = "URL")]
    pub(crate) index: Option<String>,
    /// Accept URLs as packages
    #[arg(long)]
    pub(crate) allow_urls: bool,
    /// Allow connections to the registries of pip, npm or apt, or to a host
    #[arg(long, value_name = "CLIENT|HOST")]
    pub(crate) allow: Vec<String>,
    /// Kill the installation after this time (default: 120s)
    #[arg(long, value_name = "DURATION")]
    pub(crate) timeout: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ResetArguments {
    /// Sandbox names
    #[arg(required = true)]
    pub(crate) names: Vec<String>,
    /// Also delete the contents of /workspace
    #[arg(long)]
    pub(crate) wipe: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StatusArguments {
    /// Sandbox name
    pub(crate) name: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct RmArguments {
    /// Sandbox names
    #[arg(required_unless_present = "all")]
    pub(crate) names: Vec<String>,
    /// Destroy all sandboxes
    #[arg(long, conflicts_with = "names")]
    pub(crate) all: bool,
    /// Also delete /workspace; otherwise it is kept for the next sandbox with this name
    #[arg(long)]
    pub(crate) wipe: bool,
}

#[derive(Debug, Args)]
#[command(after_help = super::examples::CP)]
pub(crate) struct CpArguments {
    /// Source: PATH or NAME:PATH; `-` reads standard input
    pub(crate) from: String,
    /// Destination: PATH or NAME:PATH; `-` writes standard output
    pub(crate) to: String,
    /// Also copy git directories out, hooks and configuration included; only for trusted sandboxes
    #[arg(long, value_name = "WHAT", default_value = "skip", hide_default_value = true)]
    pub(crate) git_dirs: GitDirsOption,
}
