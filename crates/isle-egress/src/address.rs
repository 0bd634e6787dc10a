//! What kind of address a name led to. Only public ones may be dialed on the word of a name; every
//! other has to be granted as an address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::host::unmapped;

/// The kind of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// Anybody's internet address.
    Public,
    /// This machine.
    Loopback,
    /// A private network.
    Private,
    /// The neighbours on a wire, cloud metadata among them.
    LinkLocal,
    /// Where clouds tell machines their secrets.
    Metadata,
    /// Many at once.
    Multicast,
    /// Unspecified, broadcast, or set apart for documentation, tests and translation.
    Reserved,
}

impl Class {
    /// A word for people.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Public => "public",
            Self::Loopback => "loopback",
            Self::Private => "private",
            Self::LinkLocal => "link-local",
            Self::Metadata => "cloud metadata",
            Self::Multicast => "multicast",
            Self::Reserved => "reserved",
        }
    }
}

/// The kind of an address. One that carries an IPv4 address inside is at most as public as that.
#[must_use]
pub fn classify(address: IpAddr) -> Class {
    match unmapped(address) {
        IpAddr::V4(address) => four(address),
        IpAddr::V6(address) => six(address),
    }
}

fn four(address: Ipv4Addr) -> Class {
    let octets = address.octets();
    match octets {
        [169, 254, 169, 254] | [100, 100, 100, 200] | [168, 63, 129, 16] | [192, 0, 0, 192] => {
            Class::Metadata
        }
        [127, ..] => Class::Loopback,
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] | [100, 64..=127, ..] => Class::Private,
        [169, 254, ..] => Class::LinkLocal,
        [224..=239, ..] => Class::Multicast,
        // This network, protocol assignments, documentation, 6to4 relays, benchmarks, future use.
        [0 | 240..=255, ..]
        | [192, 0, 0 | 2, _]
        | [192, 88, 99, _]
        | [198, 18..=19, ..]
        | [198, 51, 100, _]
        | [203, 0, 113, _] => Class::Reserved,
        _ => Class::Public,
    }
}

fn six(address: Ipv6Addr) -> Class {
    let segments = address.segments();
    let inner = |high: u16, low: u16| {
        let [a, b] = high.to_be_bytes();
        let [c, d] = low.to_be_bytes();
        match four(Ipv4Addr::new(a, b, c, d)) {
            // Who dials it reaches an IPv4 address through a translator nobody granted.
            Class::Public => Class::Reserved,
            other => other,
        }
    };
    match segments {
        [0, 0, 0, 0, 0, 0, 0, 1] => Class::Loopback,
        [0, 0, 0, 0, 0, 0, 0, 0] => Class::Reserved,
        // IPv4-compatible, IPv4-translated.
        [0, 0, 0, 0, 0, 0, high, low] | [0, 0, 0, 0, 0xffff, 0, high, low] => inner(high, low),
        // NAT64, 6to4, Teredo.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => inner(high, low),
        [0x64, 0xff9b, ..] | [0x2001, 0..=0x01ff, ..] => Class::Reserved,
        [0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x0254] => Class::Metadata,
        [0xfc00..=0xfdff, ..] => Class::Private,
        [0xfe80..=0xfebf, ..] => Class::LinkLocal,
        // Site-local, long given up and still routed by some.
        [0xfec0..=0xfeff, ..] => Class::Private,
        [0xff00..=0xffff, ..] => Class::Multicast,
        // Documentation.
        [0x2001, 0x0db8, ..] | [0x3fff, ..] => Class::Reserved,
        [0x2000..=0x3fff, ..] => Class::Public,
        _ => Class::Reserved,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_public_addresses_are_public() {
        for text in ["1.1.1.1", "93.184.216.34", "2606:4700:4700::1111", "2a00:1450::1", "::ffff:1.1.1.1"] {
            assert_eq!(classify(text.parse().unwrap()), Class::Public, "{text}");
        }
        for (text, class) in [
            ("127.0.0.1", Class::Loopback),
            ("127.255.255.254", Class::Loopback),
            ("::1", Class::Loopback),
            ("::ffff:127.0.0.1", Class::Loopback),
            ("::127.0.0.1", Class::Loopback),
            ("64:ff9b::127.0.0.1", Class::Loopback),
            ("2002:7f00:1::", Class::Loopback),
            ("10.1.2.3", Class::Private),
            ("172.16.0.1", Class::Private),
            ("172.31.255.255", Class::Private),
            ("192.168.0.1", Class::Private),
            ("100.64.0.1", Class::Private),
            ("fd00::1", Class::Private),
            ("64:ff9b::10.0.0.1", Class::Private),
            ("::ffff:0:10.0.0.1", Class::Private),
            ("169.254.1.1", Class::LinkLocal),
            ("fe80::1", Class::LinkLocal),
            ("169.254.169.254", Class::Metadata),
            ("64:ff9b::169.254.169.254", Class::Metadata),
            ("100.100.100.200", Class::Metadata),
            ("fd00:ec2::254", Class::Metadata),
            ("224.0.0.1", Class::Multicast),
            ("ff02::1", Class::Multicast),
            ("0.0.0.0", Class::Reserved),
            ("0.1.2.3", Class::Reserved),
            ("255.255.255.255", Class::Reserved),
            ("198.18.0.1", Class::Reserved),
            ("192.0.2.1", Class::Reserved),
            ("::", Class::Reserved),
            ("64:ff9b::1.1.1.1", Class::Reserved),
            ("64:ff9b:1::1", Class::Reserved),
            ("2001::1", Class::Reserved),
            ("2001:db8::1", Class::Reserved),
            ("2002:101:101::", Class::Reserved),
            ("4000::1", Class::Reserved),
            ("fec0::1", Class::Private),
        ] {
            assert_eq!(classify(text.parse().unwrap()), class, "{text}");
        }
        assert_eq!(classify("172.32.0.1".parse().unwrap()), Class::Public);
        assert_eq!(classify("100.128.0.1".parse().unwrap()), Class::Public);
    }
}
