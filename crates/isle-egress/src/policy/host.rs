//! Hosts and ports, parsed once. The rest of the gate uses these types only, so that a name is never parsed
//! in two ways: most bypasses of such a gate exploit the difference between two parsers.

use crate::policy::grant::RunKey;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Maximum length of a name in its textual form.
const LONGEST_NAME: usize = 253;
/// Maximum length of a label.
const LONGEST_LABEL: usize = 63;

/// Why a text is not a valid host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// Empty.
    #[error("the host is empty")]
    Empty,
    /// Too long.
    #[error("the host name is too long")]
    TooLong,
    /// Contains a character that is not allowed: of userinfo, a path, NUL, white space, a percent sign.
    #[error("the host contains an invalid character")]
    Character,
    /// A label is empty or begins or ends with a hyphen.
    #[error("a label of the host is empty, or begins or ends with a hyphen")]
    Label,
    /// An international name that is not in its normalized form.
    #[error("the international name is not valid, or not normalized")]
    International,
    /// An IPv4 address in a form that programs interpret differently.
    #[error("the IPv4 address is not written as four decimal numbers")]
    Numeric,
    /// An IPv6 address that is not valid, or has a zone.
    #[error("the IPv6 address is not valid, or has a zone")]
    Six,
    /// Not a port from 1 to 65535.
    #[error("the port is not a number from 1 to 65535")]
    Port,
}

/// A domain name in its canonical form: ASCII, lower case, without a trailing dot.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(String);

/// Where a connection goes: a name or a literal address.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Host {
    /// A name.
    Name(Name),
    /// An address. An IPv4 address written as IPv6 is an IPv4 address.
    Address(IpAddr),
}

/// A host and a port.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Target {
    /// The host.
    pub host: Host,
    /// The port, never 0.
    pub port: u16,
    /// The run whose program connects, if known.
    pub by: Option<RunKey>,
}

impl Name {
    /// Parses a name. One trailing dot is dropped, case is ignored, international names become their ASCII
    /// form. A name that looks like a number is rejected, since other programs may read it as an address.
    pub fn parse(text: &str) -> Result<Self, HostError> {
        let text = text.strip_suffix('.').unwrap_or(text);
        if text.is_empty() {
            return Err(HostError::Empty);
        }
        if text.len() > 4 * LONGEST_NAME {
            return Err(HostError::TooLong);
        }
        let name = if text.is_ascii() { text.to_ascii_lowercase() } else { international(text)? };
        if name.len() > LONGEST_NAME {
            return Err(HostError::TooLong);
        }
        let mut last = "";
        for label in name.split('.') {
            if label.is_empty() || label.starts_with('-') || label.ends_with('-') {
                return Err(HostError::Label);
            }
            if label.len() > LONGEST_LABEL {
                return Err(HostError::TooLong);
            }
            if !label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_') {
                return Err(HostError::Character);
            }
            last = label;
        }
        let is_hexadecimal =
            last.strip_prefix("0x").is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_hexdigit()));
        if last.bytes().all(|byte| byte.is_ascii_digit()) || is_hexadecimal {
            return Err(HostError::Numeric);
        }
        if name.split('.').any(|label| label.starts_with("xn--")) && idna::domain_to_unicode(&name).1.is_err()
        {
            return Err(HostError::International);
        }
        Ok(Self(name))
    }

    /// The canonical form.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this is a name below `parent`, at any depth.
    #[must_use]
    pub fn is_below(&self, parent: &Self) -> bool {
        self.0.strip_suffix(parent.as_str()).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
    }
}

/// The ASCII form of an international name. What the mapping would change (full-width letters, look-alike
/// dots, invisible characters) is rejected, not repaired.
fn international(text: &str) -> Result<String, HostError> {
    let ascii = idna::domain_to_ascii_strict(text).map_err(|_| HostError::International)?;
    let (back, valid) = idna::domain_to_unicode(&ascii);
    if valid.is_err() || back != text.to_lowercase() {
        return Err(HostError::International);
    }
    Ok(ascii)
}

impl Host {
    /// Parses a host: a name, four decimal numbers, or an IPv6 address with or without brackets.
    pub fn parse(text: &str) -> Result<Self, HostError> {
        let inner =
            text.strip_prefix('[').map(|rest| rest.strip_suffix(']').ok_or(HostError::Six)).transpose()?;
        if inner.is_some() || text.contains(':') {
            let address: Ipv6Addr = inner.unwrap_or(text).parse().map_err(|_| HostError::Six)?;
            return Ok(Self::Address(unmapped(IpAddr::V6(address))));
        }
        if let Some(address) = dotted_quad(text) {
            return Ok(Self::Address(IpAddr::V4(address)));
        }
        Name::parse(text).map(Self::Name)
    }
}

/// Four decimal numbers without leading zeros.
fn dotted_quad(text: &str) -> Option<Ipv4Addr> {
    // The standard library rejects leading zeros and every other form.
    text.parse().ok()
}

/// An IPv4-mapped IPv6 address as an IPv4 address.
pub(crate) fn unmapped(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(six) => six.to_ipv4_mapped().map_or(address, IpAddr::V4),
    }
}

impl Target {
    /// Parses `host:port`; the port may be omitted if there is a default.
    pub fn parse(text: &str, otherwise: Option<u16>) -> Result<Self, HostError> {
        let (host, port) = split_port(text)?;
        let port = match port {
            Some(port) => parse_port(port)?,
            None => otherwise.ok_or(HostError::Port)?,
        };
        Ok(Self { host: Host::parse(host)?, port, by: None })
    }

    /// Sets the run whose program connects.
    #[must_use]
    pub fn by(self, by: Option<RunKey>) -> Self {
        Self { by, ..self }
    }
}

/// Splits a host from the port after its last colon.
pub(crate) fn split_port(text: &str) -> Result<(&str, Option<&str>), HostError> {
    if text.starts_with('[') {
        let end = text.find(']').ok_or(HostError::Six)?;
        let (host, rest) = text.split_at(end + 1);
        return match rest.strip_prefix(':') {
            Some(port) => Ok((host, Some(port))),
            None if rest.is_empty() => Ok((host, None)),
            None => Err(HostError::Six),
        };
    }
    match text.split_once(':') {
        // More than one colon: an IPv6 address without brackets has no port.
        Some((_, rest)) if rest.contains(':') => Ok((text, None)),
        Some((host, port)) => Ok((host, Some(port))),
        None => Ok((text, None)),
    }
}

/// A port: digits only, no sign, 1 to 65535.
pub(crate) fn parse_port(text: &str) -> Result<u16, HostError> {
    if text.is_empty() || text.len() > 5 || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(HostError::Port);
    }
    text.parse().ok().filter(|&port: &u16| port != 0).ok_or(HostError::Port)
}

impl fmt::Display for Name {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.0)
    }
}

impl fmt::Display for Host {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => write!(formatter, "{name}"),
            Self::Address(IpAddr::V4(address)) => write!(formatter, "{address}"),
            Self::Address(IpAddr::V6(address)) => write!(formatter, "[{address}]"),
        }
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{self}")
    }
}

impl fmt::Display for Target {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.host, self.port)
    }
}

#[cfg(test)]
#[path = "host_tests.rs"]
mod tests;
