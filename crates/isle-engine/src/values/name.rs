//! Names of sandboxes and of contexts in them.

use std::fmt;
use std::str::FromStr;

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
