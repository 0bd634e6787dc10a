//! Where a daemon listens.

use std::fmt;
use std::path::{Path, PathBuf};

use isle_core::values::Namespace;
use isle_core::{Code, Error};

use crate::error::Result;

/// Where a daemon listens, and in which namespace one works there.
#[derive(Clone, PartialEq, Eq)]
pub struct Endpoint {
    place: Place,
    namespace: Option<Namespace>,
    /// The identity of the state directory whose daemon it must be.
    instance: Option<String>,
}

/// Where a daemon listens.
#[derive(Clone, PartialEq, Eq)]
enum Place {
    /// A Unix socket; the kernel says who we are.
    Unix(PathBuf),
    /// TCP with a bearer token.
    Tcp {
        /// `host:port`.
        address: String,
        /// Bearer token.
        token: String,
    },
}

impl Endpoint {
    /// A Unix socket.
    #[must_use]
    pub fn unix(socket: impl Into<PathBuf>) -> Self {
        Self { place: Place::Unix(socket.into()), namespace: None, instance: None }
    }

    /// The same, working in that namespace; `None` leaves it to the daemon. Only the operator may choose.
    #[must_use]
    pub fn within(self, namespace: Option<Namespace>) -> Self {
        Self { namespace, ..self }
    }

    /// The same, where the daemon must serve the state directory with this identity. A daemon that serves
    /// another one does nothing.
    #[must_use]
    pub fn serving(self, instance: impl Into<String>) -> Self {
        Self { instance: Some(instance.into()), ..self }
    }

    /// The same at another socket, with another identity; a TCP address stays as it is.
    #[must_use]
    pub fn moved(&self, socket: impl Into<PathBuf>, instance: impl Into<String>) -> Self {
        match &self.place {
            Place::Unix(_) => {
                Self { namespace: self.namespace.clone(), ..Self::unix(socket).serving(instance) }
            }
            Place::Tcp { .. } => self.clone(),
        }
    }

    /// The value of the `Isle-Instance` header.
    pub(crate) fn instance(&self) -> Option<&str> {
        self.instance.as_deref()
    }

    /// The socket, when it is one.
    #[must_use]
    pub fn socket(&self) -> Option<&Path> {
        match &self.place {
            Place::Unix(path) => Some(path),
            Place::Tcp { .. } => None,
        }
    }

    /// The value of the `Isle-Namespace` header.
    pub(crate) fn namespace(&self) -> Option<&str> {
        self.namespace.as_ref().map(Namespace::as_str)
    }

    /// Reads `http://host:port` and the token that goes with it.
    pub fn from_url(url: &str, token: &str) -> Result<Self> {
        let refuse = |why: &str, next: &str| {
            Err(Error::new(Code::InvalidArgument, format!("{url:?} is not the address of a daemon: {why}"))
                .next(next)
                .into())
        };
        let Some(rest) = url.strip_prefix("http://") else {
            return refuse("it does not start with http://", "write it as http://127.0.0.1:7777");
        };
        let address = rest.trim_end_matches('/');
        let port = address.rsplit_once(':').map(|(host, port)| (host.is_empty(), port.parse::<u16>()));
        if address.contains('/') || !matches!(port, Some((false, Ok(_)))) {
            return refuse("host and port are missing", "write it as http://127.0.0.1:7777");
        }
        if token.is_empty() {
            return refuse(
                "there is no token for it",
                "set ISLE_TOKEN to the content of the `token` file in the daemon's state directory",
            );
        }
        Ok(Self {
            place: Place::Tcp { address: address.to_owned(), token: token.to_owned() },
            namespace: None,
            instance: None,
        })
    }

    /// The value of the `Host` header.
    pub(crate) fn host(&self) -> &str {
        match &self.place {
            Place::Unix(_) => "localhost",
            Place::Tcp { address, .. } => address,
        }
    }

    /// The value of the `Authorization` header.
    pub(crate) fn authorization(&self) -> Option<String> {
        match &self.place {
            Place::Unix(_) => None,
            Place::Tcp { token, .. } => Some(format!("Bearer {token}")),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Unix(path) => write!(formatter, "unix:{}", path.display()),
            Place::Tcp { address, .. } => write!(formatter, "http://{address}"),
        }
    }
}

// By hand, so that a token never reaches a log.
impl fmt::Debug for Endpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Endpoint({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_needs_scheme_host_port_and_token() {
        assert!(Endpoint::from_url("http://127.0.0.1:7777/", "t").is_ok());
        for bad in ["127.0.0.1:7777", "http://127.0.0.1", "http://:7777", "http://h:99999", "http://h:1/x"] {
            assert!(Endpoint::from_url(bad, "t").is_err(), "{bad}");
        }
        assert!(Endpoint::from_url("http://127.0.0.1:7777", "").is_err());
    }

    #[test]
    fn a_token_is_never_shown() {
        let endpoint = Endpoint::from_url("http://127.0.0.1:7777", "geheim").unwrap();
        assert!(!format!("{endpoint:?} {endpoint}").contains("geheim"));
    }
}
