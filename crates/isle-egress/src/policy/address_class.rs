//! The class of an address: public, loopback, private and so on. A grant of a name covers public addresses
//! only; every other address has to be granted as an address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::policy::host::unmapped;

/// The class of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AddressClass {
    /// An internet address.
    Public,
    /// This machine.
    Loopback,
    /// A private network.
    Private,
    /// Link-local; clouds have services there, too.
    LinkLocal,
    /// A cloud metadata service, which serves the credentials of the machine.
    Metadata,
    /// A multicast group.
    Multicast,
    /// Unspecified, broadcast, or reserved for documentation, tests and translation.
    Reserved,
}

impl AddressClass {
    /// The name in messages.
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

/// Classifies an address. One that embeds an IPv4 address is at most as public as that.
#[must_use]
pub fn classify(address: IpAddr) -> AddressClass {
    match unmapped(address) {
        IpAddr::V4(address) => classify_v4(address),
        IpAddr::V6(address) => classify_v6(address),
    }
}

fn classify_v4(address: Ipv4Addr) -> AddressClass {
    let octets = address.octets();
    match octets {
        // Most clouds; ECS and EKS; Tencent; Scaleway; Alibaba; Azure; Oracle.
        [169, 254, 169, 254]
        | [169, 254, 170, 2 | 23]
        | [169, 254, 0, 23]
        | [169, 254, 42, 42]
        | [100, 100, 100, 200]
        | [168, 63, 129, 16]
        | [192, 0, 0, 192] => AddressClass::Metadata,
        [127, ..] => AddressClass::Loopback,
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] | [100, 64..=127, ..] => AddressClass::Private,
        [169, 254, ..] => AddressClass::LinkLocal,
        [224..=239, ..] => AddressClass::Multicast,
        // This network, protocol assignments, documentation, 6to4 relays, benchmarks, future use.
        [0 | 240..=255, ..]
        | [192, 0, 0 | 2, _]
        | [192, 88, 99, _]
        | [198, 18..=19, ..]
        | [198, 51, 100, _]
        | [203, 0, 113, _] => AddressClass::Reserved,
        _ => AddressClass::Public,
    }
}

fn classify_v6(address: Ipv6Addr) -> AddressClass {
    let segments = address.segments();
    let inner = |high: u16, low: u16| {
        let [a, b] = high.to_be_bytes();
        let [c, d] = low.to_be_bytes();
        match classify_v4(Ipv4Addr::new(a, b, c, d)) {
            // Dialing it would reach an IPv4 address through a translator that is not granted.
            AddressClass::Public => AddressClass::Reserved,
            other => other,
        }
    };
    match segments {
        // Behind any translation prefix.
        [.., 0xa9fe, 0xa9fe] => AddressClass::Metadata,
        [0, 0, 0, 0, 0, 0, 0, 1] => AddressClass::Loopback,
        [0, 0, 0, 0, 0, 0, 0, 0] => AddressClass::Reserved,
        // IPv4-compatible, IPv4-translated.
        [0, 0, 0, 0, 0, 0, high, low] | [0, 0, 0, 0, 0xffff, 0, high, low] => inner(high, low),
        // NAT64, 6to4, Teredo.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => inner(high, low),
        // Teredo has the address of its server, and that of its client inverted at the end; ISATAP has an
        // IPv4 address at the end, after any prefix.
        [0x2001, 0, server_high, server_low, .., high, low] => {
            let (server, client) = (inner(server_high, server_low), inner(!high, !low));
            let of_concern =
                |class: AddressClass| matches!(class, AddressClass::Metadata | AddressClass::LinkLocal);
            if of_concern(client) || !of_concern(server) && client != AddressClass::Reserved {
                client
            } else {
                server
            }
        }
        [.., 0 | 0x0200, 0x5efe, high, low] => inner(high, low),
        // Local-use NAT64.
        [0x64, 0xff9b, 1, .., high, low] => inner(high, low),
        [0x64, 0xff9b, ..] | [0x2001, 0..=0x01ff, ..] => AddressClass::Reserved,
        // Amazon, Google, Scaleway.
        [0xfd00, 0x0ec2, ..] | [0xfd20, 0x00ce, ..] | [0xfd00, 0x0042, 0, 0, 0, 0, 0, 0x0042] => {
            AddressClass::Metadata
        }
        [0xfc00..=0xfdff, ..] => AddressClass::Private,
        [0xfe80..=0xfebf, ..] => AddressClass::LinkLocal,
        // Site-local: deprecated, still routed by some.
        [0xfec0..=0xfeff, ..] => AddressClass::Private,
        [0xff00..=0xffff, ..] => AddressClass::Multicast,
        // Documentation.
        [0x2001, 0x0db8, ..] | [0x3fff, ..] => AddressClass::Reserved,
        [0x2000..=0x3fff, ..] => AddressClass::Public,
        _ => AddressClass::Reserved,
    }
}

#[cfg(test)]
#[path = "address_class_tests.rs"]
mod tests;
