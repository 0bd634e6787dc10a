//! The name of a backend.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use crate::error::{Code, Error};

/// The name of a backend, such as `native`: 1 to 32 lower-case letters, digits or `-`, starting with a letter.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BackendName(Cow<'static, str>);

impl BackendName {
    /// The name of a backend of this program.
    ///
    /// # Panics
    /// When it is not a valid name; in a constant, that is an error of the compiler.
    #[must_use]
    pub const fn of(name: &'static str) -> Self {
        assert!(is_valid(name.as_bytes()), "not the name of a backend");
        Self(Cow::Borrowed(name))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

const fn is_valid(name: &[u8]) -> bool {
    if name.is_empty() || name.len() > 32 || !name[0].is_ascii_lowercase() {
        return false;
    }
    let mut index = 0;
    while index < name.len() {
        if !(name[index].is_ascii_lowercase() || name[index].is_ascii_digit() || name[index] == b'-') {
            return false;
        }
        index += 1;
    }
    true
}

impl FromStr for BackendName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        if is_valid(text.as_bytes()) {
            return Ok(Self(Cow::Owned(text.to_owned())));
        }
        Err(Error::new(Code::InvalidArgument, format!("invalid backend name {text:?}"))
            .next("`isle doctor` lists the backends"))
    }
}

impl fmt::Display for BackendName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

crate::values::text_value!(BackendName, "BackendName", "E.g. native.");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_and_lower_case() {
        for good in ["native", "vm", "docker-2"] {
            assert_eq!(good.parse::<BackendName>().unwrap().as_str(), good);
        }
        for bad in ["", "Native", "-x", "2x", "a b", "a/b", &"x".repeat(33)] {
            assert_eq!(bad.parse::<BackendName>().unwrap_err().code, Code::InvalidArgument, "{bad:?}");
        }
        assert_eq!(BackendName::of("native"), "native".parse().unwrap());
    }
}
