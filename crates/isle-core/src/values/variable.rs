//! Names of environment variables.

use std::fmt;
use std::str::FromStr;

use crate::error::{Code, Error, Result};

const LONGEST_NAME: usize = 128;

/// The name of an environment variable, valid in every shell.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct VariableName(String);

impl VariableName {
    /// As text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for VariableName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl FromStr for VariableName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let letter = |c: char| c.is_ascii_alphabetic() || c == '_';
        let good = text.len() <= LONGEST_NAME
            && text.starts_with(letter)
            && text.chars().all(|c| letter(c) || c.is_ascii_digit());
        if !good {
            return Err(Error::new(Code::InvalidName, format!("{text:?} is not the name of a variable"))
                .next(format!(
                    "use letters, digits and `_`, not a digit first, at most {LONGEST_NAME}, such as API_URL"
                )));
        }
        if steers_loader(text) {
            return Err(Error::new(
                Code::InvalidArgument,
                format!("{text} controls the dynamic loader of every program and cannot be set from outside"),
            )
            .next("set it inside the command, such as `env LD_LIBRARY_PATH=… program`"));
        }
        Ok(Self(text.to_owned()))
    }
}

/// Variables that control the dynamic loader, or what the C library loads: set from outside they would affect every
/// program, including the agent.
#[must_use]
pub fn steers_loader(name: &str) -> bool {
    name.starts_with("LD_") || name.starts_with("DYLD_") || ["GLIBC_TUNABLES", "GCONV_PATH"].contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_a_shell_takes_and_never_the_loaders() {
        for name in ["A", "_x", "API_URL", "a1", &"A".repeat(LONGEST_NAME)] {
            assert_eq!(name.parse::<VariableName>().unwrap().as_str(), name);
        }
        for name in ["", "1A", "A-B", "A=B", "A B", "Ä", "A\n", "A\0", &"A".repeat(LONGEST_NAME + 1)] {
            assert_eq!(name.parse::<VariableName>().unwrap_err().code, Code::InvalidName, "{name:?}");
        }
        for name in ["LD_PRELOAD", "LD_LIBRARY_PATH", "DYLD_INSERT_LIBRARIES", "GLIBC_TUNABLES", "GCONV_PATH"]
        {
            assert_eq!(name.parse::<VariableName>().unwrap_err().code, Code::InvalidArgument, "{name}");
        }
    }
}
