//! Arguments of `batch`, `job` and `attach`.

use clap::{Args, Subcommand};

use super::ProcessArguments;

#[derive(Debug, Args)]
pub(crate) struct BatchArguments {
    /// Sandbox name
    pub(crate) name: String,
    /// Continue after a failed command; the run still counts as failed
    #[arg(long, short = 'k')]
    pub(crate) keep_going: bool,
    /// Run exclusively among runs with --lock in this sandbox, in start order
    #[arg(long)]
    pub(crate) lock: bool,
    /// Kill all commands after this time, such as 30s
    #[arg(long, value_name = "DURATION")]
    pub(crate) timeout: Option<String>,
    #[command(flatten)]
    pub(crate) process: ProcessArguments,
    /// Shell commands; one that begins with `-` may fail, as in a makefile
    #[arg(last = true, required = true, value_name = "LINE")]
    pub(crate) lines: Vec<String>,
}

#[derive(Debug, Args)]
#[command(after_help = super::examples::JOB)]
pub(crate) struct JobArguments {
    #[command(subcommand)]
    pub(crate) what: JobCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum JobCommand {
    /// Start a background job and print its name
    Start(JobStartArguments),
    /// List jobs, newest first
    Ls(JobListArguments),
    /// Write to the standard input of a job
    Write(JobWriteArguments),
    /// Stop jobs with SIGTERM, then SIGKILL; print their last lines
    Stop(JobStopArguments),
}

#[derive(Debug, Args)]
pub(crate) struct JobStartArguments {
    /// Sandbox name
    pub(crate) sandbox: String,
    /// Name of the job (default: the run id)
    #[arg(long, short)]
    pub(crate) name: Option<String>,
    /// Allocate a terminal, for `isle attach`
    #[arg(long, short)]
    pub(crate) tty: bool,
    /// Keep standard input open, for `isle job write`
    #[arg(long, short)]
    pub(crate) input: bool,
    /// Run exclusively among runs with --lock in this sandbox, in start order
    #[arg(long)]
    pub(crate) lock: bool,
    /// Kill the job after this time, such as 30s (default: no limit)
    #[arg(long, value_name = "DURATION")]
    pub(crate) timeout: Option<String>,
    #[command(flatten)]
    pub(crate) process: ProcessArguments,
    /// Command and arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct JobListArguments {
    /// Only jobs of this sandbox
    pub(crate) sandbox: Option<String>,
    /// Maximum number of jobs to show
    #[arg(long, default_value_t = 20)]
    pub(crate) limit: u32,
}

#[derive(Debug, Args)]
pub(crate) struct JobWriteArguments {
    /// Job: SANDBOX:NAME, or the run id
    pub(crate) job: String,
    /// Line to write (default: copy standard input unchanged)
    pub(crate) line: Option<String>,
    /// Close standard input of the job afterwards
    #[arg(long)]
    pub(crate) eof: bool,
}

#[derive(Debug, Args)]
pub(crate) struct JobStopArguments {
    /// Jobs: SANDBOX:NAME, or run ids
    #[arg(required = true)]
    pub(crate) jobs: Vec<String>,
    /// Send SIGKILL immediately
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
pub(crate) struct AttachArguments {
    /// Job: SANDBOX:NAME, or the run id
    pub(crate) job: String,
}
