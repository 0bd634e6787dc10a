//! The shape of `isle file`: one file of a sandbox at a time. Whole trees are `cp` and `sync`.

use clap::{Args, Subcommand};

#[derive(Debug, Args)]
pub(crate) struct FileArguments {
    #[command(subcommand)]
    pub(crate) command: FileCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum FileCommand {
    /// List a directory
    Ls {
        /// The sandbox
        name: String,
        /// Directory, relative to /workspace or absolute
        path: Option<String>,
        /// Levels down
        #[arg(long, value_name = "LEVELS")]
        depth: Option<u32>,
        /// Only names like this, at any depth, such as '*.py'
        #[arg(long)]
        glob: Option<String>,
        /// Entries at most
        #[arg(long)]
        limit: Option<u32>,
    },
    /// Print a text file, or some lines of it
    Cat {
        /// The sandbox
        name: String,
        /// File, relative to /workspace or absolute
        path: String,
        /// Only these, such as 10-20
        #[arg(long, value_name = "FROM-TO")]
        lines: Option<String>,
    },
    /// Find lines that match a regular expression
    Grep {
        /// The sandbox
        name: String,
        /// What to look for
        pattern: String,
        /// Directory or file, relative to /workspace or absolute
        path: Option<String>,
        /// The pattern is plain text
        #[arg(long, short = 'F')]
        literal: bool,
        /// Capitals count as small letters
        #[arg(long, short = 'i')]
        ignore_case: bool,
        /// Only these files, such as '*.py'
        #[arg(long)]
        glob: Option<String>,
        /// Lines shown around each match
        #[arg(long, short = 'C', value_name = "LINES")]
        context: Option<u32>,
        /// Matches at most
        #[arg(long)]
        limit: Option<u32>,
    },
    /// Replace exact text; nothing changes unless it is there once
    Edit {
        /// The sandbox
        name: String,
        /// File, relative to /workspace or absolute
        path: String,
        /// Text as it stands in the file
        #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
        old: String,
        /// Text in its place
        #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
        new: String,
        /// Replace it wherever it stands
        #[arg(long)]
        all: bool,
    },
    /// Move or rename a file or directory
    Mv {
        /// The sandbox
        name: String,
        /// What to move
        from: String,
        /// Its new path
        to: String,
        /// Also when a file stands there
        #[arg(long, short)]
        force: bool,
    },
    /// Remove a file
    Rm {
        /// The sandbox
        name: String,
        /// File, relative to /workspace or absolute
        path: String,
        /// Directories too, with all they hold
        #[arg(long, short)]
        recursive: bool,
    },
    /// Show kind, size, mode, owner and time of a file
    Stat {
        /// The sandbox
        name: String,
        /// File, relative to /workspace or absolute
        path: String,
    },
    /// Clone a git repository
    Clone {
        /// The sandbox
        name: String,
        /// Such as https://host/owner/name.git
        url: String,
        /// Where to; the repository's name in /workspace when left out
        path: Option<String>,
        /// Branch or tag
        #[arg(long)]
        branch: Option<String>,
        /// Commits of history; 1 when left out, 0 is all
        #[arg(long, value_name = "COMMITS")]
        depth: Option<u32>,
        /// Variable of this shell that holds the access token
        #[arg(long, value_name = "VARIABLE")]
        token_from: Option<String>,
        /// User name that goes with the token
        #[arg(long)]
        username: Option<String>,
        /// Let git reach the host of the URL (git), or another host
        #[arg(long, value_name = "git|HOST")]
        allow: Vec<String>,
    },
}
