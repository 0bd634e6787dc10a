//! Formats results for models. `structuredContent` is complete; the text block contains the same for clients
//! that only show text.

use isle_core::Error;
use rmcp::model::{CallToolResult, ContentBlock, MetaObject};
use serde_json::{Map, Value};

/// Key of the structured error of a failed result. Not `structuredContent`: common clients validate that
/// against the tool's output schema even for errors, and then discard the whole result, message included.
pub(crate) const ERROR_KEY: &str = "isle/error";

/// Result of a successful call.
pub(crate) fn success(mut output: Value) -> CallToolResult {
    let pictures = take_pictures(&mut output);
    let text = match &output {
        Value::Object(fields) => run_text(fields).unwrap_or_else(|| output.to_string()),
        other => other.to_string(),
    };
    let blocks = std::iter::once(ContentBlock::text(text)).chain(pictures).collect();
    let mut result = CallToolResult::success(blocks);
    result.structured_content = Some(output);
    result
}

/// Result of a failed call.
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

/// A run as text: its output, then a status line. `None` when the fields are not those of a run.
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
    push_results(&mut text, fields);
    text.push('[');
    text.push_str(state);
    for (key, before, after) in
        [("exit_code", "exit ", ""), ("signal", "signal ", ""), ("duration_ms", "", " ms")]
    {
        if let Some(number) = fields.get(key).and_then(Value::as_i64) {
            text.push_str(&format!(", {before}{number}{after}"));
        }
    }
    for (key, note) in [("stdout_truncated", "stdout truncated"), ("stderr_truncated", "stderr truncated")] {
        if fields.get(key).and_then(Value::as_bool) == Some(true) {
            text.push_str(&format!(", {note}: read the rest with `logs`"));
        }
    }
    if let Some(context) = fields.get("context") {
        text.push_str(&format!(", context {}", context["name"].as_str().unwrap_or_default()));
        if let Some(state @ ("new" | "ended")) = context["state"].as_str() {
            text.push_str(&format!(" ({state})"));
        }
    }
    text.push_str(&format!(", run_id {run_id}]"));
    if let Some(note) = text_of("note") {
        text.push('\n');
        text.push_str(note);
    }
    for violation in fields.get("violations").and_then(Value::as_array).into_iter().flatten() {
        if let (Some(what), Some(remedy)) = (violation["what"].as_str(), violation["remedy"].as_str()) {
            let whose = if violation["shared"] == true { " (by some process of the sandbox)" } else { "" };
            text.push_str(&format!("\ndenied: {what}{whose}: {remedy}"));
        }
    }
    Some(text)
}

/// Moves the images of a run to image blocks; the number of the block replaces the data.
fn take_pictures(output: &mut Value) -> Vec<ContentBlock> {
    let mut blocks = Vec::new();
    let results = output.get_mut("results").and_then(Value::as_array_mut);
    for result in results.into_iter().flatten().filter_map(Value::as_object_mut) {
        for (form, kind) in [("png", "image/png"), ("jpeg", "image/jpeg")] {
            if let Some(Value::String(data)) = result.get_mut(form) {
                let reference = format!("image block {}", blocks.len() + 1);
                blocks.push(ContentBlock::image(std::mem::replace(data, reference), kind));
            }
        }
    }
    blocks
}

/// Appends the results of code as text.
fn push_results(text: &mut String, fields: &Map<String, Value>) {
    for result in fields.get("results").and_then(Value::as_array).into_iter().flatten() {
        let form = |name: &str| result.get(name).and_then(Value::as_str);
        let picture = form("png").or_else(|| form("jpeg"));
        let shown = form("markdown").or_else(|| form("text")).unwrap_or_default();
        match (form("kind"), picture) {
            (Some("figure"), Some(picture)) => push_block(text, &format!("[figure: {picture}]")),
            (_, Some(picture)) => push_block(text, &format!("{shown} [{picture}]")),
            (Some("value"), None) => push_block(text, &format!("=> {shown}")),
            (_, None) => push_block(text, shown),
        }
    }
}

fn push_block(text: &mut String, block: &str) {
    text.push_str(block);
    if !block.is_empty() && !block.ends_with('\n') {
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use isle_core::{Code, Error};
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
            "out\n[stderr]\nerr\n[failed, exit 2, 7 ms, stdout truncated: read the rest with `logs`, run_id run_1]\nwhat to do"
        );
        assert_eq!(result.structured_content, Some(run));
    }

    #[test]
    fn a_picture_is_a_block_of_its_own_and_is_not_repeated_as_text() {
        let run = json!({"run_id": "run_1", "sandbox": "default", "state": "completed", "exit_code": 0,
            "stdout": "", "stderr": "", "duration_ms": 7, "context": {"name": "c", "state": "new"},
            "results": [{"kind": "value", "text": "42"}, {"kind": "figure", "text": "<Figure>", "png": "aGk="}]});
        let result = success(run);
        assert_eq!(
            text_of(&result),
            "=> 42\n[figure: image block 1]\n[completed, exit 0, 7 ms, context c (new), run_id run_1]"
        );
        let image = result.content[1].as_image().unwrap();
        assert_eq!((image.data.as_str(), image.mime_type.as_str()), ("aGk=", "image/png"));
        assert_eq!(result.structured_content.unwrap()["results"][1]["png"], "image block 1");
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
