//! Names of sandboxes, and of contexts and jobs in them.

use std::fmt;
use std::str::FromStr;

use super::RunId;
use crate::error::{Code, Error};

/// 1 to 63 letters, digits, `.`, `_` or `-`, starting with a letter or digit.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SandboxName(String);

impl SandboxName {
    /// The sandbox that is used when a call names none.
    #[must_use]
    pub fn default_sandbox() -> Self {
        Self("default".into())
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for SandboxName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let mut characters = text.chars();
        let starts_well = characters.next().is_some_and(|first| first.is_ascii_alphanumeric());
        let goes_on_well = characters.all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'));
        if starts_well && goes_on_well && text.len() <= 63 {
            return Ok(Self(text.to_owned()));
        }
        Err(Error::new(Code::InvalidName, format!("{text:?} is not a sandbox name"))
            .next("use 1 to 63 letters, digits, '.', '_' or '-', starting with a letter or digit"))
    }
}

impl fmt::Display for SandboxName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

super::text_value!(SandboxName, "SandboxName", "Sandbox name.");

/// The name of a context; the same rules.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContextName(String);

impl ContextName {
    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ContextName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let name: Result<SandboxName, Error> = text.parse();
        name.map(|SandboxName(name)| Self(name)).map_err(|_| {
            Error::new(Code::InvalidName, format!("{text:?} is not a context name"))
                .next("use 1 to 63 letters, digits, '.', '_' or '-', starting with a letter or digit")
        })
    }
}

impl fmt::Display for ContextName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

super::text_value!(ContextName, "ContextName", "Context name.");

/// The name of a job; the same rules, and it cannot be taken for the id of a run.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobName(String);

impl JobName {
    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for JobName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let refuse =
            |next: &str| Err(Error::new(Code::InvalidName, format!("{text:?} is not a job name")).next(next));
        if text.starts_with("run_") {
            return refuse("choose a name that does not begin as the id of a run does, with `run_`");
        }
        match text.parse() {
            Ok(SandboxName(name)) => Ok(Self(name)),
            Err(_) => refuse("use 1 to 63 letters, digits, '.', '_' or '-', starting with a letter or digit"),
        }
    }
}

impl fmt::Display for JobName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

super::text_value!(JobName, "JobName", "Job name.");

/// Which run is meant: by its id, or by the name of the job it is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum RunOrJob {
    /// By id.
    Run(RunId),
    /// By name; the newest run that had it.
    Job {
        /// The sandbox, `default` when it is not said.
        sandbox: SandboxName,
        /// The name.
        job: JobName,
    },
}

impl FromStr for RunOrJob {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        if text.starts_with("run_") {
            return text.parse().map(Self::Run);
        }
        let job = match text.split_once(':') {
            None => text.parse().map(|job| (SandboxName::default_sandbox(), job)),
            Some((sandbox, job)) => sandbox.parse().and_then(|sandbox| Ok((sandbox, job.parse()?))),
        };
        job.map(|(sandbox, job)| Self::Job { sandbox, job }).map_err(|_| {
            Error::new(Code::InvalidArgument, format!("{text:?} is neither the id of a run nor a job"))
                .next("use an id that Isle gave you (`run_…`), or SANDBOX:NAME of a job")
        })
    }
}

impl fmt::Display for RunOrJob {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Run(id) => write!(formatter, "{id}"),
            Self::Job { sandbox, job } => write!(formatter, "{sandbox}:{job}"),
        }
    }
}

impl From<RunId> for RunOrJob {
    fn from(id: RunId) -> Self {
        Self::Run(id)
    }
}

super::text_value!(RunOrJob, "RunOrJob", "Run id, or SANDBOX:JOB.");
