use super::*;

fn allows(path: &str, methods: Option<&str>, request: (&str, &str)) -> bool {
    RequestRules::parse(path, methods).unwrap().allow(request.0, request.1)
}

#[test]
fn a_final_wildcard_matches_anything_and_others_one_segment() {
    for (pattern, path, fits) in [
        ("", "/anything/at/all", true),
        ("/*", "/anything", true),
        ("/v1/*", "/v1/", true),
        ("/v1/*", "/v1/a/b", true),
        ("/v1/*", "/v1", false),
        ("/v1/*", "/v2/a", false),
        ("/v1/*", "/V1/a", false),
        ("/v1", "/v1", true),
        ("/v1", "/v1/", false),
        ("/repos/*/issues", "/repos/me/issues", true),
        ("/repos/*/issues", "/repos/me/you/issues", false),
        ("/repos/*/issues/*", "/repos/me/issues/1/x", true),
        ("/repos/*/issues", "/repos//issues", false),
        ("/a*b/c", "/axbxb/c", true),
        ("/a*b/c", "/ax/b/c", false),
    ] {
        assert_eq!(allows(pattern, None, ("GET", path)), fits, "{pattern} {path}");
    }
}

#[test]
fn a_path_that_servers_interpret_differently_matches_nothing() {
    for path in [
        "/v1/../admin",
        "/v1/./a",
        "/v1/..",
        "/v1/%2e%2e/admin",
        "/v1/%2E./admin",
        "/v1/..%2fadmin",
        "/v1/..;/admin",
        "/v1/;x/../admin",
        "/v1//admin",
        "//v1/a",
        "/v1/a\\..\\b",
        "/v1/%5c..",
        "/v1/%252e%252e/admin",
        "/v1/a%00",
        "v1/a",
        "*",
        "",
    ] {
        assert!(!allows("/v1/*", None, ("GET", path)), "{path}");
    }
    // Where every path is granted, all of them are.
    assert!(allows("", Some("GET"), ("GET", "/v1/../admin")));
}

#[test]
fn methods_are_compared_as_a_whole() {
    assert!(allows("/a", Some("get,POST"), ("GET", "/a")));
    assert!(!allows("/a", Some("GET,POST"), ("get", "/a")));
    assert!(!allows("/a", Some("GET,POST"), ("DELETE", "/a")));
    for methods in ["", "GET,", "G ET", "CONNECT", "trace", "GET;POST", "*"] {
        assert_eq!(RequestRules::parse("", Some(methods)), Err(RequestRulesError::Method), "{methods}");
    }
}

#[test]
fn only_plain_paths_can_be_granted() {
    for path in ["v1", "/a/../b", "/a//b", "/a?b", "/a#b", "/a b", "/**", "/a%2fb", "/ü"] {
        assert_eq!(RequestRules::parse(path, None), Err(RequestRulesError::Path), "{path}");
    }
    for (path, methods, form) in
        [("", Some("POST,GET"), "/* GET,POST"), ("/v1/*", None, "/v1/*"), ("/", Some("GET"), "/ GET")]
    {
        assert_eq!(RequestRules::parse(path, methods).unwrap().to_string(), form);
    }
}
