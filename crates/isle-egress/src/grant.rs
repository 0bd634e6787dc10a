//! A grant: a host or addresses, ports, what may be spoken or asked there, and how much for how long.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use crate::host::{Host, HostError, Name, parse_port, split_port, unmapped};
use crate::requests::{Requests, RequestsError};

/// Most ports one grant names.
const MOST_PORTS: usize = 32;
const HTTPS_PORT: u16 = 443;
const HTTP_PORT: u16 = 80;

/// Why a text is no grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum GrantError {
    /// Its host is none.
    #[error("{0}")]
    Host(#[from] HostError),
    /// A star anywhere but as the whole first part of a name.
    #[error("a star can only stand for the first part of a name, as in `*.example.com`")]
    Star,
    /// A star that would grant a whole top-level domain.
    #[error("`*` alone, or before a top-level domain, grants too much")]
    TooWide,
    /// A range of addresses that cannot be read.
    #[error("the range of addresses is not written as `10.0.0.0/8`, with zeros after its length")]
    Range,
    /// Too many ports.
    #[error("a grant names at most {MOST_PORTS} ports")]
    Ports,
    /// No such protocol.
    #[error("the protocol is none of `tcp`, `tls`, `http`")]
    Protocol,
    /// Its methods or its path are none.
    #[error("{0}")]
    Requests(#[from] RequestsError),
    /// Requests to an address.
    #[error("requests are granted to names: an address has none that TLS or HTTP could be held to")]
    NoName,
}

/// What is spoken over a granted connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Protocol {
    /// Anything.
    Tcp,
    /// TLS whose first message names the granted host.
    Tls,
    /// HTTP/1 requests to the granted host, not encrypted.
    Http,
}

impl Protocol {
    /// What a port is commonly used for: TLS on 443, HTTP on 80, anything elsewhere.
    #[must_use]
    pub fn of_port(port: u16) -> Self {
        match port {
            443 => Self::Tls,
            80 => Self::Http,
            _ => Self::Tcp,
        }
    }

    /// Its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Tls => "tls",
            Self::Http => "http",
        }
    }

    /// The protocol of that name.
    pub fn parse(text: &str) -> Result<Self, GrantError> {
        match text {
            "tcp" => Ok(Self::Tcp),
            "tls" => Ok(Self::Tls),
            "http" => Ok(Self::Http),
            _ => Err(GrantError::Protocol),
        }
    }
}

/// Addresses with the same beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AddressRange {
    address: IpAddr,
    length: u8,
}

impl AddressRange {
    /// One address.
    #[must_use]
    pub fn one(address: IpAddr) -> Self {
        let address = unmapped(address);
        let length = if address.is_ipv4() { 32 } else { 128 };
        Self { address, length }
    }

    /// The addresses that share their first `length` bits with `address`.
    fn new(address: IpAddr, length: u8) -> Option<Self> {
        let (bits, width) = bits(address);
        let rest =
            if length == 0 { u128::MAX } else { u128::MAX.checked_shr(u32::from(length)).unwrap_or(0) };
        // Bits are kept at the top, so that both families shift alike.
        (length > 0 && length <= width && bits & rest == 0).then_some(Self { address, length })
    }

    /// Whether it covers an address.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = unmapped(address);
        if address.is_ipv4() != self.address.is_ipv4() {
            return false;
        }
        let differing = bits(address).0 ^ bits(self.address).0;
        differing.leading_zeros() >= u32::from(self.length)
    }

    /// The address, if it covers only one.
    #[must_use]
    pub fn single(&self) -> Option<IpAddr> {
        (*self == Self::one(self.address)).then_some(self.address)
    }
}

/// An address as bits at the top of a number, and how many there are.
fn bits(address: IpAddr) -> (u128, u8) {
    match address {
        IpAddr::V4(address) => (u128::from(address.to_bits()) << 96, 32),
        IpAddr::V6(address) => (address.to_bits(), 128),
    }
}

/// Which hosts a grant speaks of.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Pattern {
    /// This name.
    Exact(Name),
    /// Every name below this one, not the name itself.
    Below(Name),
    /// These addresses, also where a name leads to them.
    Addresses(AddressRange),
}

/// How much a grant allows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// Bytes in both directions over the life of the grant.
    pub total_bytes: Option<u64>,
    /// Bytes per second in both directions.
    pub bytes_per_second: Option<u64>,
    /// How long it holds from the moment it is made.
    pub lifetime: Option<Duration>,
    /// Connections over the life of the grant. The last of them may go on longer than that life.
    pub connections: Option<u64>,
    /// Requests over the life of the grant, where each is looked at.
    pub requests: Option<u64>,
}

/// The number of a grant within its policy.
pub type GrantId = u64;

/// A grant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// Which hosts.
    pub pattern: Pattern,
    /// Which ports, sorted, at least one.
    pub ports: Vec<u16>,
    /// What is spoken there, if not what the port is commonly used for.
    pub protocol: Option<Protocol>,
    /// Which requests may be made there; all of them where nobody looks into what is spoken.
    pub requests: Requests,
    /// How much.
    pub limits: Limits,
}

impl Grant {
    /// Reads `HOST`, `HOST:PORT`, `HOST:PORT,PORT`, each with `/tcp`, `/tls` or `/http` behind if it is
    /// not what the port is commonly used for. Without a port it is 443 and 80. The host may be
    /// `*.example.com`, an address, or a range as `10.0.0.0/8`. Requests are written as an address of the
    /// web with stars, and methods behind: `https://api.example.com/v1/* GET,POST`.
    pub fn parse(text: &str) -> Result<Self, GrantError> {
        if let Some(rest) = text.strip_prefix("https://") {
            return Self::parse_requests(rest, Protocol::Tls, HTTPS_PORT);
        }
        if let Some(rest) = text.strip_prefix("http://") {
            return Self::parse_requests(rest, Protocol::Http, HTTP_PORT);
        }
        let (rest, protocol) = match text.rsplit_once('/') {
            Some((rest, word)) if !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphabetic()) => {
                (rest, Some(Protocol::parse(word)?))
            }
            _ => (text, None),
        };
        let (host, ports) = split_ports(rest)?;
        let ports = match ports {
            Some(ports) => parse_ports(ports)?,
            None => vec![80, 443],
        };
        let requests = Requests::default();
        Ok(Self { pattern: Pattern::parse(host)?, ports, protocol, requests, limits: Limits::default() })
    }

    fn parse_requests(text: &str, protocol: Protocol, common_port: u16) -> Result<Self, GrantError> {
        let (address, methods) = match text.split_once(' ') {
            Some((address, methods)) => (address, Some(methods.trim_matches(' '))),
            None => (text, None),
        };
        let (authority, path) = address.split_at(address.find('/').unwrap_or(address.len()));
        let (host, port) = split_port(authority)?;
        let ports = vec![port.map_or(Ok(common_port), parse_port)?];
        let pattern = Pattern::parse(host)?;
        if matches!(pattern, Pattern::Addresses(_)) {
            return Err(GrantError::NoName);
        }
        let requests = Requests::parse(path, methods)?;
        Ok(Self { pattern, ports, protocol: Some(protocol), requests, limits: Limits::default() })
    }

    /// How its requests are addressed, where requests are what it grants.
    fn scheme(&self) -> Option<&'static str> {
        match self.protocol {
            Some(Protocol::Tls) => Some("https"),
            Some(Protocol::Http) => Some("http"),
            Some(Protocol::Tcp) | None => None,
        }
    }

    /// What is spoken on a port of this grant.
    #[must_use]
    pub fn protocol_on(&self, port: u16) -> Protocol {
        match (self.protocol, &self.pattern) {
            (Some(protocol), _) => protocol,
            (None, Pattern::Exact(_) | Pattern::Below(_)) => Protocol::of_port(port),
            // There is no name that the traffic could be held to.
            (None, Pattern::Addresses(_)) => Protocol::Tcp,
        }
    }
}

/// Parts the hosts of a grant from its ports. The length of a range stands before the colon.
fn split_ports(text: &str) -> Result<(&str, Option<&str>), GrantError> {
    match text.split_once("]/") {
        Some((_, length)) if text.starts_with('[') => Ok(match length.split_once(':') {
            Some((_, ports)) => (&text[..text.len() - ports.len() - 1], Some(ports)),
            None => (text, None),
        }),
        _ => Ok(split_port(text)?),
    }
}

fn parse_ports(text: &str) -> Result<Vec<u16>, GrantError> {
    let mut ports = text.split(',').map(parse_port).collect::<Result<Vec<_>, _>>()?;
    ports.sort_unstable();
    ports.dedup();
    if ports.len() > MOST_PORTS {
        return Err(GrantError::Ports);
    }
    Ok(ports)
}

impl Pattern {
    /// Reads a host, a name with a star, or a range of addresses.
    pub fn parse(text: &str) -> Result<Self, GrantError> {
        if let Some((address, length)) = text.split_once('/') {
            return range(address, length).map(Self::Addresses).ok_or(GrantError::Range);
        }
        if let Some(rest) = text.strip_prefix("*.") {
            let parent = Name::parse(rest)?;
            return if parent.as_str().contains('.') {
                Ok(Self::Below(parent))
            } else {
                Err(GrantError::TooWide)
            };
        }
        if text == "*" {
            return Err(GrantError::TooWide);
        }
        if text.contains('*') {
            return Err(GrantError::Star);
        }
        Ok(match Host::parse(text)? {
            Host::Name(name) => Self::Exact(name),
            Host::Address(address) => Self::Addresses(AddressRange::one(address)),
        })
    }

    /// Whether it covers a host.
    #[must_use]
    pub fn covers(&self, host: &Host) -> bool {
        match (self, host) {
            (Self::Exact(granted), Host::Name(name)) => granted == name,
            (Self::Below(parent), Host::Name(name)) => name.is_below(parent),
            (Self::Addresses(range), Host::Address(address)) => range.contains(*address),
            (Self::Exact(_) | Self::Below(_), Host::Address(_)) | (Self::Addresses(_), Host::Name(_)) => {
                false
            }
        }
    }
}

fn range(address: &str, length: &str) -> Option<AddressRange> {
    let Ok(Host::Address(address)) = Host::parse(address) else { return None };
    if length.is_empty() || length.len() > 3 || !length.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    AddressRange::new(address, length.parse().ok()?)
}

impl fmt::Display for Pattern {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(name) => write!(formatter, "{name}"),
            Self::Below(name) => write!(formatter, "*.{name}"),
            Self::Addresses(range) => match range.single() {
                Some(address) => write!(formatter, "{}", Host::Address(address)),
                None => write!(formatter, "{}/{}", Host::Address(range.address), range.length),
            },
        }
    }
}

impl fmt::Display for Grant {
    /// As it would be written to be read again.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let (false, Some(scheme)) = (self.requests.is_all(), self.scheme()) {
            write!(formatter, "{scheme}://{}", self.pattern)?;
            let common = if scheme == "https" { HTTPS_PORT } else { HTTP_PORT };
            for port in self.ports.iter().filter(|&&port| port != common) {
                write!(formatter, ":{port}")?;
            }
            return write!(formatter, "{}", self.requests);
        }
        let ports: Vec<String> = self.ports.iter().map(u16::to_string).collect();
        write!(formatter, "{}:{}", self.pattern, ports.join(","))?;
        match self.protocol {
            Some(protocol) => write!(formatter, "/{}", protocol.as_str()),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<String, GrantError> {
        Grant::parse(text).map(|grant| grant.to_string())
    }

    #[test]
    fn a_grant_is_written_in_one_form() {
        for (text, form) in [
            ("Example.COM", "example.com:80,443"),
            ("example.com:443", "example.com:443"),
            ("example.com:8080,80,8080/http", "example.com:80,8080/http"),
            ("*.Example.com:443", "*.example.com:443"),
            ("127.0.0.1:5432", "127.0.0.1:5432"),
            ("[::1]:80/tcp", "[::1]:80/tcp"),
            ("10.0.0.0/8:443", "10.0.0.0/8:443"),
            ("10.0.0.0/8", "10.0.0.0/8:80,443"),
            ("[fd00::]/8:22", "[fd00::]/8:22"),
            ("[::ffff:10.0.0.1]:22", "10.0.0.1:22"),
            ("10.1.2.3/32:9", "10.1.2.3:9"),
            ("https://API.example.com/v1/* post,GET", "https://api.example.com/v1/* GET,POST"),
            ("https://api.example.com:8443/v1", "https://api.example.com:8443/v1"),
            ("https://api.example.com:443/*  GET", "https://api.example.com/* GET"),
            ("https://*.example.com GET", "https://*.example.com/* GET"),
            ("http://example.com/a/*/b", "http://example.com/a/*/b"),
            ("http://example.com:8080/ HEAD", "http://example.com:8080/ HEAD"),
            // Nothing to look for: the encryption stays closed.
            ("https://example.com", "example.com:443/tls"),
            ("https://example.com/*", "example.com:443/tls"),
            ("http://example.com:81/*", "example.com:81/http"),
        ] {
            assert_eq!(read(text).as_deref(), Ok(form), "{text}");
            assert_eq!(read(form).as_deref(), Ok(form), "{form}");
        }
    }

    #[test]
    fn what_grants_too_much_or_cannot_be_read_is_no_grant() {
        for text in [
            "",
            "*",
            "*.com",
            "*.",
            "a.*.example.com",
            "*a.example.com",
            "**.example.com",
            "*.*.example.com",
            "example.com:",
            "example.com:0",
            "example.com:1-5",
            "example.com:443/udp",
            "ftp://example.com",
            "https://",
            "https://example.com/a/../b",
            "https://example.com/a?b",
            "https://example.com GET/POST",
            "https://user@example.com/a",
            "https://10.0.0.1/a",
            "https://example.com:443,444/a",
            "https:///a",
            "example.com GET",
            "example.com/path",
            "10.0.0.1/8",
            "10.0.0.0/33",
            "10.0.0.0/",
            "0.0.0.0/0",
            "example.com/8",
            "user@example.com",
            "*.127.0.0.1",
            "127.1:80",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_range_covers_its_addresses_only() {
        let Pattern::Addresses(range) = Pattern::parse("10.0.0.0/8").unwrap() else { panic!() };
        for (text, inside) in
            [("10.255.0.1", true), ("11.0.0.0", false), ("::ffff:10.0.0.1", true), ("a00::", false)]
        {
            assert_eq!(range.contains(text.parse().unwrap()), inside, "{text}");
        }
    }

    #[test]
    fn traffic_is_held_to_what_its_port_is_for() {
        let grant = Grant::parse("example.com:22,80,443").unwrap();
        assert_eq!(
            [22, 80, 443].map(|port| grant.protocol_on(port)),
            [Protocol::Tcp, Protocol::Http, Protocol::Tls]
        );
        assert_eq!(Grant::parse("example.com:443/tcp").unwrap().protocol_on(443), Protocol::Tcp);
        assert_eq!(Grant::parse("10.0.0.1:443").unwrap().protocol_on(443), Protocol::Tcp);
    }
}
