use super::*;

#[test]
fn placements_are_parsed_once_and_shown_as_they_are_parsed() {
    for text in ["authorization", "api-key", "basic-user", "header:x-own", "query:key", "method:PROPFIND"] {
        assert_eq!(text.parse::<Placement>().unwrap().to_string(), text);
    }
    assert_eq!("header:Cookie".parse::<Placement>().unwrap().to_string(), "header:cookie");
    for wrong in [
        "",
        "header:",
        "header:a b",
        "query:",
        "query:a=b",
        "query:a&b",
        "body",
        "path",
        "header",
        "method:",
        "method:A B",
        "x:y",
    ] {
        assert_eq!(wrong.parse::<Placement>(), Err(PlacementError::Unknown(wrong.to_owned())));
    }
    for never in ["header:Host", "header:proxy-authorization", "header:Transfer-Encoding", "header:range"] {
        assert!(matches!(never.parse::<Placement>(), Err(PlacementError::Header(_))), "{never}");
    }
    for method in ["method:TRACE", "method:track", "method:Debug", "method:CONNECT"] {
        assert!(matches!(method.parse::<Placement>(), Err(PlacementError::Method(_))), "{method}");
    }
    let all = Placements::parse(&["default", "query:key", "api-key"]).unwrap();
    assert_eq!(all.texts(), ["authorization", "api-key", "query:key"]);
    let many: Vec<String> = (0..20).map(|number| format!("query:{number}")).collect();
    assert_eq!(Placements::parse(&many), Err(PlacementError::TooMany));
}

#[test]
fn a_credential_is_one_and_nothing_else() {
    for good in ["X", "Bearer X", "token X", "Token token=\"X\"", "Token token=X", "ApiKey  X", "Bot X "] {
        assert!(is_credential(good.as_bytes(), b"X"), "{good}");
    }
    for bad in [
        "",
        "Bearer",
        "BearerX",
        "Bearer X Y",
        "X,X",
        "Bearer \"X\"",
        "Digest username=\"a\", nonce=\"X\"",
        "<b>X",
        "Bearer <b> X",
        "a=\"X",
        "Token token= X",
        "key=X",
        "Basic X",
        "Basic realm=\"X\"",
        "OAuth oauth_callback=\"X\"",
        "OAuth token=\"X\"",
        "Token realm=\"X\"",
        "Digest username=X",
    ] {
        assert!(!is_credential(bad.as_bytes(), b"X"), "{bad}");
    }
}

#[test]
fn fields_of_keys_are_listed_once_and_in_order() {
    assert!(API_KEY_HEADERS.is_sorted() && NEVER.is_sorted());
    assert!(
        API_KEY_HEADERS
            .iter()
            .all(|name| !NEVER.contains(name) && HeaderName::from_static(name).as_str() == *name)
    );
}
