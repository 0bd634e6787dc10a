//! Results as a model reads them. `structuredContent` is complete by itself; the text block says
//! the same for clients that only show text.

use isle_engine::Error;
use rmcp::model::{CallToolResult, ContentBlock, MetaObject};
use serde_json::{Map, Value};

/// The key under which a failed result carries the error for programs. Not `structuredContent`:
/// common clients check that against the tool's output schema even when the call failed, and then
/// throw the whole result away, message included.
pub(crate) const ERROR_KEY: &str = "isle/error";

/// A call that worked.
pub(crate) fn success(output: Value) -> CallToolResult {
    let text = match &output {
        Value::Object(fields) => run_text(fields).unwrap_or_else(|| output.to_string()),
        other => other.to_string(),
    };
    let mut result = CallToolResult::success(vec![ContentBlock::text(text)]);
    result.structured_content = Some(output);
    result
}

/// A call that failed, in words a model can act on.
pub(crate) fn failure(error: &Error) -> CallToolResult {
    let mut text = format!("{}: {}", error.code.as_str(), error.message);
    for step in &error.next_steps {
        text.push_str("\nNext: ");
        text.push_str(step);
    }
    if !error.details.is_empty() {
        text.push_str("\nDetails: ");
        text.push_str(&Value::Object(error.details.clone()).to_string());
    }
    let mut meta = MetaObject::new();
    meta.insert(ERROR_KEY.to_owned(), error.to_json());
    CallToolResult::error(vec![ContentBlock::text(text)]).with_meta(Some(meta))
}

/// A run as text: what it printed, then how it stands. `None` when the fields are not a run's.
fn run_text(fields: &Map<String, Value>) -> Option<String> {
    let text_of = |key: &str| fields.get(key).and_then(Value::as_str);
    let (run_id, state) = (text_of("run_id")?, text_of("state")?);
    let (stdout, stderr) = (text_of("stdout")?, text_of("stderr")?);
    let mut text = String::with_capacity(stdout.len() + stderr.len() + 160);
    push_block(&mut text, stdout);
    if !stderr.is_empty() {
        text.push_str("[stderr]\n");
        push_block(&mut text, stderr);
    }
    text.push('[');
    text.push_str(state);
    for (key, before, after) in
        [("exit_code", "exit ", ""), ("signal", "signal ", ""), ("duration_ms", "", " ms")]
    {
        if let Some(number) = fields.get(key).and_then(Value::as_i64) {
            text.push_str(&format!(", {before}{number}{after}"));
        }
    }
    for (key, words) in [("stdout_truncated", "stdout cut"), ("stderr_truncated", "stderr cut")] {
        if fields.get(key).and_then(Value::as_bool) == Some(true) {
            text.push_str(&format!(", {words}: `logs` pages the rest"));
        }
    }
    text.push_str(&format!(", run_id {run_id}]"));
    if let Some(note) = text_of("note") {
        text.push('\n');
        text.push_str(note);
    }
    for violation in fields.get("violations").and_then(Value::as_array).into_iter().flatten() {
        if let (Some(what), Some(remedy)) = (violation["what"].as_str(), violation["remedy"].as_str()) {
            text.push_str(&format!("\nrefused: {what}: {remedy}"));
        }
    }
    Some(text)
}

fn push_block(text: &mut String, block: &str) {
    text.push_str(block);
    if !block.is_empty() && !block.ends_with('\n') {
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use isle_engine::{Code, Error};
    use serde_json::json;

    use super::{ERROR_KEY, failure, success};

    fn text_of(result: &rmcp::model::CallToolResult) -> &str {
        &result.content[0].as_text().unwrap().text
    }

    #[test]
    fn a_run_reads_as_its_output_and_a_status_line() {
        let run = json!({"run_id": "run_1", "sandbox": "default", "state": "failed", "exit_code": 2,
            "stdout": "out", "stderr": "err\n", "duration_ms": 7, "stdout_truncated": true,
            "stderr_truncated": false, "note": "what to do"});
        let result = success(run.clone());
        assert_eq!(
            text_of(&result),
            "out\n[stderr]\nerr\n[failed, exit 2, 7 ms, stdout cut: `logs` pages the rest, run_id run_1]\nwhat to do"
        );
        assert_eq!(result.structured_content, Some(run));
    }

    #[test]
    fn other_results_read_as_compact_json() {
        assert_eq!(text_of(&success(json!({"files": []}))), "{\"files\":[]}");
    }

    #[test]
    fn a_failure_names_code_reason_and_next_step_and_no_structured_content() {
        let error = Error::new(Code::SandboxNotFound, "there is no sandbox x").next("make it");
        let result = failure(&error);
        assert_eq!(text_of(&result), "SANDBOX_NOT_FOUND: there is no sandbox x\nNext: make it");
        assert_eq!(result.is_error, Some(true));
        assert_eq!(result.structured_content, None);
        assert_eq!(result.meta.unwrap()[ERROR_KEY]["code"], "SANDBOX_NOT_FOUND");
    }
}
