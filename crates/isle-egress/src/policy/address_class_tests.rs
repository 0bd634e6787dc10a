use super::*;

#[test]
fn only_public_addresses_are_public() {
    for text in ["1.1.1.1", "93.184.216.34", "2606:4700:4700::1111", "2a00:1450::1", "::ffff:1.1.1.1"] {
        assert_eq!(classify(text.parse().unwrap()), AddressClass::Public, "{text}");
    }
    for (text, class) in [
        ("127.0.0.1", AddressClass::Loopback),
        ("127.255.255.254", AddressClass::Loopback),
        ("::1", AddressClass::Loopback),
        ("::ffff:127.0.0.1", AddressClass::Loopback),
        ("::127.0.0.1", AddressClass::Loopback),
        ("64:ff9b::127.0.0.1", AddressClass::Loopback),
        ("2002:7f00:1::", AddressClass::Loopback),
        ("10.1.2.3", AddressClass::Private),
        ("172.16.0.1", AddressClass::Private),
        ("172.31.255.255", AddressClass::Private),
        ("192.168.0.1", AddressClass::Private),
        ("100.64.0.1", AddressClass::Private),
        ("fd00::1", AddressClass::Private),
        ("64:ff9b::10.0.0.1", AddressClass::Private),
        ("::ffff:0:10.0.0.1", AddressClass::Private),
        ("169.254.1.1", AddressClass::LinkLocal),
        ("fe80::1", AddressClass::LinkLocal),
        ("169.254.169.254", AddressClass::Metadata),
        ("64:ff9b::169.254.169.254", AddressClass::Metadata),
        ("100.100.100.200", AddressClass::Metadata),
        ("fd00:ec2::254", AddressClass::Metadata),
        ("fd00:ec2::23", AddressClass::Metadata),
        ("fd20:ce::254", AddressClass::Metadata),
        ("169.254.170.2", AddressClass::Metadata),
        ("168.63.129.16", AddressClass::Metadata),
        ("192.0.0.192", AddressClass::Metadata),
        ("::ffff:169.254.169.254", AddressClass::Metadata),
        ("::169.254.169.254", AddressClass::Metadata),
        ("::ffff:0:169.254.169.254", AddressClass::Metadata),
        ("2002:a9fe:a9fe::", AddressClass::Metadata),
        ("64:ff9b:1::169.254.169.254", AddressClass::Metadata),
        ("2001:67c:2e8::a9fe:a9fe", AddressClass::Metadata),
        ("fe80::a9fe:a9fe", AddressClass::Metadata),
        ("2001::5601:5601", AddressClass::Metadata),
        ("2001:0:a9fe:a9fe::1", AddressClass::Metadata),
        ("2001:0:a83f:8110::1", AddressClass::Metadata),
        ("2001:0:a9fe:101:0:0:f5ff:fffe", AddressClass::LinkLocal),
        ("2001:0:101:101:0:0:f5ff:fffe", AddressClass::Private),
        ("2001:0:a00:1:0:0:fefe:fefe", AddressClass::Private),
        ("fe80::5efe:168.63.129.16", AddressClass::Metadata),
        ("2a00::200:5efe:100.100.100.200", AddressClass::Metadata),
        ("224.0.0.1", AddressClass::Multicast),
        ("ff02::1", AddressClass::Multicast),
        ("0.0.0.0", AddressClass::Reserved),
        ("0.1.2.3", AddressClass::Reserved),
        ("255.255.255.255", AddressClass::Reserved),
        ("198.18.0.1", AddressClass::Reserved),
        ("192.0.2.1", AddressClass::Reserved),
        ("::", AddressClass::Reserved),
        ("64:ff9b::1.1.1.1", AddressClass::Reserved),
        ("64:ff9b:1::1", AddressClass::Reserved),
        ("2001::1", AddressClass::Reserved),
        ("2001:db8::1", AddressClass::Reserved),
        ("2002:101:101::", AddressClass::Reserved),
        ("4000::1", AddressClass::Reserved),
        ("fec0::1", AddressClass::Private),
    ] {
        assert_eq!(classify(text.parse().unwrap()), class, "{text}");
    }
    assert_eq!(classify("172.32.0.1".parse().unwrap()), AddressClass::Public);
    assert_eq!(classify("100.128.0.1".parse().unwrap()), AddressClass::Public);
}
