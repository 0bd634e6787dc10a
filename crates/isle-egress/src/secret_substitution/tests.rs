use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::request::Parts;
use http::{Method, Request};

use super::*;

fn one(name: &str, value: &str, host: &str) -> SecretSubstitution {
    SecretSubstitution {
        placeholder: format!("isle-secret-{name}-{}", "0f".repeat(16)),
        value: Zeroizing::new(value.to_owned()),
        hosts: vec![Pattern::parse(host).unwrap()],
        places: Placements::parse(&["default", "header:x-keys", "header:x", "query:key"]).unwrap(),
    }
}

fn secrets() -> Vec<SecretSubstitution> {
    vec![one("key", "s3cr3t", "api.test"), one("other", "0th3r", "*.other.test")]
}

fn parts(uri: &str, fields: &[(&str, &str)]) -> Parts {
    let mut request = Request::builder().uri(uri);
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap().into_parts().0
}

fn field<'p>(parts: &'p Parts, name: &str) -> &'p str {
    parts.headers[name].to_str().unwrap()
}

fn placeholders(done: &Substituted) -> Vec<String> {
    done.used.iter().map(|used| used.placeholder.clone()).collect()
}

fn host(text: &str) -> Host {
    Host::parse(text).unwrap()
}

#[test]
fn a_placeholder_is_replaced_in_headers_to_its_hosts_only() {
    let secrets = secrets();
    let (key, other) = (&secrets[0].placeholder, &secrets[1].placeholder);
    let bearer = format!("Bearer {key}");
    let both = format!("{key},{other};{key}");
    let make = || parts("/v1/x", &[("authorization", &bearer), ("x-keys", &both), ("accept", "*/*")]);
    let mut request = make();
    let done = substitute(&mut request, &host("api.test"), &secrets).unwrap();
    assert_eq!(field(&request, "authorization"), "Bearer s3cr3t");
    assert_eq!(field(&request, "x-keys"), format!("s3cr3t,{other};s3cr3t"));
    assert_eq!(field(&request, "accept"), "*/*");
    assert!(request.headers["authorization"].is_sensitive() && !request.headers["accept"].is_sensitive());
    assert_eq!((placeholders(&done), &done.strayed), (vec![key.clone(); 2], &vec![other.clone()]));
    let mut request = make();
    let done = substitute(&mut request, &host("a.other.test"), &secrets).unwrap();
    assert_eq!(field(&request, "authorization"), bearer);
    assert_eq!(field(&request, "x-keys"), format!("{key},0th3r;{key}"));
    assert_eq!((placeholders(&done), &done.strayed), (vec![other.clone()], &vec![key.clone()]));
    for elsewhere in ["evil.test", "api.test.evil.test", "other.test", "127.0.0.1"] {
        let mut request = make();
        let done = substitute(&mut request, &host(elsewhere), &secrets).unwrap();
        assert_eq!((field(&request, "x-keys"), done.used.len()), (both.as_str(), 0), "{elsewhere}");
        assert_eq!(done.strayed.len(), 2, "{elsewhere}");
    }
}

#[test]
fn basic_authentication_is_decoded_and_encoded_again() {
    let secrets = secrets();
    let key = &secrets[0].placeholder;
    for (scheme, encoded) in [
        ("Basic", STANDARD.encode(format!("me:{key}"))),
        ("basic", STANDARD.encode(format!("me:{key}")).trim_end_matches('=').to_owned()),
    ] {
        let mut request = parts("/", &[("authorization", &format!("{scheme} {encoded}"))]);
        substitute(&mut request, &host("api.test"), &secrets).unwrap();
        assert_eq!(
            field(&request, "authorization"),
            format!("Basic {}", STANDARD.encode("me:s3cr3t")),
            "{scheme}"
        );
    }
    let untouched = format!("Basic {}", STANDARD.encode("me:you"));
    let mut request = parts("/", &[("authorization", &untouched)]);
    assert_eq!(substitute(&mut request, &host("api.test"), &secrets), Ok(Substituted::default()));
    assert_eq!(field(&request, "authorization"), untouched);
    let mut request = parts("/", &[("authorization", &format!("Basic {}", STANDARD.encode(key)))]);
    let done = substitute(&mut request, &host("evil.test"), &secrets).unwrap();
    assert_eq!(done.strayed, std::slice::from_ref(key));
    assert!(!field(&request, "authorization").contains("s3cr3t"));
    let mut request = parts("/", &[("authorization", "Basic !!!")]);
    assert_eq!(substitute(&mut request, &host("api.test"), &secrets), Ok(Substituted::default()));
}

#[test]
fn a_query_is_substituted_and_a_path_is_not() {
    let secrets = [one("key", "a b&c=d/ü%\r\n#", "api.test")];
    let key = &secrets[0].placeholder;
    let mut request = parts(&format!("https://api.test/a?a=1&key={key}&z"), &[]);
    substitute(&mut request, &host("api.test"), &secrets).unwrap();
    assert_eq!(request.uri.to_string(), "https://api.test/a?a=1&key=a%20b%26c%3Dd%2F%C3%BC%25%0D%0A%23&z");
    let mut request = parts(&format!("https://api.test/{key}"), &[]);
    let refused = substitute(&mut request, &host("api.test"), &secrets).unwrap_err();
    assert!(matches!(refused, SubstitutionError::Misplaced { remedy: None, .. }), "{refused}");
    let mut request = parts(&format!("/?key={key}"), &[]);
    assert_eq!(substitute(&mut request, &host("evil.test"), &secrets).unwrap().strayed.len(), 1);
    assert_eq!(request.uri.to_string(), format!("/?key={key}"));
}

#[test]
fn a_value_with_line_breaks_is_rejected_and_nothing_changes() {
    for value in ["a\r\nX-Admin: 1", "a\nb", "a\0b", "a\rb", "a\u{1b}b"] {
        let secrets = [one("good", "fine", "api.test"), one("bad", value, "api.test")];
        let (good, bad) = (&secrets[0].placeholder, &secrets[1].placeholder);
        let mut request = parts("/", &[("x-api-key", good), ("x-key", bad)]);
        let refused = substitute(&mut request, &host("api.test"), &secrets).unwrap_err();
        assert_eq!(refused, SubstitutionError::Unfit(bad.clone()), "{value:?}");
        assert!(!refused.to_string().contains(value));
        assert_eq!(field(&request, "x-api-key"), good, "{value:?}");
    }
    for value in ["a\r\nb", "a\0b"] {
        let secrets = [one("bad", value, "api.test")];
        let basic = format!("Basic {}", STANDARD.encode(format!("me:{}", secrets[0].placeholder)));
        let mut request = parts("/", &[("authorization", &basic)]);
        assert!(substitute(&mut request, &host("api.test"), &secrets).is_err(), "{value:?}");
    }
}

#[test]
fn a_value_that_looks_like_a_placeholder_is_not_replaced() {
    let inner = one("inner", "deep", "api.test");
    let secrets = [one("outer", &inner.placeholder, "api.test"), inner.clone()];
    let mut request = parts("/", &[("x", &format!("{} {}", secrets[0].placeholder, inner.placeholder))]);
    substitute(&mut request, &host("api.test"), &secrets).unwrap();
    assert_eq!(field(&request, "x"), format!("{} deep", inner.placeholder));
}

#[test]
fn a_credential_must_be_alone_and_names_are_not_allowed() {
    let secrets = secrets();
    let key = &secrets[0].placeholder;
    let bearer = format!("Bearer {key}");
    let basic = format!("Basic {}", STANDARD.encode(format!("me:{key}")));
    let refused = |request: &mut Parts| substitute(request, &host("api.test"), &secrets).unwrap_err();
    for value in [
        format!("OAuth oauth_callback=\"{key}\""),
        format!("Basic realm=\"{key}\""),
        format!("Basic {key}"),
        format!("Digest username={key}"),
        format!("realm={key}"),
        format!("Bearer {key} {key}"),
    ] {
        let mut request = parts("/", &[("authorization", &value)]);
        assert!(matches!(refused(&mut request), SubstitutionError::Misplaced { .. }), "{value}");
        assert_eq!(field(&request, "authorization"), value);
    }
    for two in [[bearer.as_str(), "Bearer x"], ["Basic bWU6eW91", &basic], [&bearer, &bearer]] {
        let mut request = parts("/", &[("authorization", two[0]), ("authorization", two[1])]);
        assert!(
            matches!(refused(&mut request), SubstitutionError::Misplaced { remedy: None, .. }),
            "{two:?}"
        );
    }
    let mut request = parts("/", &[(key, "x")]);
    assert!(matches!(refused(&mut request), SubstitutionError::Misplaced { remedy: None, .. }));
    for method in [key.clone(), key.to_ascii_uppercase(), format!("X{key}")] {
        let mut request = parts("/", &[("accept", "*/*")]);
        request.method = Method::from_bytes(method.as_bytes()).unwrap();
        assert!(
            matches!(refused(&mut request), SubstitutionError::Misplaced { remedy: None, .. }),
            "{method}"
        );
        assert!(substitute(&mut request, &host("evil.test"), &secrets).is_ok());
    }
    for value in [&bearer, &basic, key, &format!("token {key}")] {
        let mut request = parts("/", &[("authorization", value)]);
        assert_eq!(substitute(&mut request, &host("api.test"), &secrets).unwrap().used.len(), 1, "{value}");
    }
}

#[test]
fn a_method_override_must_allow_secrets() {
    let secrets = secrets();
    let bearer = format!("Bearer {}", secrets[0].placeholder);
    for name in [
        "x-http-method-override",
        "x_http_method_override",
        "x-original-method",
        "x-forwarded-method",
        "x-method",
        "x-envoy-original-method",
        "method",
        "x-http-verb",
        "x-override",
    ] {
        let mut request = parts("/", &[("authorization", &bearer), (name, "trace")]);
        let refused = substitute(&mut request, &host("api.test"), &secrets).unwrap_err();
        assert!(matches!(refused, SubstitutionError::Method { .. }), "{name}: {refused}");
        let mut request = parts("/", &[("authorization", &bearer), (name, "patch")]);
        assert!(substitute(&mut request, &host("api.test"), &secrets).is_ok(), "{name}");
    }
}

#[test]
fn the_host_header_is_never_substituted() {
    let secrets = [one("key", "evil.test", "api.test")];
    let mut request = parts("/", &[("host", &secrets[0].placeholder)]);
    assert!(substitute(&mut request, &host("api.test"), &secrets).is_err());
    assert_eq!(field(&request, "host"), secrets[0].placeholder);
}

#[test]
fn placeholders_are_found_in_a_head_as_it_was_sent() {
    let secrets = secrets();
    let key = &secrets[0].placeholder;
    let basic = STANDARD.encode(format!("me:{key}"));
    for head in [
        format!("GET /?k={key} HTTP/1.1\r\n\r\n"),
        format!("GET / HTTP/1.1\r\nAuthorization: Basic {basic}\r\n\r\n"),
    ] {
        let found: Vec<_> =
            placeholders_in(head.as_bytes(), &secrets).iter().map(|swap| &swap.placeholder).collect();
        assert_eq!(found, [key], "{head}");
    }
    assert!(placeholders_in(b"GET / HTTP/1.1\r\nAuthorization: Basic bWU6eW91\r\n\r\n", &secrets).is_empty());
}

#[test]
fn a_secret_is_not_shown() {
    assert!(!format!("{:?}", secrets()).contains("s3cr3t"));
}
