//! A secret: its name and its value. `Debug` does not print the value, and it is wiped from memory when dropped.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer};
use zeroize::Zeroizing;

use super::VariableName;
use super::reading::refuse;
use super::text_value;
use crate::error::{Code, Error, Result};

/// Longest value: a private key with its chain fits, a file does not.
const LONGEST: usize = 64 * 1024;
const LONGEST_NAME: usize = 64;
/// Shorter values cannot be masked: they would match unrelated output.
pub const SHORTEST_EXPOSED: usize = 8;

/// Shorter values are not masked in responses either, where they would match almost everything.
pub const SHORTEST_REFLECTED: usize = 4;

/// The name of a secret: a valid name of a shell variable.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SecretName(String);

impl SecretName {
    /// As text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SecretName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl FromStr for SecretName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let name: Result<VariableName> = text.parse();
        match name {
            Ok(_) if text.len() <= LONGEST_NAME => Ok(Self(text.to_owned())),
            _ => Err(Error::new(Code::InvalidName, format!("{text:?} is not the name of a secret")).next(
                format!(
                    "use letters, digits and `_`, not a digit first, at most {LONGEST_NAME}, such as GITHUB_TOKEN"
                ),
            )),
        }
    }
}

text_value!(SecretName, "SecretName", "Name of a secret.");

/// The value of a secret.
#[derive(Clone)]
pub struct SecretText(Zeroizing<String>);

impl SecretText {
    /// Checks a value: not empty, not too long, without NUL.
    pub fn new(text: Zeroizing<String>) -> Result<Self> {
        if text.is_empty() {
            return Err(Error::new(Code::InvalidArgument, "the value is empty")
                .next("pass the value on standard input, or remove the secret"));
        }
        if text.len() > LONGEST {
            return Err(Error::new(
                Code::TooLarge,
                format!("the value has {} bytes; the limit is {LONGEST}", text.len()),
            )
            .next("a secret is a password, a token or a key; keep files in the workspace"));
        }
        if text.contains('\0') {
            return Err(Error::new(Code::InvalidArgument, "the value contains NUL")
                .next("variables and headers cannot contain NUL; encode the value, for example in base64"));
        }
        Ok(Self(text))
    }

    /// The value itself.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// A warning for short values, which cannot be masked.
    #[must_use]
    pub fn advice(&self) -> Option<String> {
        if self.0.len() < SHORTEST_REFLECTED {
            return Some(format!(
                "the value is shorter than {SHORTEST_REFLECTED} bytes and cannot be masked: it is never exposed in a sandbox, and a server that sends it back reveals it"
            ));
        }
        (self.0.len() < SHORTEST_EXPOSED).then(|| {
            format!(
                "the value is shorter than {SHORTEST_EXPOSED} bytes and cannot be masked: it is never exposed in a sandbox; use its placeholder"
            )
        })
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("[secret]")
    }
}

impl<'de> Deserialize<'de> for SecretText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        // Moved out of the arguments, not copied.
        let text = Zeroizing::new(String::deserialize(deserializer)?);
        Self::new(text).map_err(refuse)
    }
}

impl schemars::JsonSchema for SecretText {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "SecretText".into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "writeOnly": true })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_never_shows_itself() {
        let text = SecretText::new(Zeroizing::new("hunter2".into())).unwrap();
        assert_eq!(format!("{text:?}"), "[secret]");
        for wrong in [String::new(), "a\0b".into(), "x".repeat(LONGEST + 1)] {
            let error = SecretText::new(Zeroizing::new(wrong.clone())).unwrap_err();
            assert!(wrong.is_empty() || !error.message.contains(&wrong));
        }
    }
}
