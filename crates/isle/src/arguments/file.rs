//! Arguments of `isle file`, which works on one file of a sandbox at a time; whole trees are `cp` and `sync`.

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
        /// Sandbox name
        name: String,
        /// Directory, relative to /workspace or absolute
        path: Option<String>,
        /// Maximum depth
        #[arg(long, value_name = "LEVELS")]
        depth: Option<u32>,
        /// Only names that match this glob pattern, such as '*.py'
        #[arg(long)]
        glob: Option<String>,
        /// Maximum number of entries
        #[arg(long)]
        limit: Option<u32>,
    },
    /// Print a text file, or a range of its lines
    Cat {
        /// Sandbox name
        name: String,
        /// File, relative to /workspace or absolute
        path: String,
        /// Only these lines, such as 10-20
        #[arg(long, value_name = "FROM-TO")]
        lines: Option<String>,
    },
    /// Search files for a regular expression
    Grep {
        /// Sandbox name
        name: String,
        /// Pattern
        pattern: String,
        /// Directory or file, relative to /workspace or absolute
        path: Option<String>,
        /// Treat the pattern as literal text
        #[arg(long, short = 'F')]
        literal: bool,
        /// Ignore case
        #[arg(long, short = 'i')]
        ignore_case: bool,
        /// Only files that match this glob pattern, such as '*.py'
        #[arg(long)]
        glob: Option<String>,
        /// Lines of context around each match
        #[arg(long, short = 'C', value_name = "LINES")]
        context: Option<u32>,
        /// Maximum number of matches
        #[arg(long)]
        limit: Option<u32>,
    },
    /// Replace exact text, which must occur exactly once
    Edit {
        /// Sandbox name
        name: String,
        /// File, relative to /workspace or absolute
        path: String,
        /// Text to replace
        #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
        old: String,
        /// Replacement text
        #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
        new: String,
        /// Replace all occurrences
        #[arg(long)]
        all: bool,
    },
    /// Move or rename a file or directory
    Mv {
        /// Sandbox name
        name: String,
        /// Source path
        from: String,
        /// Destination path
        to: String,
        /// Overwrite an existing file
        #[arg(long, short)]
        force: bool,
    },
    /// Remove a file
    Rm {
        /// Sandbox name
        name: String,
        /// File, relative to /workspace or absolute
        path: String,
        /// Remove directories and their contents recursively
        #[arg(long, short)]
        recursive: bool,
    },
    /// Show type, size, mode, owner and modification time of a file
    Stat {
        /// Sandbox name
        name: String,
        /// File, relative to /workspace or absolute
        path: String,
    },
    /// Clone a git repository
    Clone {
        /// Sandbox name
        name: String,
        /// Repository URL, such as https://host/owner/name.git
        url: String,
        /// Target directory (default: the repository name in /workspace)
        path: Option<String>,
        /// Branch or tag
        #[arg(long)]
        branch: Option<String>,
        /// Number of commits to fetch; 0 fetches all (default: 1)
        #[arg(long, value_name = "COMMITS")]
        depth: Option<u32>,
        /// Environment variable of this shell that contains the access token
        #[arg(long, value_name = "VARIABLE")]
        token_from: Option<String>,
        /// User name for the token
        #[arg(long)]
        username: Option<String>,
        /// Allow git to connect to the host of the URL (git), or to another host
        #[arg(long, value_name = "git|HOST")]
        allow: Vec<String>,
    },
}
