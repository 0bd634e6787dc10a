//! The registry's operations as MCP tools, each built once per server on first use; a client sees the toolsets
//! it selected.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use isle_api::{Definition, Effect, Registry, Toolset, Toolsets};
use isle_core::{Code, Error};
use rmcp::model::{JsonObject, Tool, ToolAnnotations};

/// The tools of these toolsets, in the registry's order.
#[must_use]
pub fn tools_of(registry: &Registry, sets: &Toolsets) -> Vec<Tool> {
    let entries = registry.definitions().iter().filter(|entry| sets.has(entry.toolset));
    entries.map(|entry| tool(entry, entry.description.to_owned())).collect()
}

/// Tool descriptions set by the operator, by tool name.
#[derive(Debug, Clone, Default)]
pub struct Descriptions {
    /// Replace the built-in description.
    pub replaced: BTreeMap<String, String>,
    /// Appended to the description.
    pub appended: BTreeMap<String, String>,
}

impl Descriptions {
    /// Rejects unknown tool names.
    pub fn check(&self, registry: &Registry) -> Result<(), Error> {
        let is_tool = |name: &String| {
            registry.definitions().iter().any(|entry| entry.name == name && entry.toolset != Toolset::None)
        };
        match self.replaced.keys().chain(self.appended.keys()).find(|name| !is_tool(name)) {
            None => Ok(()),
            Some(name) => {
                Err(Error::new(Code::ConfigInvalid, format!("description for an unknown tool: {name:?}"))
                    .next("run `isle call` to list the operations and their toolsets"))
            }
        }
    }

    fn of(&self, entry: &Definition) -> String {
        let own = self.replaced.get(entry.name).map_or(entry.description, String::as_str);
        match self.appended.get(entry.name) {
            Some(more) => format!("{own} {more}"),
            None => own.to_owned(),
        }
    }
}

/// All tools with their toolsets.
pub(crate) struct ToolList(Vec<LazyTool>);

/// A tool that is built on first use.
struct LazyTool {
    entry: Definition,
    description: String,
    made: OnceLock<Tool>,
}

impl LazyTool {
    fn tool(&self) -> &Tool {
        self.made.get_or_init(|| tool(&self.entry, self.description.clone()))
    }
}

impl ToolList {
    pub(crate) fn new(registry: &Registry, descriptions: &Descriptions) -> Self {
        let tools = registry.definitions().iter().filter(|entry| entry.toolset != Toolset::None);
        let lazy = |entry: &Definition| LazyTool {
            description: descriptions.of(entry),
            entry: entry.clone(),
            made: OnceLock::new(),
        };
        Self(tools.map(lazy).collect())
    }

    /// The tools of these toolsets.
    pub(crate) fn shown(&self, sets: &Toolsets) -> Vec<Tool> {
        self.0.iter().filter(|lazy| sets.has(lazy.entry.toolset)).map(|lazy| lazy.tool().clone()).collect()
    }

    /// A tool of any toolset.
    pub(crate) fn find(&self, name: &str) -> Option<&Tool> {
        self.lazy_tool(name).map(LazyTool::tool)
    }

    /// The toolset of a tool.
    pub(crate) fn set_of(&self, name: &str) -> Option<Toolset> {
        self.lazy_tool(name).map(|lazy| lazy.entry.toolset)
    }

    fn lazy_tool(&self, name: &str) -> Option<&LazyTool> {
        self.0.iter().find(|lazy| lazy.entry.name == name)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

fn tool(entry: &Definition, description: String) -> Tool {
    Tool::new(entry.name, description, object(entry.tool_input_schema().into()))
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

/// Hints for clients about the effect of a call. `openWorld` is false: no operation reaches beyond the sandbox
/// by itself.
fn annotations(effect: Effect) -> ToolAnnotations {
    let closed = ToolAnnotations::new().open_world(false);
    match effect {
        Effect::Reads => closed.read_only(true),
        Effect::Changes => closed.read_only(false).destructive(false).idempotent(false),
        Effect::Idempotent => closed.read_only(false).destructive(false).idempotent(true),
        Effect::Destroys => closed.read_only(false).destructive(true).idempotent(true),
    }
}
