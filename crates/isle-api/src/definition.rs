//! What an operation is: name, typed arguments and result, route, words, tool set. The MCP tool, the HTTP route,
//! `isle call` and the documentation are made from it.

use std::sync::{Arc, LazyLock};

use isle_core::values::reading::take_refused;
use isle_core::{Code, Error, Result};
use schemars::{JsonSchema, Schema};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::ops::definitions;
use crate::schema;
use crate::toolsets::Toolset;

/// HTTP method of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Method {
    /// Reads; arguments in path and query.
    Get,
    /// Does; arguments in path and JSON body.
    Post,
    /// Removes; arguments in path and JSON body.
    Delete,
}

/// Where an operation is found over HTTP. `{name}` parts of the path are fields of the input.
#[derive(Debug, Clone, Copy)]
pub struct Route {
    /// Method.
    pub method: Method,
    /// Path below `/v1`, such as `/sandboxes/{sandbox}/exec`.
    pub path: &'static str,
}

/// What a call may change, for clients that ask before they call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Changes nothing.
    Reads,
    /// Changes things, and calling twice does more than calling once.
    Changes,
    /// Changes things, and calling twice does no more than calling once.
    Idempotent,
    /// Destroys something that cannot be brought back.
    Destroys,
}

/// One thing Isle can do, as it is seen from outside. What it does is a handler in `isle-engine`.
pub trait Operation: Send + Sync + 'static {
    /// Arguments. `deny_unknown_fields`, doc comments become descriptions.
    type Input: DeserializeOwned + JsonSchema + Send;
    /// Result; complete by itself.
    type Output: Serialize + JsonSchema;
    /// Name at every door: lower case, digits, `_`, at most 30 characters.
    const NAME: &'static str;
    /// Short title for people.
    const TITLE: &'static str;
    /// What it does and when to use it, for a model that has to choose.
    const DESCRIPTION: &'static str;
    /// Over HTTP.
    const ROUTE: Route;
    /// As an MCP tool.
    const TOOLSET: Toolset;
    /// What it may change.
    const EFFECT: Effect;
}

/// Made when somebody asks: all of them together take longer than the rest of a daemon's start.
struct Schemas {
    input: LazyLock<Schema>,
    output: LazyLock<Schema>,
}

/// An operation with its types erased, as the doors use it.
#[derive(Clone)]
pub struct Definition {
    /// Name at every door.
    pub name: &'static str,
    /// Short title.
    pub title: &'static str,
    /// What it does.
    pub description: &'static str,
    /// Over HTTP.
    pub route: Route,
    /// As an MCP tool.
    pub toolset: Toolset,
    /// What it may change.
    pub effect: Effect,
    schemas: Arc<Schemas>,
    check: fn(Value) -> Result<()>,
}

impl std::fmt::Debug for Definition {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Definition").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Definition {
    pub(crate) fn of<O: Operation>() -> Self {
        Self {
            name: O::NAME,
            title: O::TITLE,
            description: O::DESCRIPTION,
            route: O::ROUTE,
            toolset: O::TOOLSET,
            effect: O::EFFECT,
            schemas: Arc::new(Schemas {
                input: LazyLock::new(schema::input_schema_of::<O::Input>),
                output: LazyLock::new(schema::output_schema_of::<O::Output>),
            }),
            check: |input| parse::<O>(input).map(drop),
        }
    }

    /// JSON schema of the input: a plain object.
    #[must_use]
    pub fn input_schema(&self) -> &Schema {
        &self.schemas.input
    }

    /// JSON schema of the output: a plain object.
    #[must_use]
    pub fn output_schema(&self) -> &Schema {
        &self.schemas.output
    }

    /// The schema of the arguments as an MCP tool shows it: shorter, without ranges.
    #[must_use]
    pub fn tool_input_schema(&self) -> Schema {
        schema::tool_input_schema(self.input_schema())
    }

    /// The schema of the result as an MCP tool shows it: names and types of the fields.
    #[must_use]
    pub fn tool_output_schema(&self) -> Schema {
        schema::tool_output_schema(self.output_schema())
    }

    /// Whether arguments can be read, without doing anything about them.
    pub fn check(&self, input: Value) -> Result<()> {
        (self.check)(input)
    }
}

/// Reads the arguments of an operation into their type; the message names the field.
pub fn parse<O: Operation>(input: Value) -> Result<O::Input> {
    parse_as(O::NAME, input)
}

pub(crate) fn parse_as<T: DeserializeOwned>(operation: &str, input: Value) -> Result<T> {
    let input = if input.is_null() { Value::Object(serde_json::Map::new()) } else { input };
    take_refused();
    serde_json::from_value(input).map_err(|error| {
        // A value that was refused says why better than serde can.
        if let Some(refused) = take_refused().filter(|refused| error.to_string().contains(&refused.message)) {
            return refused;
        }
        Error::new(Code::InvalidArgument, format!("{operation}: {error}"))
            .next(format!("`isle call {operation} --help` and the tool's schema list the arguments"))
    })
}

/// All operations, in the order they are shown.
#[derive(Debug, Clone)]
pub struct Registry {
    definitions: Arc<[Definition]>,
}

impl Registry {
    /// Every operation Isle has.
    #[must_use]
    pub fn standard() -> Self {
        Self { definitions: definitions().into() }
    }

    /// All of them.
    #[must_use]
    pub fn definitions(&self) -> &[Definition] {
        &self.definitions
    }

    /// One by name.
    pub fn get(&self, name: &str) -> Result<&Definition> {
        self.find(name).map(|(_, definition)| definition)
    }

    /// One by name, with its position in [`definitions`](Self::definitions).
    pub fn find(&self, name: &str) -> Result<(usize, &Definition)> {
        self.definitions.iter().enumerate().find(|(_, definition)| definition.name == name).ok_or_else(|| {
            Error::new(Code::OperationNotFound, format!("there is no operation {name:?}"))
                .detail("operations", self.definitions.iter().map(|one| one.name).collect::<Vec<_>>())
                .next("choose one of the operations listed in `details`")
        })
    }
}
