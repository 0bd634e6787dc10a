//! Fixtures that ask by their result, as 2026-07-28 wants it: the client answers and calls again.

use rmcp::ErrorData;
use rmcp::model::{
    CallToolResponse, ClientCapabilities, InputRequests, InputRequiredResult, InputResponses,
    RequestStateCodec,
};
use serde_json::{Value, json};

use crate::content::{lost, text};

/// What a retry brings along.
pub(crate) struct Retry<'a> {
    pub(crate) responses: Option<&'a InputResponses>,
    pub(crate) state: Option<&'a str>,
}

impl Retry<'_> {
    /// The answer to one question, if the client gave one that is an object.
    fn answer(&self, key: &str) -> Option<&Value> {
        self.responses?.get(key).filter(|answer| answer.is_object())
    }

    /// A field of a filled-in form.
    fn field(&self, key: &str, field: &str) -> Option<&Value> {
        let answer = self.answer(key)?;
        (answer["action"] == "accept").then(|| &answer["content"][field])
    }
}

fn question(message: &str, field: &str, kind: &str) -> Value {
    json!({"method": "elicitation/create", "params": {"mode": "form", "message": message, "requestedSchema": {
        "type": "object", "properties": {field: {"type": kind}}, "required": [field]}}})
}

fn completion(prompt: &str, max_tokens: u32) -> Value {
    json!({"method": "sampling/createMessage", "params": {
        "messages": [{"role": "user", "content": {"type": "text", "text": prompt}}], "maxTokens": max_tokens}})
}

fn roots() -> Value {
    json!({"method": "roots/list", "params": {}})
}

fn ask(questions: Value, state: Option<String>) -> Result<InputRequiredResult, ErrorData> {
    let questions: InputRequests = serde_json::from_value(questions).map_err(lost)?;
    Ok(InputRequiredResult::new(Some(questions), state))
}

pub(crate) fn elicitation(retry: &Retry<'_>) -> Result<CallToolResponse, ErrorData> {
    match retry.field("user_name", "name").and_then(Value::as_str) {
        Some(name) => Ok(text(format!("Hello, {name}!")).into()),
        None => Ok(ask(json!({"user_name": question("What is your name?", "name", "string")}), None)?.into()),
    }
}

pub(crate) fn sampling(retry: &Retry<'_>) -> Result<CallToolResponse, ErrorData> {
    match retry.answer("capital_question") {
        Some(answer) => Ok(text(answer["content"]["text"].as_str().unwrap_or_default()).into()),
        None => {
            Ok(ask(json!({"capital_question": completion("What is the capital of France?", 100)}), None)?
                .into())
        }
    }
}

pub(crate) fn list_roots(retry: &Retry<'_>) -> Result<CallToolResponse, ErrorData> {
    match retry.answer("client_roots") {
        Some(answer) => Ok(text(format!("Roots: {}", answer["roots"])).into()),
        None => Ok(ask(json!({"client_roots": roots()}), None)?.into()),
    }
}

/// Reads the state a client brought back; `None` when it brought none.
fn opened(codec: &RequestStateCodec, retry: &Retry<'_>) -> Result<Option<String>, ErrorData> {
    let Some(sealed) = retry.state else { return Ok(None) };
    let state = codec.open(sealed).map_err(|error| ErrorData::invalid_params(error.to_string(), None))?;
    String::from_utf8(state).map(Some).map_err(lost)
}

pub(crate) fn request_state(
    codec: &RequestStateCodec,
    retry: &Retry<'_>,
) -> Result<CallToolResponse, ErrorData> {
    match (opened(codec, retry)?, retry.answer("confirm")) {
        (Some(_), Some(_)) => Ok(text("state-ok").into()),
        _ => {
            let questions = json!({"confirm": question("Please confirm", "ok", "boolean")});
            Ok(ask(questions, Some(codec.seal(b"confirming")))?.into())
        }
    }
}

pub(crate) fn multiple_inputs(
    codec: &RequestStateCodec,
    retry: &Retry<'_>,
) -> Result<CallToolResponse, ErrorData> {
    let keys = ["user_name", "greeting", "client_roots"];
    if opened(codec, retry)?.is_some() && keys.iter().all(|key| retry.answer(key).is_some()) {
        return Ok(text("All inputs arrived").into());
    }
    let questions = json!({
        "user_name": question("What is your name?", "name", "string"),
        "greeting": completion("Generate a greeting", 50),
        "client_roots": roots(),
    });
    Ok(ask(questions, Some(codec.seal(b"asking")))?.into())
}

pub(crate) fn multi_round(
    codec: &RequestStateCodec,
    retry: &Retry<'_>,
) -> Result<CallToolResponse, ErrorData> {
    let state = opened(codec, retry)?;
    if let (Some("round-2"), Some(color)) = (state.as_deref(), retry.field("step2", "color")) {
        return Ok(text(format!("Favourite colour: {color}")).into());
    }
    if state.as_deref() == Some("round-1") && retry.answer("step1").is_some() {
        let questions = json!({"step2": question("Step 2: What is your favorite color?", "color", "string")});
        return Ok(ask(questions, Some(codec.seal(b"round-2")))?.into());
    }
    let questions = json!({"step1": question("Step 1: What is your name?", "name", "string")});
    Ok(ask(questions, Some(codec.seal(b"round-1")))?.into())
}

pub(crate) fn capabilities(declared: &ClientCapabilities) -> Result<CallToolResponse, ErrorData> {
    let mut questions = json!({});
    if declared.elicitation.is_some() {
        questions["user_name"] = question("What is your name?", "name", "string");
    }
    if declared.sampling.is_some() {
        questions["greeting"] = completion("Generate a greeting", 50);
    }
    if declared.roots.is_some() {
        questions["client_roots"] = roots();
    }
    if questions.as_object().is_some_and(serde_json::Map::is_empty) {
        return Ok(text("The client can answer nothing").into());
    }
    Ok(ask(questions, None)?.into())
}

/// For a prompt: its context, or the question for it.
pub(crate) fn prompt_context(retry: &Retry<'_>) -> Result<Result<String, InputRequiredResult>, ErrorData> {
    match retry.field("user_context", "context").and_then(Value::as_str) {
        Some(context) => Ok(Ok(context.to_owned())),
        None => {
            let asked = question("What context should the prompt use?", "context", "string");
            ask(json!({"user_context": asked}), None).map(Err)
        }
    }
}
