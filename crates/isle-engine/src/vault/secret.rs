//! A secret as a value: its name, its text, and how a call asks for it. The text never shows itself and
//! is wiped from memory when it is let go.

use std::fmt;
use std::str::FromStr;

use isle_egress::Pattern;
use serde::{Deserialize, Deserializer};
use zeroize::Zeroizing;

use crate::error::{Code, Error, Result};
use crate::values::reading::refuse;
use crate::values::text_value;
use crate::variables::VariableName;

/// Longest value: a private key with its chain fits, a file does not.
const LONGEST: usize = 64 * 1024;
const LONGEST_NAME: usize = 64;
/// Shorter values cannot be masked: they would be found in what has nothing to do with them.
pub(crate) const SHORTEST_EXPOSED: usize = 8;

/// The name of a secret: what every shell takes for the name of a variable.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct SecretName(String);

impl SecretName {
    pub(crate) fn as_str(&self) -> &str {
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
pub(crate) struct SecretText(Zeroizing<String>);

impl SecretText {
    pub(crate) fn new(text: Zeroizing<String>) -> Result<Self> {
        if text.is_empty() {
            return Err(Error::new(Code::InvalidArgument, "the value is empty")
                .next("give the value on standard input, or remove the secret"));
        }
        if text.len() > LONGEST {
            return Err(Error::new(
                Code::TooLarge,
                format!("the value has {} bytes, more than {LONGEST}", text.len()),
            )
            .next("a secret is a password, a token or a key; keep files in the workspace"));
        }
        if text.contains('\0') {
            return Err(Error::new(Code::InvalidArgument, "the value contains NUL")
                .next("no variable and no header can hold it; encode it, as with base64"));
        }
        Ok(Self(text))
    }

    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }

    /// What whoever sets it should know: a short one is part of too much to be masked.
    pub(crate) fn advice(&self) -> Option<String> {
        (self.0.len() < SHORTEST_EXPOSED).then(|| {
            format!(
                "the value is shorter than {SHORTEST_EXPOSED} bytes: it could not be masked, so it is never put into a sandbox; its placeholder can be used"
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

/// Where a secret may go, as it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SecretHost {
    pub(crate) text: String,
    pub(crate) pattern: Pattern,
}

impl FromStr for SecretHost {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let pattern = Pattern::parse(text).map_err(|error| {
            Error::new(Code::InvalidArgument, format!("{text:?} is no host: {error}"))
                .next("write a name such as api.example.com or *.example.com, without port and path")
        })?;
        Ok(Self { text: pattern.to_string(), pattern })
    }
}

/// How a secret is to be had: `NAME`, or `NAME=VARIABLE` for another variable than its own name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wish {
    pub(crate) secret: SecretName,
    pub(crate) variable: VariableName,
}

impl FromStr for Wish {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (name, variable) = text.split_once('=').unwrap_or((text, text));
        let secret: SecretName = name.parse()?;
        Ok(Self { secret, variable: variable.parse()? })
    }
}

/// Secrets a call asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Wishes {
    /// The sandbox sees placeholders; the gate swaps them.
    pub(crate) substituted: Vec<Wish>,
    /// The sandbox sees the values themselves.
    pub(crate) exposed: Vec<Wish>,
}

impl Wishes {
    /// Reads them as they are written.
    pub(crate) fn parse<T: AsRef<str>>(substituted: &[T], exposed: &[T]) -> Result<Self> {
        let read =
            |texts: &[T]| texts.iter().map(|text| text.as_ref().parse()).collect::<Result<Vec<Wish>>>();
        let wishes = Self { substituted: read(substituted)?, exposed: read(exposed)? };
        let mut variables: Vec<&str> = wishes.all().map(|(wish, _)| wish.variable.as_str()).collect();
        variables.sort_unstable();
        if let Some(twice) = variables.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(Error::new(
                Code::InvalidArgument,
                format!("the variable {} is asked for twice", twice[0]),
            )
            .next("write NAME=VARIABLE to choose another variable for one of them"));
        }
        Ok(wishes)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.substituted.is_empty() && self.exposed.is_empty()
    }

    /// All of them, and whether the value itself is asked for.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&Wish, bool)> {
        let substituted = self.substituted.iter().map(|wish| (wish, false));
        substituted.chain(self.exposed.iter().map(|wish| (wish, true)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wish_names_a_secret_and_perhaps_another_variable() {
        let wish: Wish = "GITHUB_TOKEN".parse().unwrap();
        assert_eq!((wish.secret.as_str(), wish.variable.as_str()), ("GITHUB_TOKEN", "GITHUB_TOKEN"));
        let wish: Wish = "GITHUB_TOKEN=GH".parse().unwrap();
        assert_eq!((wish.secret.as_str(), wish.variable.as_str()), ("GITHUB_TOKEN", "GH"));
        for wrong in ["", "=A", "A=", "A-B", "1A", "A=B=C", "LD_PRELOAD", "A=LD_PRELOAD", &"A".repeat(65)] {
            assert!(wrong.parse::<Wish>().is_err(), "{wrong}");
        }
        assert!(Wishes::parse(&["A", "B=A"], &[]).is_err());
        assert!(Wishes::parse(&["A"], &["B=A"]).is_err());
        assert_eq!(Wishes::parse(&["A"], &["B"]).unwrap().all().count(), 2);
    }

    #[test]
    fn a_value_never_shows_itself() {
        let text = SecretText::new(Zeroizing::new("hunter2".into())).unwrap();
        assert_eq!(format!("{text:?}"), "[secret]");
        for wrong in [String::new(), "a\0b".into(), "x".repeat(LONGEST + 1)] {
            let error = SecretText::new(Zeroizing::new(wrong.clone())).unwrap_err();
            assert!(wrong.is_empty() || !error.message.contains(&wrong));
        }
    }

    #[test]
    fn hosts_are_names_without_port_and_path() {
        for (text, shown) in [("API.example.com.", "api.example.com"), ("*.Example.com", "*.example.com")] {
            assert_eq!(text.parse::<SecretHost>().unwrap().text, shown);
        }
        for wrong in ["", "*", "*.com", "a b", "https://example.com", "example.com:443", "a*.example.com"] {
            assert!(wrong.parse::<SecretHost>().is_err(), "{wrong}");
        }
    }
}
