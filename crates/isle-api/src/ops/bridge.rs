//! `bridge`: JSON from one sandbox, or from the caller, into another one, whatever languages they speak:
//! as a file, and as a variable of the contexts that are there.

use crate::{Effect, Method, Operation, Route, Toolset};
use isle_core::values::{ContextName, GuestPath, SandboxName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The operation `bridge`.
#[derive(Debug)]
pub struct Bridge;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// The sandbox that gets it.
    pub sandbox: SandboxName,
    /// What it is called there, default "data".
    pub name: Option<ContextName>,
    /// The data itself. Give this, or from.
    #[serde(default, deserialize_with = "given")]
    pub value: Option<Value>,
    /// The sandbox that has it, in a file or a variable.
    pub from: Option<SandboxName>,
    /// A file there that holds JSON.
    pub file: Option<GuestPath>,
    /// A variable there, in a context.
    pub variable: Option<String>,
    /// The context of the variable.
    pub context: Option<ContextName>,
    /// The only context that gets it as a variable; all of them when left out.
    pub to_context: Option<ContextName>,
}

/// A field that is there and `null` is a value.
fn given<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Output {
    pub sandbox: SandboxName,
    pub name: ContextName,
    /// The file that holds it.
    pub path: String,
    /// Its size.
    pub bytes: usize,
    /// Contexts that have it as isle_data[name].
    pub contexts: Vec<String>,
    /// Contexts that could not take it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub without: Vec<String>,
}

impl Operation for Bridge {
    type Input = Input;
    type Output = Output;
    const NAME: &'static str = "bridge";
    const TITLE: &'static str = "Hand data over";
    const DESCRIPTION: &'static str = "Put JSON (a value, or a file or context variable of another sandbox) into a sandbox: as /workspace/isle_data/NAME.json, and as isle_data[NAME] in its contexts (Python, Node; JSON text in shell). At most 1 MiB.";
    const ROUTE: Route = Route { method: Method::Post, path: "/sandboxes/{sandbox}/bridge" };
    const TOOLSET: Toolset = Toolset::Children;
    const EFFECT: Effect = Effect::Changes;
}
