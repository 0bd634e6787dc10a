//! What grants decide.

use std::time::Duration;

use super::*;

fn policy(grants: &[&str]) -> Policy {
    let mut policy = Policy::default();
    for (id, text) in grants.iter().enumerate() {
        policy.add(id as u64, Grant::parse(text).unwrap(), None, Instant::now());
    }
    policy
}

fn ask(policy: &Policy, target: &str) -> Result<Protocol, Reason> {
    let target = Target::parse(target, Some(443)).unwrap();
    policy.decide(&target, Instant::now()).map(|granted| granted.protocol).map_err(|denial| denial.reason)
}

#[test]
fn a_grant_of_a_run_applies_to_that_run_only() {
    let (one, two) = (RunKey::new("run_1"), RunKey::new("run_2"));
    let (mut policy, now) = (policy(&["all.example:443"]), Instant::now());
    policy.add(7, Grant::parse("own.example:443").unwrap(), Some(one.clone()), now);
    policy.add(8, Grant::parse("10.0.0.5:443").unwrap(), Some(one.clone()), now);
    policy.add(9, Grant::parse("https://some.example/v1/* GET").unwrap(), Some(one.clone()), now);
    let address: IpAddr = "10.0.0.5".parse().unwrap();
    for (by, own) in [(Some(&one), true), (Some(&two), false), (None, false)] {
        let target = |text: &str| Target::parse(text, Some(443)).unwrap().by(by.cloned());
        assert!(policy.decide(&target("all.example"), now).is_ok(), "{by:?}");
        for host in ["own.example", "10.0.0.5", "some.example"] {
            assert_eq!(policy.decide(&target(host), now).is_ok(), own, "{host} {by:?}");
        }
        assert_eq!(policy.still(&target("own.example"), 7, now).is_ok(), own, "{by:?}");
        let name = Name::parse("own.example").unwrap();
        assert_eq!(policy.ports_of(&name, by, now).is_empty(), !own, "{by:?}");
        assert_eq!(policy.grants_address(address, 443, by, now), own, "{by:?}");
        assert_eq!(policy.still_grants_address(address, 443, 8, by, now), own, "{by:?}");
        let target = target("some.example");
        let line = RequestLine {
            target: &target,
            protocol: Protocol::Tls,
            method: "GET",
            path: "/v1/x",
            override_header: None,
        };
        assert_eq!(policy.decide_request(line, Some(9), now).is_ok(), own, "{by:?}");
    }
    policy.remove(7);
    let target = Target::parse("own.example:443", None).unwrap().by(Some(one));
    assert!(policy.still(&target, 7, now).is_err());
}

#[test]
fn an_empty_policy_denies_everything() {
    let policy = Policy::default();
    for target in ["example.com", "1.1.1.1", "localhost", "[::1]:80"] {
        assert_eq!(ask(&policy, target), Err(Reason::NotGranted), "{target}");
    }
}

#[test]
fn a_grant_covers_its_host_and_ports_only() {
    let policy = policy(&["example.com:443", "*.wide.example:22", "10.0.0.0/8:5432"]);
    for (target, answer) in [
        ("example.com", Ok(Protocol::Tls)),
        ("EXAMPLE.com.:443", Ok(Protocol::Tls)),
        ("example.com:80", Err(Reason::PortNotGranted)),
        ("a.example.com", Err(Reason::NotGranted)),
        ("badexample.com", Err(Reason::NotGranted)),
        ("example.com.evil.example", Err(Reason::NotGranted)),
        ("a.wide.example:22", Ok(Protocol::Tcp)),
        ("b.a.wide.example:22", Ok(Protocol::Tcp)),
        ("wide.example:22", Err(Reason::NotGranted)),
        ("10.1.2.3:5432", Ok(Protocol::Tcp)),
        ("[::ffff:10.1.2.3]:5432", Ok(Protocol::Tcp)),
        ("11.1.2.3:5432", Err(Reason::NotGranted)),
    ] {
        assert_eq!(ask(&policy, target), answer, "{target}");
    }
}

#[test]
fn requests_are_granted_one_by_one_and_add_up() {
    let policy = policy(&[
        "https://api.example/v1/* GET",
        "https://api.example/v2/* POST",
        "http://api.example/a",
        "https://wide.example/v1/* GET",
        "wide.example:443",
    ]);
    let ask = |target: &str, protocol, method, path| {
        let target = Target::parse(target, None).unwrap();
        let line = RequestLine { target: &target, protocol, method, path, override_header: None };
        policy.decide_request(line, None, Instant::now())
    };
    let tls = Protocol::Tls;
    assert_eq!(ask("api.example:443", tls, "GET", "/v1/a"), Ok(0));
    assert_eq!(ask("api.example:443", tls, "POST", "/v2/a"), Ok(1));
    assert_eq!(ask("api.example:80", Protocol::Http, "PUT", "/a"), Ok(2));
    assert_eq!(ask("wide.example:443", tls, "DELETE", "/v9/a"), Ok(4));
    let denial = ask("api.example:443", tls, "POST", "/v1/a").unwrap_err();
    assert_eq!(denial.reason, Reason::RequestNotGranted);
    assert_eq!(denial.rule.as_deref(), Some("https://api.example/v1/* GET"));
    assert_eq!(denial.wanted.as_deref(), Some("https://api.example/v1/a POST"));
    for (method, path, reason) in [
        ("GET", "/v1/../x", Reason::AmbiguousPath),
        ("get", "/v1/a", Reason::RequestNotGranted),
        ("GET", "/v3/*", Reason::RequestNotGranted),
        ("A-B", "/v1/a", Reason::RequestNotGranted),
    ] {
        let denial = ask("api.example:443", tls, method, path).unwrap_err();
        assert_eq!((denial.reason, denial.wanted), (reason, None), "{method} {path}");
    }
    let limited = |text: &str| {
        let target = Target::parse(text, None).unwrap();
        policy.decide(&target, Instant::now()).unwrap().limited
    };
    assert!(limited("api.example:443") && !limited("wide.example:443") && policy.opens_tls(Instant::now()));
}

#[test]
fn an_override_header_needs_a_grant_of_all_requests() {
    let target = Target::parse("api.example:443", None).unwrap();
    let ask = |grants: &[&str], path| {
        let override_header = Some("x-original-url");
        let protocol = Protocol::Tls;
        let line = RequestLine { target: &target, protocol, method: "GET", path, override_header };
        policy(grants).decide_request(line, None, Instant::now()).map_err(|denial| denial.reason)
    };
    for limited in ["https://api.example/v1/*", "https://api.example/* GET", "https://api.example/v1/a GET"] {
        assert_eq!(ask(&[limited], "/v1/a"), Err(Reason::OverrideHeader), "{limited}");
        assert_eq!(ask(&[limited, "api.example:443"], "/v1/a"), Ok(1), "{limited}");
    }
    // On a grant of methods every path goes, but none that decodes to what no path has.
    for path in ["/a%0d%0ab", "/%00", "/%u0041", "/%c0%af"] {
        assert_eq!(ask(&["https://api.example/* GET"], path), Err(Reason::AmbiguousPath), "{path}");
    }
    assert_eq!(ask(&["https://api.example/v1/*"], "/v2/a"), Err(Reason::RequestNotGranted));
}

#[test]
fn metadata_needs_a_grant_with_the_word() {
    let metadata = ["169.254.169.254", "[fd00:ec2::254]", "100.100.100.200", "168.63.129.16", "169.254.1.1"];
    let wide = ["128.0.0.0/1:80", "100.0.0.0/8:80", "[fd00::]/8:80", "168.63.129.0/24:80"];
    for address in metadata {
        let target = format!("{address}:80");
        assert_eq!(ask(&policy(&wide), &target), Err(Reason::MetadataAddress), "{target}");
        assert_eq!(ask(&policy(&[&format!("{target}/metadata")]), &target), Ok(Protocol::Tcp), "{target}");
        let address = address.trim_matches(['[', ']']).parse().unwrap();
        let opens = |grants: &[&str]| policy(grants).grants_address(address, 80, None, Instant::now());
        assert!(!opens(&wide) && opens(&[&format!("{target}/metadata")]), "{target}");
    }
    assert_eq!(ask(&policy(&wide), "168.63.129.17:80"), Ok(Protocol::Tcp));
    assert_eq!(ask(&policy(&["169.254.0.0/16:80/metadata"]), "169.254.169.254:80"), Ok(Protocol::Tcp));
    // A name that clouds give to it is none of a wildcard's, and is granted by itself.
    let name = "metadata.google.internal:80";
    assert_eq!(ask(&policy(&["*.google.internal:80"]), name), Err(Reason::MetadataAddress));
    assert_eq!(ask(&policy(&["metadata.google.internal:80/metadata"]), name), Ok(Protocol::Http));
}

#[test]
fn several_grants_of_one_host_add_up() {
    let policy = policy(&["example.com:443", "example.com:8443/tls", "*.example.com:22"]);
    assert_eq!(ask(&policy, "example.com:8443"), Ok(Protocol::Tls));
    assert_eq!(policy.ports_of(&Name::parse("example.com").unwrap(), None, Instant::now()), [443, 8443]);
    assert_eq!(policy.ports_of(&Name::parse("a.example.com").unwrap(), None, Instant::now()), [22]);
    assert!(policy.ports_of(&Name::parse("other.example").unwrap(), None, Instant::now()).is_empty());
}

#[test]
fn an_expired_grant_grants_nothing() {
    let mut policy = Policy::default();
    let now = Instant::now();
    let mut grant = Grant::parse("example.com:443").unwrap();
    grant.limits.lifetime = Some(Duration::from_secs(5));
    policy.add(1, grant, None, now);
    let target = Target::parse("example.com:443", None).unwrap();
    assert!(policy.decide(&target, now + Duration::from_secs(4)).is_ok());
    assert_eq!(policy.decide(&target, now + Duration::from_secs(5)).unwrap_err().reason, Reason::NotGranted);
    assert_eq!(policy.next_expiry(now), Some(now + Duration::from_secs(5)));
}

#[test]
fn a_used_up_byte_limit_is_reported() {
    let mut policy = policy(&["example.com:443"]);
    policy.exhaust(0);
    assert_eq!(ask(&policy, "example.com"), Err(Reason::Exhausted));
    assert_eq!(ask(&policy, "example.com:80"), Err(Reason::PortNotGranted));
}

#[test]
fn a_grant_of_one_connection_allows_no_second() {
    let mut policy = Policy::default();
    let now = Instant::now();
    let mut grant = Grant::parse("example.com:443").unwrap();
    grant.limits.connections = Some(1);
    grant.limits.lifetime = Some(Duration::from_secs(5));
    policy.add(1, grant, None, now);
    let target = Target::parse("example.com:443", None).unwrap();
    let name = Name::parse("example.com").unwrap();
    assert!(policy.decide(&target, now).is_ok());
    policy.connected(1);
    assert_eq!(policy.decide(&target, now).unwrap_err().reason, Reason::NotGranted);
    assert!(policy.ports_of(&name, None, now).is_empty());
    // What it allowed continues, even after its expiry.
    assert!(policy.still(&target, 1, now + Duration::from_secs(60)).is_ok());
    assert!(policy.still(&target, 2, now).is_err(), "of another grant");
    policy.disconnected(1);
    assert!(policy.held().is_empty());
}

#[test]
fn a_grant_of_one_request_allows_it_and_no_other() {
    let now = Instant::now();
    let target = Target::parse("api.example:443", None).unwrap();
    let line = |method, path| RequestLine {
        target: &target,
        protocol: Protocol::Tls,
        method,
        path,
        override_header: None,
    };
    let mut policy = policy(&["https://api.example/v1/* GET"]);
    let mut once = Grant::parse("https://api.example/v1/a POST").unwrap();
    once.limits.requests = Some(1);
    once.limits.lifetime = Some(Duration::from_secs(5));
    policy.add(7, once.clone(), None, now);
    // What is granted anyway does not use it up.
    assert_eq!(policy.decide_request(line("GET", "/v1/a"), Some(0), now), Ok(0));
    assert!(!policy.requested(0));
    assert_eq!(policy.decide_request(line("POST", "/v1/a"), Some(0), now), Ok(7));
    assert!(policy.decide_request(line("POST", "/v1/b"), Some(0), now).is_err());
    assert!(policy.requested(7));
    let denial = policy.decide_request(line("POST", "/v1/a"), Some(0), now).unwrap_err();
    assert_eq!(denial.reason, Reason::RequestNotGranted);
    // A connection by that grant alone continues with what was allowed.
    policy.remove(0);
    policy.add(8, once, None, now);
    policy.connected(8);
    assert!(!policy.requested(8));
    assert!(policy.decide_request(line("POST", "/v1/a"), Some(8), now).is_err());
    assert!(policy.still(&target, 8, now + Duration::from_secs(60)).is_ok());
    assert!(policy.decide(&target, now).is_err());
    policy.disconnected(8);
    assert!(policy.held().is_empty());
}

#[test]
fn a_grant_of_one_connection_allows_no_request_on_another() {
    let mut policy = policy(&["https://api.example/v1/* GET"]);
    let mut once = Grant::parse("api.example:443/tls").unwrap();
    once.limits.connections = Some(1);
    policy.add(7, once, None, Instant::now());
    policy.connected(7);
    let target = Target::parse("api.example:443", None).unwrap();
    let line = RequestLine {
        target: &target,
        protocol: Protocol::Tls,
        method: "POST",
        path: "/v2/a",
        override_header: None,
    };
    assert_eq!(policy.decide_request(line, Some(7), Instant::now()), Ok(7));
    assert!(policy.decide_request(line, Some(0), Instant::now()).is_err());
}
