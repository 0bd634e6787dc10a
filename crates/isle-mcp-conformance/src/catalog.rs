//! The tools in the list: the product's, then the fixtures'.

use std::sync::Arc;

use isle_api::{Registry, Toolsets};
use rmcp::model::{JsonObject, Tool};
use serde_json::{Value, json};

/// Fixtures without arguments: name and description.
const PLAIN: &[(&str, &str)] = &[
    ("test_simple_text", "Returns text."),
    ("test_image_content", "Returns an image."),
    ("test_audio_content", "Returns audio."),
    ("test_embedded_resource", "Returns an embedded resource."),
    ("test_multiple_content_types", "Returns text, an image and a resource."),
    ("test_tool_with_logging", "Logs while it works."),
    ("test_logging_tool", "Logs only when the request asks for logs."),
    ("test_tool_with_progress", "Reports progress."),
    ("test_error_handling", "Always fails."),
    ("test_elicitation_sep1034_defaults", "Asks for a form with defaults."),
    ("test_elicitation_sep1330_enums", "Asks for a form with every kind of choice."),
    ("test_missing_capability", "Needs a client that can sample."),
    ("test_streaming_elicitation", "Asks for input by its result."),
    ("test_trigger_tool_change", "Announces that the tools changed."),
    ("test_trigger_prompt_change", "Announces that the prompts changed."),
    ("test_input_required_result_elicitation", "Asks for a name."),
    ("test_input_required_result_sampling", "Asks for a completion."),
    ("test_input_required_result_list_roots", "Asks for the roots."),
    ("test_input_required_result_request_state", "Asks, with state to echo."),
    ("test_input_required_result_tampered_state", "Asks, and refuses changed state."),
    ("test_input_required_result_multiple_inputs", "Asks for three things at once."),
    ("test_input_required_result_multi_round", "Asks twice."),
    ("test_input_required_result_capabilities", "Asks only for what the client can do."),
];

/// Every tool.
pub(crate) fn tools() -> Vec<Tool> {
    let mut tools = isle_mcp::tools_of(&Registry::standard(), &Toolsets::every());
    tools.extend(PLAIN.iter().map(|(name, description)| tool(name, description, json!({"type": "object"}))));
    let prompt =
        json!({"type": "object", "properties": {"prompt": {"type": "string"}}, "required": ["prompt"]});
    tools.push(tool("test_sampling", "Asks the client's model.", prompt));
    let message =
        json!({"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]});
    tools.push(tool("test_elicitation", "Asks the client's user.", message));
    let mirrored =
        json!({"type": "object", "properties": {"value": {"type": "string", "x-mcp-header": "Value"}}});
    tools.push(tool("test_custom_header", "Has an argument that travels in a header too.", mirrored));
    tools.push(tool("json_schema_2020_12_tool", "Has a schema with the newer keywords.", newer_schema()));
    tools
}

fn tool(name: &'static str, description: &'static str, schema: Value) -> Tool {
    let schema: JsonObject = schema.as_object().cloned().unwrap_or_default();
    Tool::new(name, description, Arc::new(schema))
}

fn newer_schema() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {"address": {"$anchor": "addressDef", "type": "object", "properties": {
            "street": {"type": "string"}, "city": {"type": "string"}}}},
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"}
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "anyOf": [{"required": ["name"]}, {"required": ["address"]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": false
    })
}
