use super::*;

#[test]
fn untrusted_text_cannot_forge_a_denial() {
    let denial = Denial::new("evil\r\nX: y\u{1b}[31m\u{202e}", Reason::Malformed).detail("a\nb");
    let response = denial.http_response();
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    assert!(
        !head.contains("X: y") && head.contains(&format!("Content-Length: {}", body.len())),
        "{response}"
    );
    assert!(body.is_ascii() && !body.contains('\u{1b}'), "{body}");
}

#[test]
fn a_long_target_is_truncated() {
    assert!(Denial::new("a".repeat(100_000), Reason::Malformed).target.len() < 400);
}
