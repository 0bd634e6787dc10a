//! Cloud metadata services, which serve the credentials of the machine. A grant of a name or of a range does
//! not cover them; a grant of such an address has to include the word `metadata`.

use std::net::IpAddr;

use crate::policy::address_class::{AddressClass, classify};
use crate::policy::grant::{AddressRange, Pattern};
use crate::policy::host::{Host, Name};

/// The word that such a grant needs.
pub(crate) const WORD: &str = "metadata";

/// Names of metadata services. The addresses they resolve to have to be granted separately.
const NAMES: &[&str] = &[
    "instance-data",
    "instance-data.ec2.internal",
    "metadata",
    "metadata.azure.internal",
    "metadata.goog",
    "metadata.google.internal",
    "metadata.packet.net",
    "metadata.platformequinix.com",
    "metadata.tencentyun.com",
];

/// Ranges in which every address needs the word.
const RANGES: &[&str] = &["169.254.0.0/16", "[fe80::]/10", "[fd00:ec2::]/32", "[fd20:ce::]/32"];

/// Single addresses elsewhere.
const SINGLES: &[&str] = &["100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:42::42"];

/// Whether a grant includes metadata services.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Metadata {
    /// Without the word: metadata addresses are not covered.
    #[default]
    Excluded,
    /// With the word.
    Included,
}

/// Whether an address needs the word. All link-local addresses do, since clouds have their services there.
pub(crate) fn is_metadata(address: IpAddr) -> bool {
    matches!(classify(address), AddressClass::Metadata | AddressClass::LinkLocal)
}

/// Whether a host is a metadata service, before any name is resolved.
pub(crate) fn is_metadata_host(host: &Host) -> bool {
    match host {
        Host::Name(name) => is_metadata_name(name),
        Host::Address(address) => is_metadata(*address),
    }
}

fn is_metadata_name(name: &Name) -> bool {
    NAMES.contains(&name.as_str())
}

/// How much of a pattern is metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MetadataOverlap {
    /// Nothing.
    None,
    /// It covers other hosts as well.
    Partial,
    /// It covers nothing else.
    All,
}

/// How much of the hosts that a pattern covers is metadata.
pub(crate) fn overlap(pattern: &Pattern) -> MetadataOverlap {
    match pattern {
        Pattern::Exact(name) if is_metadata_name(name) => MetadataOverlap::All,
        Pattern::Exact(_) => MetadataOverlap::None,
        Pattern::Below(parent) => {
            let below = |name: &str| Name::parse(name).is_ok_and(|name| name.is_below(parent));
            if NAMES.iter().any(|name| below(name)) {
                MetadataOverlap::Partial
            } else {
                MetadataOverlap::None
            }
        }
        Pattern::Addresses(range) => range_overlap(range),
    }
}

fn range_overlap(range: &AddressRange) -> MetadataOverlap {
    if let Some(address) = range.single() {
        return if is_metadata(address) { MetadataOverlap::All } else { MetadataOverlap::None };
    }
    let known = |text: &str| match Pattern::parse(text) {
        Ok(Pattern::Addresses(known)) => Some(known),
        Ok(Pattern::Exact(_) | Pattern::Below(_)) | Err(_) => None,
    };
    let ranges: Vec<AddressRange> = RANGES.iter().chain(SINGLES).filter_map(|text| known(text)).collect();
    if ranges.iter().any(|known| known.contains(range.first()) && known.length() <= range.length()) {
        return MetadataOverlap::All;
    }
    let within = ranges.iter().any(|known| range.contains(known.first()));
    // An IPv6 address can embed any IPv4 address.
    if within || range.first().is_ipv6() { MetadataOverlap::Partial } else { MetadataOverlap::None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_overlap_of_a_grant_with_metadata_is_known_in_advance() {
        for (text, expected) in [
            ("169.254.169.254", MetadataOverlap::All),
            ("169.254.1.1", MetadataOverlap::All),
            ("169.254.0.0/16", MetadataOverlap::All),
            ("169.254.169.0/24", MetadataOverlap::All),
            ("fe80::1", MetadataOverlap::All),
            ("[fe80::]/10", MetadataOverlap::All),
            ("[fd00:ec2::]/64", MetadataOverlap::All),
            ("::ffff:169.254.169.254", MetadataOverlap::All),
            ("64:ff9b::a9fe:a9fe", MetadataOverlap::All),
            ("2002:a9fe:a9fe::", MetadataOverlap::All),
            ("metadata.google.internal", MetadataOverlap::All),
            ("Metadata.Google.Internal.", MetadataOverlap::All),
            ("*.google.internal", MetadataOverlap::Partial),
            ("128.0.0.0/1", MetadataOverlap::Partial),
            ("168.63.0.0/16", MetadataOverlap::Partial),
            ("[fd00::]/8", MetadataOverlap::Partial),
            ("10.0.0.0/8", MetadataOverlap::None),
            ("10.0.0.1", MetadataOverlap::None),
            ("fd00::5", MetadataOverlap::None),
            ("example.com", MetadataOverlap::None),
            ("*.example.com", MetadataOverlap::None),
        ] {
            assert_eq!(overlap(&Pattern::parse(text).unwrap()), expected, "{text}");
        }
    }

    #[test]
    fn every_address_of_a_metadata_range_needs_the_word() {
        for text in RANGES.iter().chain(SINGLES) {
            let Ok(Pattern::Addresses(range)) = Pattern::parse(text) else { panic!("{text}") };
            assert!(is_metadata(range.first()), "{text}");
        }
    }
}
