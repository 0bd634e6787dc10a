//! `docs/errors.md` says what the code says. Run with `ISLE_UPDATE_DOCS=1` to write the page anew.

use std::fmt::Write as _;
use std::path::Path;

use isle_engine::Code;

const HEAD: &str = "\
# Errors

Every door shows the same error: a code for programs, a sentence for people, details, whether trying again can help, and what to do next. The sentence and the next steps are written for the case at hand; this page lists the codes.

Over [HTTP](http.md#errors) an error is `{\"error\": {\"code\", \"message\", \"details\", \"retryable\", \"next_steps\"}}` with the status below. Over [MCP](mcp.md#tools) it is a tool result with `isError`. The [command line](cli.md#exit-codes) writes `error[CODE]` to standard error.

A command that runs and fails is not an error: it is a result with its exit code.

| code | status | retry | meaning |
|---|---|---|---|
";

fn page() -> String {
    let mut page = HEAD.to_owned();
    for code in Code::ALL {
        let retry = if code.retryable() { "yes" } else { "no" };
        writeln!(page, "| `{}` | {} | {retry} | {} |", code.as_str(), code.http_status(), code.meaning())
            .unwrap_or_default();
    }
    page
}

#[test]
fn the_page_of_errors_lists_every_code_as_the_source_has_it() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/errors.md");
    if std::env::var_os("ISLE_UPDATE_DOCS").is_some() {
        assert!(std::fs::write(&path, page()).is_ok());
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == page(),
        "docs/errors.md is not what the source says; write it anew with ISLE_UPDATE_DOCS=1"
    );
}
