//! The registry's operations as MCP tools, each made once per server, when it is first asked for; a client
//! is shown the sets it asked for.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use isle_engine::ops::{Effect, Entry, Registry, Toolset, Toolsets};
use isle_engine::{Code, Error};
use rmcp::model::{JsonObject, Tool, ToolAnnotations};

/// Every operation of these sets, in the registry's order.
#[must_use]
pub fn tools_of(registry: &Registry, sets: &Toolsets) -> Vec<Tool> {
    let entries = registry.entries().iter().filter(|entry| sets.has(entry.toolset));
    entries.map(|entry| tool(entry, entry.description.to_owned())).collect()
}

/// What an operator says to models about tools, besides what Isle says: by name of the tool.
#[derive(Debug, Clone, Default)]
pub struct Descriptions {
    /// Instead of Isle's words.
    pub replaced: BTreeMap<String, String>,
    /// Behind them.
    pub appended: BTreeMap<String, String>,
}

impl Descriptions {
    /// Refuses names no tool has, which would otherwise do nothing.
    pub fn check(&self, registry: &Registry) -> Result<(), Error> {
        let is_tool = |name: &String| {
            registry.entries().iter().any(|entry| entry.name == name && entry.toolset != Toolset::None)
        };
        match self.replaced.keys().chain(self.appended.keys()).find(|name| !is_tool(name)) {
            None => Ok(()),
            Some(name) => Err(Error::new(
                Code::ConfigInvalid,
                format!("a description is given for {name:?}, which is no tool"),
            )
            .next("`isle call` lists the operations, and which are tools")),
        }
    }

    fn of(&self, entry: &Entry) -> String {
        let own = self.replaced.get(entry.name).map_or(entry.description, String::as_str);
        match self.appended.get(entry.name) {
            Some(more) => format!("{own} {more}"),
            None => own.to_owned(),
        }
    }
}

/// All tools with their sets.
pub(crate) struct Shelf(Vec<Slot>);

/// A tool's place.
struct Slot {
    entry: Entry,
    description: String,
    made: OnceLock<Tool>,
}

impl Slot {
    fn tool(&self) -> &Tool {
        self.made.get_or_init(|| tool(&self.entry, self.description.clone()))
    }
}

impl Shelf {
    pub(crate) fn new(registry: &Registry, descriptions: &Descriptions) -> Self {
        let tools = registry.entries().iter().filter(|entry| entry.toolset != Toolset::None);
        let slot = |entry: &Entry| Slot {
            description: descriptions.of(entry),
            entry: entry.clone(),
            made: OnceLock::new(),
        };
        Self(tools.map(slot).collect())
    }

    /// What a client sees.
    pub(crate) fn shown(&self, sets: &Toolsets) -> Vec<Tool> {
        self.0.iter().filter(|slot| sets.has(slot.entry.toolset)).map(|slot| slot.tool().clone()).collect()
    }

    /// A tool, whether shown or not.
    pub(crate) fn find(&self, name: &str) -> Option<&Tool> {
        self.slot(name).map(Slot::tool)
    }

    /// The set a tool is in.
    pub(crate) fn set_of(&self, name: &str) -> Option<Toolset> {
        self.slot(name).map(|slot| slot.entry.toolset)
    }

    fn slot(&self, name: &str) -> Option<&Slot> {
        self.0.iter().find(|slot| slot.entry.name == name)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

fn tool(entry: &Entry, description: String) -> Tool {
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
