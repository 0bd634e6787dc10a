use super::*;

#[test]
fn a_webhook_url_is_explicit_and_safe() {
    for text in [
        "https://example.com",
        "https://example.com:8443/a/b?c=d",
        "http://127.0.0.1:9000/hook",
        "http://[::1]:9000/",
        "https://10.0.0.5/x",
        "http://inside.example/",
    ] {
        assert_eq!(WebhookUrl::parse(text).unwrap().as_str(), text);
    }
    for (text, error) in [
        ("example.com", WebhookUrlError::Scheme),
        ("ftp://example.com/", WebhookUrlError::Scheme),
        ("https://user:word@example.com/", WebhookUrlError::UserInfo),
        ("https://example.com/#part", WebhookUrlError::Form),
        ("https://example.com/a b", WebhookUrlError::Form),
        ("https:///path", WebhookUrlError::Form),
        ("http://1.1.1.1/", WebhookUrlError::Plain),
    ] {
        assert_eq!(WebhookUrl::parse(text), Err(error), "{text}");
    }
    for text in ["http://169.254.169.254/", "http://0.0.0.0/", "http://[ff02::1]/", "https://2130706433/"] {
        assert!(WebhookUrl::parse(text).is_err(), "{text}");
    }
    assert!(!format!("{:?}", WebhookUrl::parse("https://example.com/token").unwrap()).contains("token"));
}

#[tokio::test]
async fn a_name_resolves_only_to_allowed_addresses() {
    let name = |text: &str| crate::policy::host::Name::parse(text).unwrap();
    let table = [
        (name("inside.test"), vec!["127.0.0.1".parse().unwrap()]),
        (name("both.test"), vec!["1.1.1.1".parse().unwrap(), "127.0.0.1".parse().unwrap()]),
        (name("outside.test"), vec!["1.1.1.1".parse().unwrap()]),
    ];
    let webhook_client = WebhookClient::new(Arc::new(Resolver::new(table.into())), Arc::default());
    let post = async |text: &str, opened: &[AddressRange]| {
        let url = WebhookUrl::parse(text).unwrap();
        webhook_client.post(&url, opened, Vec::new(), Bytes::new()).await.unwrap_err()
    };
    assert!(matches!(post("https://inside.test:1/", &[]).await, WebhookError::Denied(_)));
    assert!(matches!(post("https://both.test:1/", &[]).await, WebhookError::Denied(_)));
    // Not encrypted on the internet: nothing is dialed.
    assert!(matches!(post("http://outside.test:1/", &[]).await, WebhookError::Denied(_)));
    let opened = [AddressRange::one("127.0.0.1".parse().unwrap())];
    assert!(matches!(post("http://inside.test:1/", &opened).await, WebhookError::UpstreamError { .. }));
}
