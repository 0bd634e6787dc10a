//! Whose something is. A namespace is what one tenant sees; everything in it is found by a name that
//! may exist in others as well, so an address has both.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::{ChildName, SandboxName};
use crate::error::{Code, Error};

/// The namespace of calls that name none.
const DEFAULT: &str = "default";

/// What one tenant sees. The same rules as for names of sandboxes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Namespace(Arc<str>);

impl Namespace {
    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is the one of calls that name none.
    #[must_use]
    pub fn is_default(&self) -> bool {
        &*self.0 == DEFAULT
    }
}

impl Default for Namespace {
    fn default() -> Self {
        Self(DEFAULT.into())
    }
}

impl FromStr for Namespace {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        // The rules of what a child is called: one part.
        let name: Result<ChildName, Error> = text.parse();
        name.map(|name| Self(name.as_str().into())).map_err(|_| {
            Error::new(Code::InvalidName, format!("{text:?} is not the name of a namespace"))
                .next("use 1 to 63 letters, digits, '.', '_' or '-', starting with a letter or digit")
        })
    }
}

impl fmt::Display for Namespace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

super::text_value!(Namespace, "Namespace", "Name of a namespace.");

/// A sandbox among those of all tenants: `NAME` in the namespace `default`, `NAMESPACE@NAME` in others.
/// Names have no `@`, so no two addresses are the same text. Workspaces on disk are called so, except those
/// of children, which are called by id.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address {
    /// Whose.
    pub namespace: Namespace,
    /// Which.
    pub name: SandboxName,
}

impl Address {
    /// A sandbox of a namespace.
    #[must_use]
    pub fn new(namespace: Namespace, name: SandboxName) -> Self {
        Self { namespace, name }
    }

    /// As the name of one file: without a slash, whatever it is the address of.
    #[must_use]
    pub fn file_name(&self) -> String {
        self.to_string().replace('/', "%2F")
    }
}

impl FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text.split_once('@') {
            None => Ok(Self::new(Namespace::default(), text.parse()?)),
            // What has a shorter form has only that.
            Some((DEFAULT, _)) => {
                Err(Error::new(Code::InvalidName, format!("{text:?} is not the address of a sandbox"))
                    .next("leave `default@` out"))
            }
            Some((namespace, name)) => Ok(Self::new(namespace.parse()?, name.parse()?)),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace.is_default() {
            true => write!(formatter, "{}", self.name),
            false => write!(formatter, "{}@{}", self.namespace, self.name),
        }
    }
}

super::text_value!(Address, "Address", "Sandbox of a namespace: NAME, or NAMESPACE@NAME.");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_as_it_is_written_and_no_two_are_alike() {
        for text in ["web", "acme@web", "acme@default", "a@a", "web/kid", "acme@web/kid/x"] {
            let address: Address = text.parse().unwrap();
            assert_eq!(address.to_string(), text);
            assert!(!address.file_name().contains('/'), "{text}");
        }
        for text in ["", "@web", "acme@", "default@web", "a@b@c", "../x", "a/b@c", "a@../b"] {
            assert!(text.parse::<Address>().is_err(), "{text:?}");
        }
        assert!("default".parse::<Namespace>().unwrap().is_default());
        assert_eq!("a b".parse::<Namespace>().unwrap_err().code, Code::InvalidName);
    }
}
