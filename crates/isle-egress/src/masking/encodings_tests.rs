use base64::engine::general_purpose::{STANDARD, URL_SAFE};

use super::*;

const VALUE: &str = "p@ss w/ö\"rd\\>?~é\n";

fn found(text: &str) -> bool {
    encodings(VALUE).iter().any(|form| text.as_bytes().windows(form.len()).any(|window| window == &form[..]))
}

#[test]
fn a_value_is_found_in_base64_at_any_offset() {
    for before in 0..7 {
        for after in 0..4 {
            let plain = format!("{}{VALUE}{}", "x".repeat(before), "\u{7f}".repeat(after));
            assert!(found(&STANDARD.encode(&plain)), "{before} {after}");
            assert!(found(&URL_SAFE.encode(&plain)), "{before} {after}");
        }
    }
}

#[test]
fn a_value_is_found_in_common_encodings() {
    let hex: String = VALUE.bytes().map(|byte| format!("{byte:02x}")).collect();
    assert!(found(&hex) && found(&hex.to_uppercase()));
    assert!(found(VALUE));
    assert!(found("\"p@ss w/ö\\\"rd\\\\>?~é\\n\""));
    for text in [
        // JavaScript's encodeURIComponent, Python's quote, quote_plus, PHP's json_encode, and small digits.
        "p%40ss%20w%2F%C3%B6%22rd%5C%3E%3F~%C3%A9%0A",
        "p%40ss%20w/%C3%B6%22rd%5C%3E%3F~%C3%A9%0A",
        "p%40ss+w%2F%C3%B6%22rd%5C%3E%3F~%C3%A9%0A",
        "p@ss w\\/\\u00f6\\\"rd\\\\>?~\\u00e9\\n",
        "p%40ss%20w%2f%c3%b6%22rd%5c%3e%3f~%c3%a9%0a",
        // Go's JSON, PHP's htmlspecialchars, an address within an address, in capitals.
        "p@ss w/ö\\\"rd\\\\\\u003e?~é\\n",
        "p@ss w/ö&quot;rd\\&gt;?~é\n",
        "p%2540ss%2520w%252F%25C3%25B6%2522rd%255C%253E%253F~%25C3%25A9%250A",
    ] {
        assert!(found(text), "{text}");
    }
    assert!(!found("p@ss w/o\"rd"));
}

#[test]
fn what_frameworks_escape_is_found() {
    let finds = |value: &str, text: &str| {
        let finder = crate::masking::secret_finder::SecretFinder::new([("K", value)]).unwrap().unwrap();
        assert!(!finder.spans(text.as_bytes()).is_empty(), "{value}: {text}");
    };
    let key = "aB9+kQ/7Lmw3xPzR==";
    for text in [
        "aB9\\u002BkQ\\u002F7Lmw3xPzR\\u003D\\u003D",
        "aB9&#43;kQ&#47;7Lmw3xPzR&#61;&#61;",
        "aB9&#x2B;kQ&#x2F;7Lmw3xPzR&#x3D;&#x3D;",
        "aB9 kQ/7Lmw3xPzR==",
        "aB9+kQ/7Lmw3xPzR",
        "aB9\\x2bkQ\\x2f7Lmw3xPzR\\x3d\\x3d",
        "aB9=2BkQ=2F7Lmw3xPzR=3D=3D",
        "YUI5K2tRLzdMbXczeFB6Uj09",
        "WVVJNUsydFJMemRNYlhjemVGQjZVajA5",
        "MFBDSK3LKEXTOTDNO4ZXQUD2KI6T2===",
    ] {
        finds(key, text);
    }
    for text in [
        "sk\\u002dlive\\u002dZq7RtP0a",
        "sk%2dlive%2DZq7RtP0a",
        "sk&#45;live&#45;Zq7RtP0a",
        "%2573%256b%252d%256c%2569%2576%2565%252d%255a%2571%2537%2552%2574%2550%2530%2561",
    ] {
        finds("sk-live-Zq7RtP0a", text);
    }
    finds("it's a \"key\"", "it&#039;s a &quot;key&quot;");
    finds("it's a \"key\"", "it's a \\\\\\\"key\\\\\\\"");
}

#[test]
fn a_plain_value_has_few_encodings() {
    let all = encodings("abcdefgh");
    assert!(all.len() <= 48, "{}", all.len());
    assert!(all.iter().all(|form| form.len() >= 8), "{all:?}");
}
