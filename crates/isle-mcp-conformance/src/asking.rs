//! Fixtures that call the client back, as the revisions before 2026-07-28 allow.
#![expect(deprecated, reason = "the revisions before 2026-07-28 still have sampling")]

use rmcp::model::{
    CallToolResult, CreateMessageRequestParams, ElicitRequestParams, JsonObject, SamplingMessage,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use serde_json::{Value, json};

use crate::content::{lost, text};

fn argument<'a>(arguments: &'a JsonObject, name: &str) -> Result<&'a str, ErrorData> {
    let value = arguments.get(name).and_then(Value::as_str);
    value.ok_or_else(|| ErrorData::invalid_params(format!("`{name}` is missing"), None))
}

pub(crate) async fn sampling(
    context: &RequestContext<RoleServer>,
    arguments: &JsonObject,
) -> Result<CallToolResult, ErrorData> {
    let question = SamplingMessage::user_text(argument(arguments, "prompt")?);
    let answer = context
        .peer
        .create_message(CreateMessageRequestParams::new(vec![question], 100))
        .await
        .map_err(lost)?;
    let answer = serde_json::to_value(&answer).map_err(lost)?;
    let words = answer["content"]["text"].as_str().unwrap_or_default();
    Ok(text(format!("LLM response: {words}")))
}

pub(crate) async fn elicitation(
    context: &RequestContext<RoleServer>,
    arguments: &JsonObject,
) -> Result<CallToolResult, ErrorData> {
    let schema = json!({"type": "object", "properties": {
        "username": {"type": "string", "description": "User's response"},
        "email": {"type": "string", "description": "User's email address"}
    }, "required": ["username", "email"]});
    form(context, argument(arguments, "message")?, schema, "User response").await
}

pub(crate) async fn elicitation_with_defaults(
    context: &RequestContext<RoleServer>,
) -> Result<CallToolResult, ErrorData> {
    let schema = json!({"type": "object", "properties": {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": true}
    }});
    form(context, "Please review the defaults", schema, "Elicitation completed").await
}

pub(crate) async fn elicitation_with_choices(
    context: &RequestContext<RoleServer>,
) -> Result<CallToolResult, ErrorData> {
    let titled = |kind: &str| {
        json!([
            {"const": "value1", "title": format!("First {kind}")},
            {"const": "value2", "title": format!("Second {kind}")},
            {"const": "value3", "title": format!("Third {kind}")}
        ])
    };
    let plain = json!(["option1", "option2", "option3"]);
    let schema = json!({"type": "object", "properties": {
        "untitledSingle": {"type": "string", "enum": plain},
        "titledSingle": {"type": "string", "oneOf": titled("Option")},
        "legacyEnum": {"type": "string", "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"]},
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": plain}},
        "titledMulti": {"type": "array", "items": {"anyOf": titled("Choice")}}
    }});
    form(context, "Please choose", schema, "Elicitation completed").await
}

async fn form(
    context: &RequestContext<RoleServer>,
    message: &str,
    schema: Value,
    words: &str,
) -> Result<CallToolResult, ErrorData> {
    let question = json!({"mode": "form", "message": message, "requestedSchema": schema});
    let question: ElicitRequestParams = serde_json::from_value(question).map_err(lost)?;
    let answer = context.peer.create_elicitation(question).await.map_err(lost)?;
    let answer = serde_json::to_value(&answer).map_err(lost)?;
    let (action, content) = (answer["action"].as_str().unwrap_or_default(), &answer["content"]);
    Ok(text(format!("{words}: action={action}, content={content}")))
}
