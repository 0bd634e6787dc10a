//! Where a secret may be sent, and where in a request it may be placed. Both are authenticated with its value, as one
//! text: a list of hosts when the placements are the default ones, otherwise an object with both.

use isle_egress::{Pattern, PlacementError, Placements};
use serde::{Deserialize, Serialize};

use isle_core::{Code, Error, Result};

/// Hosts and placements of a secret.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scope {
    /// Hosts it may be sent to, as patterns.
    pub hosts: Vec<String>,
    /// Where in a request it may be placed.
    pub places: Placements,
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Stored {
    Hosts(Vec<String>),
    Both { hosts: Vec<String>, places: Vec<String> },
}

impl Scope {
    /// Reads the stored text of a secret. An unreadable one allows no host.
    #[must_use]
    pub fn read(secret: &str, stored: &str) -> Self {
        match serde_json::from_str(stored) {
            Ok(Stored::Hosts(hosts)) => Self { hosts, places: Placements::default() },
            Ok(Stored::Both { hosts, places }) => match Placements::parse(&places) {
                Ok(places) => Self { hosts, places },
                Err(error) => {
                    tracing::error!(secret, %error, "the placements of a secret cannot be read");
                    Self::default()
                }
            },
            Err(_) => Self::default(),
        }
    }

    /// The text that is stored.
    pub fn stored(&self) -> Result<String> {
        let hosts = self.hosts.clone();
        let stored = if self.places == Placements::default() {
            Stored::Hosts(hosts)
        } else {
            Stored::Both { hosts, places: self.places.texts() }
        };
        serde_json::to_string(&stored).map_err(Error::internal)
    }

    /// The hosts, parsed.
    #[must_use]
    pub fn patterns(&self) -> Vec<Pattern> {
        self.hosts.iter().filter_map(|host| Pattern::parse(host).ok()).collect()
    }
}

/// Parses placements.
pub fn parse_places(texts: &[String]) -> Result<Placements> {
    if texts.is_empty() {
        return Err(Error::new(
            Code::InvalidArgument,
            "`places` is empty, so the secret could never be sent",
        )
        .next("omit `places`, or use `default`"));
    }
    Placements::parse(texts).map_err(|error| {
        let next = match error {
            PlacementError::Unknown(_) => {
                "use default, authorization, api-key, basic-user, header:NAME, query:NAME or method:NAME"
            }
            PlacementError::Header(_) => "name the header that the service reads the secret from",
            PlacementError::Method(_) => "use another method; no secret is sent with this one",
            PlacementError::TooMany => "name fewer",
        };
        Error::new(Code::InvalidArgument, error.to_string()).next(next)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(stored: &str) -> Scope {
        Scope::read("KEY", stored)
    }

    #[test]
    fn a_secret_without_placements_has_the_default_ones_and_is_stored_as_before() {
        let scope = read(r#"["api.test"]"#);
        assert_eq!((scope.hosts.len(), &scope.places), (1, &Placements::default()));
        assert_eq!(scope.stored().unwrap(), r#"["api.test"]"#);
        let wider = Scope { places: Placements::parse(&["query:key"]).unwrap(), ..scope };
        assert_eq!(read(&wider.stored().unwrap()), wider);
        for broken in ["", "{}", r#"{"hosts":["a.test"],"places":["anywhere"]}"#] {
            assert!(read(broken).hosts.is_empty(), "{broken}");
        }
    }
}
