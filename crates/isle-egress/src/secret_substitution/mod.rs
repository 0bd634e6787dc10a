//! Substitution of secrets. A sandbox has only the placeholder of a secret; in requests to the secret's hosts
//! the gate replaces it by the value, where the secret may be placed. A placeholder anywhere else in the head
//! of such a request denies the request. Bodies are not changed, and neither are requests to other hosts.

mod basic_auth;
mod checks;
pub(crate) mod placement;
mod substitute;

pub use substitute::substitute;

use std::fmt;
use std::sync::Arc;

use zeroize::Zeroizing;

use crate::masking::secret_finder::SecretFinder;
use crate::policy::grant::Pattern;
use crate::policy::host::{Host, Target};
use crate::secret_substitution::basic_auth::basic_in_text;
use crate::secret_substitution::placement::{Placement, Placements};

/// A secret and its placeholder.
#[derive(Clone)]
pub struct SecretSubstitution {
    /// What the sandbox has instead of the value.
    pub placeholder: String,
    /// The value.
    pub value: Zeroizing<String>,
    /// The hosts it may be sent to.
    pub hosts: Vec<Pattern>,
    /// Where in a request it may be placed.
    pub places: Placements,
}

impl SecretSubstitution {
    /// Whether it may be sent to a host.
    #[must_use]
    pub fn is_for(&self, host: &Host) -> bool {
        self.hosts.iter().any(|pattern| pattern.covers(host))
    }
}

impl fmt::Debug for SecretSubstitution {
    /// Without the value.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("SecretSubstitution")
            .field("placeholder", &self.placeholder)
            .field("hosts", &self.hosts)
            .finish_non_exhaustive()
    }
}

/// A placeholder in a request to a host that does not get the secret; it was sent unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StrayPlaceholder {
    /// The placeholder.
    pub placeholder: String,
    /// The target of the request, as `host:port`.
    pub target: String,
    /// Whether the host is one of the secret's, but the connection was not encrypted.
    pub unencrypted: bool,
}

/// How the responses of a host are masked.
#[derive(Debug, Clone)]
pub enum ResponseMasking {
    /// Not masked: no secret of the sandbox is sent there.
    NotNeeded,
    /// These values are masked.
    Mask(Arc<SecretFinder>),
    /// Not masked: the value of the secret is too short to search for.
    TooShort,
    /// A secret is sent there, but its value is not available now, so nothing can be masked.
    Locked,
}

/// The use of a value in a request.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SecretUse {
    /// Its placeholder.
    pub placeholder: String,
    /// Where it was placed.
    pub place: Placement,
}

/// A value that a server returned and that was masked.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Reflection {
    /// The name of the secret.
    pub secret: String,
    /// The server, as `host:port`.
    pub target: String,
    /// Where it was.
    pub part: ReflectedIn,
}

/// A part of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReflectedIn {
    /// The status line, a header or a trailer.
    Header,
    /// The body.
    Body,
    /// A WebSocket message.
    Message,
}

impl ReflectedIn {
    /// The stable name in results.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Header => "header",
            Self::Body => "body",
            Self::Message => "websocket",
        }
    }
}

/// The secrets of one sandbox. They are queried for every request, so that a change or a removal applies at
/// once.
pub trait SecretSource: Send + Sync + fmt::Debug {
    /// The current secrets.
    fn current(&self) -> Arc<[SecretSubstitution]>;

    /// How the responses of a host are masked. They are for every host to which a secret of the sandbox is or
    /// was sent, whether or not the request has one: servers store what they receive.
    fn masking(&self, host: &Host) -> ResponseMasking;

    /// Whether there is a host whose responses are masked.
    fn masks_any(&self) -> bool;

    /// A placeholder was sent to a host that does not get the secret.
    fn placeholder_strayed(&self, stray: &StrayPlaceholder);

    /// A value was used in a request to a target.
    fn secret_used(&self, used: &SecretUse, target: &Target);

    /// A server returned a value.
    fn secret_reflected(&self, reflection: &Reflection);
}

/// The result of the substitution in a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Substituted {
    /// Placeholders that were replaced.
    pub used: Vec<SecretUse>,
    /// Placeholders that were not replaced, because the host is not one of their secret's.
    pub strayed: Vec<String>,
}

/// Why a request cannot be sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SubstitutionError {
    /// The value is not valid in a header.
    #[error("the secret of {0} has characters that are not allowed in a header")]
    Unfit(String),
    /// The URI is not valid with the value.
    #[error("with its secrets substituted, the request has no valid URI")]
    Target,
    /// The placeholder is where its secret may not be placed.
    #[error("{placeholder} is in {place}, where its secret may not be placed")]
    Misplaced {
        /// Which one.
        placeholder: String,
        /// Where.
        place: String,
        /// The placement that would allow it, if any.
        remedy: Option<Placement>,
        /// Where it may be placed.
        allowed: Placements,
    },
    /// No secret is sent with this method.
    #[error("no secret is sent with the method {method}")]
    Method {
        /// Which one.
        placeholder: String,
        /// Of the request, or of the header that overrides it.
        method: String,
        /// Where it may be placed.
        allowed: Placements,
    },
}

/// The placeholders that occur in bytes.
#[must_use]
pub fn placeholders_in<'s>(bytes: &[u8], secrets: &'s [SecretSubstitution]) -> Vec<&'s SecretSubstitution> {
    let decoded = basic_in_text(bytes);
    let occurs = |needle: &str| {
        memchr::memmem::find(bytes, needle.as_bytes()).is_some()
            || decoded.iter().any(|text| memchr::memmem::find(text, needle.as_bytes()).is_some())
    };
    secrets.iter().filter(|swap| occurs(&swap.placeholder)).collect()
}

/// Reports every placeholder that was not replaced.
pub(crate) fn report_stray_placeholders(
    secrets: &dyn SecretSource,
    strayed: impl IntoIterator<Item = String>,
    target: &Target,
    unencrypted: bool,
) {
    for placeholder in strayed {
        secrets.placeholder_strayed(&StrayPlaceholder {
            placeholder,
            target: target.to_string(),
            unencrypted,
        });
    }
}

#[cfg(test)]
mod tests;
