//! A grant: a host or addresses, ports, protocol, allowed requests, and limits in bytes and time.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use crate::policy::cloud_metadata::{self, Metadata, MetadataOverlap};
use crate::policy::host::{Host, HostError, Name, parse_port, split_port, unmapped};
use crate::policy::request_rules::{RequestRules, RequestRulesError};

/// Maximum number of ports of one grant.
const MOST_PORTS: usize = 32;
const HTTPS_PORT: u16 = 443;
const HTTP_PORT: u16 = 80;

/// Why a text is not a valid grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum GrantError {
    /// Its host is not valid.
    #[error("{0}")]
    Host(#[from] HostError),
    /// A wildcard anywhere but as the whole first label of a name.
    #[error("a wildcard is only allowed as the first label of a name, as in `*.example.com`")]
    Star,
    /// A wildcard that would grant a whole top-level domain.
    #[error("`*` alone, or before a top-level domain, grants too much")]
    TooWide,
    /// A malformed range of addresses.
    #[error("the address range is not valid; write it as `10.0.0.0/8`, with zeros after the prefix")]
    Range,
    /// A range of every address.
    #[error(
        "a range of prefix length 0 covers every address, private networks and this machine included, and cannot be granted; grant names, or the ranges that are needed"
    )]
    Everything,
    /// Too many ports.
    #[error("a grant has at most {MOST_PORTS} ports")]
    Ports,
    /// Unknown protocol.
    #[error("unknown protocol; use `tcp`, `tls` or `http`")]
    Protocol,
    /// Its methods or its path are not valid.
    #[error("{0}")]
    RequestRules(#[from] RequestRulesError),
    /// Requests granted to an address.
    #[error("requests can only be granted to names: TLS and HTTP cannot be checked against an address")]
    NoName,
    /// Metadata without the word `metadata`.
    #[error(
        "it is a cloud metadata address, which serves the credentials of this machine; if that is intended, add `metadata`, as in `169.254.169.254:80/metadata`"
    )]
    Metadata,
    /// The word `metadata` on another address.
    #[error("`metadata` is only valid for cloud metadata addresses")]
    NotMetadata,
}

/// The protocol of a granted connection.
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
    /// The default protocol of a port: TLS on 443, HTTP on 80, any TCP elsewhere.
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

/// A range of addresses (CIDR).
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
        // Bits are kept at the top, so that both families shift the same way.
        (length > 0 && length <= width && bits & rest == 0).then_some(Self { address, length })
    }

    /// The first address.
    pub(crate) fn first(&self) -> IpAddr {
        self.address
    }

    /// The prefix length.
    pub(crate) fn length(&self) -> u8 {
        self.length
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

    /// The address, if the range has only one.
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

/// The hosts that a grant covers.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Pattern {
    /// This name.
    Exact(Name),
    /// Every name below this one, not the name itself.
    Below(Name),
    /// These addresses, also when a name resolves to them.
    Addresses(AddressRange),
}

/// The limits of a grant.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// Bytes in both directions over the lifetime of the grant.
    pub total_bytes: Option<u64>,
    /// Bytes per second in both directions.
    pub bytes_per_second: Option<u64>,
    /// How long it is valid after it was added.
    pub lifetime: Option<Duration>,
    /// Connections over the lifetime of the grant. Connections already open may outlast it.
    pub connections: Option<u64>,
    /// Requests over the lifetime of the grant, where requests are inspected.
    pub requests: Option<u64>,
}

/// A run, by its id: the run a grant is limited to, or the run whose program connects. The latter is reported
/// by the agent inside the sandbox; `docs/use/network.md` says how far that can be trusted.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RunKey(std::sync::Arc<str>);

impl RunKey {
    /// The run with this id.
    #[must_use]
    pub fn new(run: &str) -> Self {
        Self(run.into())
    }

    /// Its id.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The number of a grant within its policy.
pub type GrantId = u64;

/// A grant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The hosts.
    pub pattern: Pattern,
    /// The ports, sorted, at least one.
    pub ports: Vec<u16>,
    /// The protocol, if not the default of the port.
    pub protocol: Option<Protocol>,
    /// The allowed requests; all of them if requests are not inspected.
    pub requests: RequestRules,
    /// Whether cloud metadata is included.
    pub metadata: Metadata,
    /// The limits.
    pub limits: Limits,
}

impl Grant {
    /// Parses `HOST`, `HOST:PORT` or `HOST:PORT,PORT`, each followed by `/tcp`, `/tls` or `/http` if that is
    /// not the default of the port. The default ports are 443 and 80. The host may be `*.example.com`, an
    /// address, or a range such as `10.0.0.0/8`. Requests are written as a URL with wildcards, followed by
    /// methods: `https://api.example.com/v1/* GET,POST`. Cloud metadata needs the word `metadata` at the end:
    /// `169.254.169.254:80/metadata`.
    pub fn parse(text: &str) -> Result<Self, GrantError> {
        let separator = if text.contains("://") { ' ' } else { '/' };
        let (rest, metadata) = match text.rsplit_once(separator) {
            Some((rest, cloud_metadata::WORD)) => (rest, Metadata::Included),
            Some(_) | None => (text, Metadata::Excluded),
        };
        let grant = Self { metadata, ..Self::parse_plain(rest)? };
        match (cloud_metadata::overlap(&grant.pattern), metadata) {
            (MetadataOverlap::All, Metadata::Excluded) => Err(GrantError::Metadata),
            (MetadataOverlap::None, Metadata::Included) => Err(GrantError::NotMetadata),
            _ => Ok(grant),
        }
    }

    /// Parses what precedes the word `metadata`.
    fn parse_plain(text: &str) -> Result<Self, GrantError> {
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
        let (requests, limits, metadata) = Default::default();
        Ok(Self { pattern: Pattern::parse(host)?, ports, protocol, requests, metadata, limits })
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
        let requests = RequestRules::parse(path, methods)?;
        let (limits, metadata) = Default::default();
        Ok(Self { pattern, ports, protocol: Some(protocol), requests, metadata, limits })
    }

    /// The URL scheme of its requests, if it grants requests.
    fn scheme(&self) -> Option<&'static str> {
        match self.protocol {
            Some(Protocol::Tls) => Some("https"),
            Some(Protocol::Http) => Some("http"),
            Some(Protocol::Tcp) | None => None,
        }
    }

    /// Whether it covers a host. Cloud metadata is covered only with the word `metadata`.
    #[must_use]
    pub fn covers(&self, host: &Host) -> bool {
        self.pattern.covers(host)
            && (self.metadata == Metadata::Included || !cloud_metadata::is_metadata_host(host))
    }

    /// The protocol on a port of this grant.
    #[must_use]
    pub fn protocol_on(&self, port: u16) -> Protocol {
        match (self.protocol, &self.pattern) {
            (Some(protocol), _) => protocol,
            (None, Pattern::Exact(_) | Pattern::Below(_)) => Protocol::of_port(port),
            // There is no name that the traffic could be checked against.
            (None, Pattern::Addresses(_)) => Protocol::Tcp,
        }
    }
}

/// Splits the hosts of a grant from its ports. The prefix length of a range precedes the colon.
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
    /// Parses a host, a name with a wildcard, or a range of addresses.
    pub fn parse(text: &str) -> Result<Self, GrantError> {
        if let Some((address, length)) = text.split_once('/') {
            let is_zero = !length.is_empty() && length.bytes().all(|byte| byte == b'0');
            if is_zero && matches!(Host::parse(address), Ok(Host::Address(_))) {
                return Err(GrantError::Everything);
            }
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
    /// In the form that [`Grant::parse`] reads.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let (false, Some(scheme)) = (self.requests.is_all(), self.scheme()) {
            write!(formatter, "{scheme}://{}", self.pattern)?;
            let common = if scheme == "https" { HTTPS_PORT } else { HTTP_PORT };
            for port in self.ports.iter().filter(|&&port| port != common) {
                write!(formatter, ":{port}")?;
            }
            write!(formatter, "{}", self.requests)?;
            return match self.metadata {
                Metadata::Included => write!(formatter, " {}", cloud_metadata::WORD),
                Metadata::Excluded => Ok(()),
            };
        }
        let ports: Vec<String> = self.ports.iter().map(u16::to_string).collect();
        write!(formatter, "{}:{}", self.pattern, ports.join(","))?;
        if let Some(protocol) = self.protocol {
            write!(formatter, "/{}", protocol.as_str())?;
        }
        match self.metadata {
            Metadata::Included => write!(formatter, "/{}", cloud_metadata::WORD),
            Metadata::Excluded => Ok(()),
        }
    }
}

#[cfg(test)]
#[path = "grant_tests.rs"]
mod tests;
