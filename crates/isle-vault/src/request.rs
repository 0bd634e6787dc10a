//! Secrets as callers request them: `NAME`, or `NAME=VARIABLE`, as a placeholder or as the value; and the hosts a secret
//! may be sent to.

use std::str::FromStr;

use isle_core::values::{SecretName, VariableName};
use isle_core::{Code, Error, Result};
use isle_egress::Pattern;

/// A host that a secret may be sent to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretHost {
    /// In canonical form.
    pub text: String,
    /// Parsed.
    pub pattern: Pattern,
}

impl FromStr for SecretHost {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let pattern = Pattern::parse(text).map_err(|error| {
            Error::new(Code::InvalidArgument, format!("invalid host {text:?}: {error}"))
                .next("use a name such as api.example.com or *.example.com, without port and path")
        })?;
        Ok(Self { text: pattern.to_string(), pattern })
    }
}

/// One requested secret: `NAME`, or `NAME=VARIABLE` to set another variable than its own name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretRequest {
    /// The secret.
    pub secret: SecretName,
    /// The variable that a command gets it in.
    pub variable: VariableName,
}

impl FromStr for SecretRequest {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (name, variable) = text.split_once('=').unwrap_or((text, text));
        let secret: SecretName = name.parse()?;
        Ok(Self { secret, variable: variable.parse()? })
    }
}

/// The secrets that a call requests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestedSecrets {
    /// As placeholders, which the gate replaces with the values.
    pub substituted: Vec<SecretRequest>,
    /// As values.
    pub exposed: Vec<SecretRequest>,
}

impl RequestedSecrets {
    /// Parses both lists.
    pub fn parse<T: AsRef<str>>(substituted: &[T], exposed: &[T]) -> Result<Self> {
        let read = |texts: &[T]| {
            texts.iter().map(|text| text.as_ref().parse()).collect::<Result<Vec<SecretRequest>>>()
        };
        let requested = Self { substituted: read(substituted)?, exposed: read(exposed)? };
        let mut variables: Vec<&str> =
            requested.all().map(|(request, _)| request.variable.as_str()).collect();
        variables.sort_unstable();
        if let Some(twice) = variables.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(Error::new(
                Code::InvalidArgument,
                format!("the variable {} is requested twice", twice[0]),
            )
            .next("use NAME=VARIABLE to choose another variable for one of them"));
        }
        Ok(requested)
    }

    /// Whether no secret is requested.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.substituted.is_empty() && self.exposed.is_empty()
    }

    /// All of them, and whether the value is requested.
    pub fn all(&self) -> impl Iterator<Item = (&SecretRequest, bool)> {
        let substituted = self.substituted.iter().map(|request| (request, false));
        substituted.chain(self.exposed.iter().map(|request| (request, true)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_names_a_secret_and_perhaps_another_variable() {
        let request: SecretRequest = "GITHUB_TOKEN".parse().unwrap();
        assert_eq!((request.secret.as_str(), request.variable.as_str()), ("GITHUB_TOKEN", "GITHUB_TOKEN"));
        let request: SecretRequest = "GITHUB_TOKEN=GH".parse().unwrap();
        assert_eq!((request.secret.as_str(), request.variable.as_str()), ("GITHUB_TOKEN", "GH"));
        for wrong in ["", "=A", "A=", "A-B", "1A", "A=B=C", "LD_PRELOAD", "A=LD_PRELOAD", &"A".repeat(65)] {
            assert!(wrong.parse::<SecretRequest>().is_err(), "{wrong}");
        }
        assert!(RequestedSecrets::parse(&["A", "B=A"], &[]).is_err());
        assert!(RequestedSecrets::parse(&["A"], &["B=A"]).is_err());
        assert_eq!(RequestedSecrets::parse(&["A"], &["B"]).unwrap().all().count(), 2);
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
