//! Arguments of the commands that tend a sandbox: what it has, and its end.

use std::path::PathBuf;

use clap::{Args, Subcommand};

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
