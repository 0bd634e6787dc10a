use super::*;

fn judge(addresses: &[&str], opened: &[&str]) -> Result<Vec<String>, Reason> {
    let target = Target::parse("api.example:443", None).unwrap();
    let addresses: Vec<IpAddr> = addresses.iter().map(|text| text.parse().unwrap()).collect();
    let opened: Vec<IpAddr> = opened.iter().map(|text| text.parse().unwrap()).collect();
    check(&target, &addresses, |address| opened.contains(&address))
        .map(|allowed| allowed.iter().map(ToString::to_string).collect())
        .map_err(|denial| denial.reason)
}

#[test]
fn a_grant_of_a_name_covers_public_addresses_only() {
    assert_eq!(judge(&["1.1.1.1", "2606:4700::1"], &[]).unwrap(), ["1.1.1.1", "2606:4700::1"]);
    for inside in ["127.0.0.1", "::1", "::ffff:10.0.0.1", "64:ff9b::10.0.0.1", "0.0.0.0"] {
        assert_eq!(judge(&[inside], &[]), Err(Reason::ForbiddenAddress), "{inside}");
        assert_eq!(judge(&["1.1.1.1", inside], &[]), Err(Reason::ForbiddenAddress), "{inside}");
    }
    for metadata in ["169.254.169.254", "169.254.7.7", "fe80::1", "64:ff9b::169.254.169.254", "168.63.129.16"]
    {
        assert_eq!(judge(&["1.1.1.1", metadata], &[]), Err(Reason::MetadataAddress), "{metadata}");
    }
    assert_eq!(judge(&["127.0.0.1"], &["127.0.0.1"]).unwrap(), ["127.0.0.1"]);
    assert_eq!(judge(&["::ffff:127.0.0.1"], &["127.0.0.1"]).unwrap(), ["127.0.0.1"]);
    assert_eq!(judge(&["127.0.0.2"], &["127.0.0.1"]), Err(Reason::ForbiddenAddress));
    assert_eq!(judge(&[], &[]), Err(Reason::Unresolvable));
}
