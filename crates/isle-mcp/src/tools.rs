//! The registry's operations as MCP tools, made once per server.

use std::sync::Arc;

use isle_engine::ops::{Effect, Entry, Registry, Toolset};
use rmcp::model::{JsonObject, Tool, ToolAnnotations};

/// Every operation that is a tool, in the registry's order.
#[must_use]
pub fn tools_of(registry: &Registry) -> Vec<Tool> {
    registry.entries().iter().filter(|entry| entry.toolset == Toolset::Core).map(tool).collect()
}

fn tool(entry: &Entry) -> Tool {
    Tool::new(entry.name, entry.description, object(entry.tool_input_schema().into()))
        .with_title(entry.title)
        .with_raw_output_schema(object(entry.tool_output_schema().into()))
        .with_annotations(annotations(entry.effect))
}

fn object(schema: serde_json::Value) -> Arc<JsonObject> {
    match schema {
        serde_json::Value::Object(fields) => Arc::new(fields),
        _ => Arc::default(),
    }
}

/// What a client may believe about a call before it makes it. A sandbox is a closed world: no
/// operation here reaches past it on its own.
fn annotations(effect: Effect) -> ToolAnnotations {
    let closed = ToolAnnotations::new().open_world(false);
    match effect {
        Effect::Reads => closed.read_only(true),
        Effect::Changes => closed.read_only(false).destructive(false).idempotent(false),
        Effect::Idempotent => closed.read_only(false).destructive(false).idempotent(true),
        Effect::Destroys => closed.read_only(false).destructive(true).idempotent(true),
    }
}
