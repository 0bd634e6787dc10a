//! Names of sandboxes, and of contexts and jobs in them. A sandbox that another one spawned has the name of
//! its parent in its own, `work/prod`, so that a bare name is never that of a child.

use std::fmt;
use std::str::FromStr;

use super::RunId;
use crate::error::{Code, Error};

/// Between the name of a child and that of its parent.
const BELOW: char = '/';
/// Parts a name can have: a sandbox, its child, and its child's child.
const MOST_PARTS: usize = 3;

/// 1 to 63 letters, digits, `.`, `_` or `-`, starting with a letter or digit.
fn is_part(text: &str) -> bool {
    let mut characters = text.chars();
    let starts_well = characters.next().is_some_and(|first| first.is_ascii_alphanumeric());
    let continues_well = characters.all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'));
    starts_well && continues_well && text.len() <= 63
}

const PART_RULE: &str = "use 1 to 63 letters, digits, '.', '_' or '-', starting with a letter or digit";

/// The name of a sandbox, each part 1 to 63 letters, digits, `.`, `_` or `-`, starting with a letter or digit.
/// One part unless it was spawned; children have the name of their parent, a slash and their own.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SandboxName(String);

/// What a child is called by its parent: the last part of its name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChildName(String);

impl ChildName {
    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ChildName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        if is_part(text) {
            return Ok(Self(text.to_owned()));
        }
        Err(Error::new(Code::InvalidName, format!("{text:?} is not the name of a child")).next(PART_RULE))
    }
}

impl fmt::Display for ChildName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

super::text_value!(ChildName, "ChildName", "Name of a child below its parent.");

impl SandboxName {
    /// The name of a child of this sandbox.
    pub fn child(&self, name: &ChildName) -> Result<Self, Error> {
        format!("{self}{BELOW}{name}").parse()
    }

    /// Whether it is the name of a child: only a spawn makes such a sandbox.
    #[must_use]
    pub fn is_child(&self) -> bool {
        self.0.contains(BELOW)
    }

    /// The name of the parent, if it is that of a child.
    #[must_use]
    pub fn parent(&self) -> Option<Self> {
        self.0.rsplit_once(BELOW).map(|(parent, _)| Self(parent.to_owned()))
    }

    /// The part that its parent knows it by; the whole name of a sandbox that was not spawned.
    #[must_use]
    pub fn last_part(&self) -> &str {
        self.0.rsplit_once(BELOW).map_or(&self.0, |(_, last)| last)
    }

    /// Its parts, the root of the tree first.
    pub fn parts(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.0.split(BELOW)
    }

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
        if text.split(BELOW).all(is_part) && text.split(BELOW).count() <= MOST_PARTS {
            return Ok(Self(text.to_owned()));
        }
        let error = Error::new(Code::InvalidName, format!("{text:?} is not a sandbox name")).next(PART_RULE);
        Err(if text.contains(BELOW) {
            error.next("a child is PARENT/NAME, and a grandchild PARENT/CHILD/NAME")
        } else {
            error
        })
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
        if is_part(text) {
            return Ok(Self(text.to_owned()));
        }
        Err(Error::new(Code::InvalidName, format!("{text:?} is not a context name")).next(PART_RULE))
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
        if is_part(text) { Ok(Self(text.to_owned())) } else { refuse(PART_RULE) }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_child_has_its_parent_in_it() {
        let name = |text: &str| text.parse::<SandboxName>().unwrap();
        let grandchild = name("work").child(&"prod".parse().unwrap()).unwrap();
        let grandchild = grandchild.child(&"x".parse().unwrap()).unwrap();
        assert_eq!(grandchild.as_str(), "work/prod/x");
        assert_eq!((grandchild.last_part(), grandchild.parent()), ("x", Some(name("work/prod"))));
        assert_eq!(grandchild.parts().rev().collect::<Vec<_>>(), ["x", "prod", "work"]);
        assert!(grandchild.child(&"y".parse().unwrap()).is_err(), "no deeper");
        assert!(!name("work").is_child() && name("work").parent().is_none());
        assert_eq!(name("work").last_part(), "work");
        for wrong in [
            "/",
            "a/",
            "/a",
            "a//b",
            "a/b/c/d",
            "a/.",
            "a/..",
            "../a",
            "a/-b",
            "a/b c",
            "a/\u{43e}",
            "a/b\n",
            "a\\b",
            "a%2Fb",
            "a@b",
            "a:b",
            "",
        ] {
            assert_eq!(wrong.parse::<SandboxName>().unwrap_err().code, Code::InvalidName, "{wrong:?}");
        }
        assert!(format!("a/{}", "b".repeat(63)).parse::<SandboxName>().is_ok());
        assert!(format!("a/{}", "b".repeat(64)).parse::<SandboxName>().is_err());
        for other in ["a/b", "/", ""] {
            assert!(other.parse::<ChildName>().is_err() && other.parse::<ContextName>().is_err());
            assert!(other.parse::<JobName>().is_err());
        }
        let job: RunOrJob = "work/prod:build".parse().unwrap();
        assert_eq!(job, RunOrJob::Job { sandbox: name("work/prod"), job: "build".parse().unwrap() });
    }
}
