//! Every error code as programs and people meet it, in one snapshot, to be read as a whole.

use isle_core::Code;

#[test]
fn every_error_code_with_status_and_meaning() {
    let line = |code: &Code| {
        let retry = if code.retryable() { "retryable" } else { "final" };
        format!("{} {} {retry}: {}", code.as_str(), code.http_status(), code.meaning())
    };
    let all: Vec<String> = Code::ALL.iter().map(line).collect();
    insta::assert_snapshot!(all.join("\n"));
}
