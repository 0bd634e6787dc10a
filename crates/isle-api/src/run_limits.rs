//! Limits of one run, inside those of its sandbox. The kernel keeps each of them for every process of
//! the run by itself, so they tell one command from its neighbours; what a sandbox may use as a whole
//! is `Limits` of the backend.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use isle_core::values::{ByteSize, Span};
use isle_core::{Code, Error, Result};

// No doc comments on the fields: they would be repeated in every tool. The page `docs/use/cli.md` has them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
#[expect(missing_docs, reason = "a doc comment is a description in the schema of every tool")]
pub struct RunLimits {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Span>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<ByteSize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_size: Option<ByteSize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_files: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<u32>,
}

/// Less would not even start a program.
const LEAST_MEMORY: ByteSize = ByteSize::mib(4);
const LEAST_OPEN_FILES: u32 = 8;

impl RunLimits {
    /// Reads one from `NAME=VALUE`, as the command line has them.
    pub fn set(&mut self, text: &str) -> Result<()> {
        let wrong = |what: String| {
            Error::new(Code::InvalidArgument, what).next(
                "write NAME=VALUE with cpu, memory, file_size, open_files or processes, such as cpu=10s",
            )
        };
        let (name, value) =
            text.split_once('=').ok_or_else(|| wrong(format!("{text:?} is not NAME=VALUE")))?;
        let count = || value.parse::<u32>().map_err(|_| wrong(format!("{name}: {value:?} is not a number")));
        match name {
            "cpu" => self.cpu = Some(value.parse()?),
            "memory" => self.memory = Some(value.parse()?),
            "file_size" => self.file_size = Some(value.parse()?),
            "open_files" => self.open_files = Some(count()?),
            "processes" => self.processes = Some(count()?),
            _ => return Err(wrong(format!("there is no limit {name:?}"))),
        }
        self.check()
    }

    /// Refuses values nothing could run under.
    pub fn check(&self) -> Result<()> {
        let refuse = |what: &str, next: String| Err(Error::new(Code::InvalidArgument, what).next(next));
        if self.cpu.is_some_and(|cpu| cpu.0.is_zero() || cpu.0.subsec_nanos() != 0) {
            return refuse("limits.cpu is counted in whole seconds", "give at least 1s, such as 10s".into());
        }
        if self.memory.is_some_and(|memory| memory < LEAST_MEMORY) {
            return refuse(
                "limits.memory is too small for any program",
                format!("give at least {LEAST_MEMORY}"),
            );
        }
        if self.file_size.is_some_and(|size| size.0 == 0) {
            return refuse(
                "limits.file_size leaves no room for a byte",
                "give at least 1, such as 10M".into(),
            );
        }
        if self.open_files.is_some_and(|count| count < LEAST_OPEN_FILES) {
            return refuse(
                "limits.open_files is too small for any program",
                format!("give at least {LEAST_OPEN_FILES}"),
            );
        }
        if self.processes == Some(0) {
            return refuse("limits.processes leaves none for the command itself", "give at least 1".into());
        }
        Ok(())
    }

    /// For the agent.
    #[must_use]
    pub fn to_wire(self) -> isle_wire::RunLimits {
        isle_wire::RunLimits {
            cpu_seconds: self.cpu.map(|cpu| cpu.0.as_secs()),
            file_size: self.file_size.map(|size| size.0),
            open_files: self.open_files.map(u64::from),
            processes: self.processes.map(u64::from),
            address_space: None,
            memory: self.memory.map(|memory| memory.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_nothing_could_run_under_are_refused_with_a_next_step() {
        for (text, code) in [
            ("cpu=0s", Code::InvalidArgument),
            ("cpu=1500ms", Code::InvalidArgument),
            ("cpu=fast", Code::InvalidDuration),
            ("memory=1M", Code::InvalidArgument),
            ("memory=12X", Code::InvalidSize),
            ("file_size=0", Code::InvalidArgument),
            ("open_files=3", Code::InvalidArgument),
            ("open_files=many", Code::InvalidArgument),
            ("processes=0", Code::InvalidArgument),
            ("processes=-1", Code::InvalidArgument),
            ("threads=4", Code::InvalidArgument),
            ("cpu", Code::InvalidArgument),
        ] {
            let error = RunLimits::default().set(text).unwrap_err();
            assert_eq!(error.code, code, "{text}");
            assert!(!error.next_steps.is_empty(), "{text}");
        }
        let mut limits = RunLimits::default();
        for text in ["cpu=10s", "memory=64M", "file_size=1", "open_files=8", "processes=1"] {
            limits.set(text).unwrap();
        }
        assert_eq!(limits.to_wire().cpu_seconds, Some(10));
    }
}
