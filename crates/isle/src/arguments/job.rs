//! The shape of the commands about work that goes on by itself: `batch`, `job` and `attach`.

use clap::{Args, Subcommand};

use super::Surroundings;

#[derive(Debug, Args)]
pub(crate) struct BatchArguments {
    /// The sandbox
    pub(crate) name: String,
    /// Go on after a command that failed; the whole still counts as failed
    #[arg(long, short = 'k')]
    pub(crate) keep_going: bool,
    /// Run alone among runs with --lock in the sandbox, in the order they were started
    #[arg(long)]
    pub(crate) lock: bool,
    /// End all of them after this time, such as 30s
    #[arg(long, value_name = "DURATION")]
    pub(crate) timeout: Option<String>,
    #[command(flatten)]
    pub(crate) around: Surroundings,
    /// Shell lines; one that begins with `-` may fail, as in a makefile
    #[arg(last = true, required = true, value_name = "LINE")]
    pub(crate) lines: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct JobArguments {
    #[command(subcommand)]
    pub(crate) what: JobCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum JobCommand {
    /// Start a command that goes on by itself; prints what to call it
    Start(JobStartArguments),
    /// List jobs, newest first
    Ls(JobListArguments),
    /// Write to the standard input of a job
    Write(JobWriteArguments),
    /// Ask jobs to end, then end them; shows their last lines
    Stop(JobStopArguments),
}

#[derive(Debug, Args)]
pub(crate) struct JobStartArguments {
    /// The sandbox
    pub(crate) sandbox: String,
    /// What to call it; the id of its run when left out
    #[arg(long, short)]
    pub(crate) name: Option<String>,
    /// Give it a terminal, for `isle attach`
    #[arg(long, short)]
    pub(crate) tty: bool,
    /// Keep its standard input open, for `isle job write`
    #[arg(long, short)]
    pub(crate) input: bool,
    /// Run alone among runs with --lock in the sandbox, in the order they were started
    #[arg(long)]
    pub(crate) lock: bool,
    /// End it after this time, such as 30s; it has no limit when left out
    #[arg(long, value_name = "DURATION")]
    pub(crate) timeout: Option<String>,
    #[command(flatten)]
    pub(crate) around: Surroundings,
    /// Command and arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct JobListArguments {
    /// Jobs of this sandbox only
    pub(crate) sandbox: Option<String>,
    /// How many
    #[arg(long, default_value_t = 20)]
    pub(crate) limit: u32,
}

#[derive(Debug, Args)]
pub(crate) struct JobWriteArguments {
    /// SANDBOX:NAME, or the id of the run
    pub(crate) job: String,
    /// A line to write; standard input is written as it is when left out
    pub(crate) line: Option<String>,
    /// Then end its standard input
    #[arg(long)]
    pub(crate) eof: bool,
}

#[derive(Debug, Args)]
pub(crate) struct JobStopArguments {
    /// SANDBOX:NAME, or ids of runs
    #[arg(required = true)]
    pub(crate) jobs: Vec<String>,
    /// End everything at once, without asking first
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
pub(crate) struct AttachArguments {
    /// SANDBOX:NAME, or the id of the run
    pub(crate) job: String,
}
