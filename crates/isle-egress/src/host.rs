//! Hosts and ports, parsed once. Every other place of the gate sees these types only, so there is no
//! second opinion about what a name means: most ways around such a gate live between two parsers.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Longest name in its textual form.
const LONGEST_NAME: usize = 253;
/// Longest part of a name between dots.
const LONGEST_LABEL: usize = 63;

/// Why a text is no host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// Nothing there.
    #[error("the host is empty")]
    Empty,
    /// Longer than names may be.
    #[error("the host is longer than a name may be")]
    TooLong,
    /// Contains something no host contains: userinfo, a path, a NUL, white space, a percent sign.
    #[error("the host contains a character that no host has")]
    Character,
    /// A label is empty or begins or ends with a hyphen.
    #[error("a part of the host between dots is empty or begins or ends with a hyphen")]
    Label,
    /// An international name that is not written in its usual form.
    #[error("the international name is not valid, or not written in its usual form")]
    International,
    /// An IPv4 address in a form that programs read in different ways.
    #[error("the address is not written as four decimal numbers")]
    Numeric,
    /// An IPv6 address that cannot be read, or with a zone.
    #[error("the IPv6 address cannot be read, or has a zone")]
    Six,
    /// No port from 1 to 65535.
    #[error("the port is not a number from 1 to 65535")]
    Port,
}

/// A domain name in its one canonical form: ASCII, lower case, no dot at its end.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(String);

/// Where a connection goes: a name, or an address somebody wrote down.
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
}

impl Name {
    /// Reads a name. One dot at the end is dropped, case does not matter, international names become
    /// their ASCII form; what looks like a number is refused, since it may be an address to others.
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

/// The ASCII form of a name whose other characters stand for themselves: what the mapping would
/// change (full-width letters, look-alike dots, invisible characters) is refused, not repaired.
fn international(text: &str) -> Result<String, HostError> {
    let ascii = idna::domain_to_ascii_strict(text).map_err(|_| HostError::International)?;
    let (back, valid) = idna::domain_to_unicode(&ascii);
    if valid.is_err() || back != text.to_lowercase() {
        return Err(HostError::International);
    }
    Ok(ascii)
}

impl Host {
    /// Reads a host: a name, four decimal numbers, or an IPv6 address with or without brackets.
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
    // The standard library refuses leading zeros and every other form.
    text.parse().ok()
}

/// An address without its IPv6 disguise.
pub(crate) fn unmapped(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(six) => six.to_ipv4_mapped().map_or(address, IpAddr::V4),
    }
}

impl Target {
    /// Reads `host:port`; the port may be left out when there is one to fall back on.
    pub fn parse(text: &str, otherwise: Option<u16>) -> Result<Self, HostError> {
        let (host, port) = split_port(text)?;
        let port = match port {
            Some(port) => parse_port(port)?,
            None => otherwise.ok_or(HostError::Port)?,
        };
        Ok(Self { host: Host::parse(host)?, port })
    }
}

/// Parts a host from what follows its last colon.
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
mod tests {
    use super::*;

    fn name(text: &str) -> Result<String, HostError> {
        Name::parse(text).map(|name| name.to_string())
    }

    #[test]
    fn a_name_has_one_form() {
        for text in ["example.com", "EXAMPLE.com", "example.com.", "eXample.COM."] {
            assert_eq!(name(text).unwrap(), "example.com", "{text}");
        }
        assert_eq!(name("bücher.example").unwrap(), "xn--bcher-kva.example");
        assert_eq!(name("BÜCHER.example").unwrap(), "xn--bcher-kva.example");
        assert_eq!(name("my_service.internal").unwrap(), "my_service.internal");
        assert_eq!(name("0.pool.example").unwrap(), "0.pool.example");
    }

    #[test]
    fn what_other_programs_may_read_differently_is_no_name() {
        for text in [
            "",
            ".",
            "example.com..",
            ".example.com",
            "a..b",
            "-a.example",
            "a-.example",
            "user@example.com",
            "user:pw@example.com",
            "example.com/",
            "example.com#x",
            "example.com?x",
            "example.com\\x",
            "example.com\0.evil.example",
            "example.com%00.evil.example",
            "exa mple.com",
            "example.com\r\n",
            "ex\u{ad}ample.com",
            "example。com",
            "example．com",
            "ｅxample.com",
            "example.com\u{200b}",
            "127.1",
            "0x7f.0.0.1",
            "0x7f000001",
            "2130706433",
            "017700000001",
            "127.0.0.1.",
            "0177.0.0.1",
            "1.2.3.4.5",
            "1.2.3",
            "256.256.256.256",
            "xn--a.example",
            "*.example.com",
            "[::1]",
            "::1",
        ] {
            assert!(Name::parse(text).is_err(), "{text:?}");
        }
        let long = format!("{}.example", "a".repeat(64));
        assert_eq!(name(&long), Err(HostError::TooLong));
        let long = ["abcdefghi"; 26].join(".");
        assert_eq!(name(&long), Err(HostError::TooLong));
    }

    #[test]
    fn an_address_has_one_form() {
        let address = |text: &str| match Host::parse(text) {
            Ok(Host::Address(address)) => address.to_string(),
            other => format!("{other:?}"),
        };
        assert_eq!(address("127.0.0.1"), "127.0.0.1");
        assert_eq!(address("[::1]"), "::1");
        assert_eq!(address("::ffff:127.0.0.1"), "127.0.0.1");
        assert_eq!(address("[::FFFF:7f00:1]"), "127.0.0.1");
        assert_eq!(address("2001:DB8:0::1"), "2001:db8::1");
        for text in [
            "[::1",
            "::1]",
            "[::1%lo]",
            "fe80::1%eth0",
            "fe80::1%25eth0",
            "[127.0.0.1]",
            "01.2.3.4",
            "1:2",
            ":::",
        ] {
            assert!(Host::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_target_is_a_host_and_a_port() {
        let target = |text: &str| Target::parse(text, Some(443)).map(|target| target.to_string());
        assert_eq!(target("Example.com").unwrap(), "example.com:443");
        assert_eq!(target("example.com:8080").unwrap(), "example.com:8080");
        assert_eq!(target("[::1]:80").unwrap(), "[::1]:80");
        assert_eq!(target("::1").unwrap(), "[::1]:443");
        for text in [
            "a.example:",
            "a.example:0",
            "a.example:65536",
            "a.example:+1",
            "a.example:1a",
            "a.example: 1",
            "[::1]x",
            "[::1]:",
            ":80",
        ] {
            assert!(target(text).is_err(), "{text}");
        }
        assert_eq!(Target::parse("example.com", None), Err(HostError::Port));
    }

    #[test]
    fn below_means_whole_labels() {
        let name = |text| Name::parse(text).unwrap();
        let parent = name("example.com");
        for below in ["a.example.com", "b.a.example.com"] {
            assert!(name(below).is_below(&parent), "{below}");
        }
        for other in ["example.com", "badexample.com", "example.com.evil.example", "com"] {
            assert!(!name(other).is_below(&parent), "{other}");
        }
    }

    /// Every text that is read gives a form that reads as itself, whatever it was.
    #[test]
    fn reading_a_canonical_form_changes_nothing() {
        let pieces =
            ["a", "B", ".", "-", "_", "0x", "1", "ü", "。", "@", ":", "[", "]", "%", "xn--", "\0", "*", "/"];
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        for _ in 0..50_000 {
            let mut text = String::new();
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let mut left = state >> 20;
            for _ in 0..(state >> 60) {
                text.push_str(pieces[usize::try_from(left % pieces.len() as u64).unwrap()]);
                left /= pieces.len() as u64;
            }
            if let Ok(host) = Host::parse(&text) {
                let form = host.to_string();
                assert!(form.is_ascii() && !form.contains(['@', '/', '%', '\0', '*']), "{text:?}");
                assert_eq!(Host::parse(&form).as_ref(), Ok(&host), "{text:?} {form:?}");
            }
        }
    }
}
