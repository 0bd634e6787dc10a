//! The registry of operations. One definition (name, typed input and output, route, words,
//! toolset) gives the MCP tool, the HTTP route, `isle call` and the documentation.

use std::sync::{Arc, LazyLock};

use futures::future::BoxFuture;
use schemars::{JsonSchema, Schema};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::context::CallContext;
use crate::engine::Engine;
use crate::error::{Code, Error, Result};
use crate::values::reading::take_refused;

mod audit;
mod audit_verify;
mod bridge;
pub(crate) mod children;
mod contexts;
mod copy_in;
mod copy_out;
mod create;
mod destroy;
mod edit_file;
mod env;
mod events;
mod exec;
mod extend;
mod git_clone;
mod health;
mod history;
mod inputs;
mod inspect;
mod install;
mod jobs;
mod kill;
mod limits;
mod list;
mod list_files;
mod logs;
mod mirror;
mod move_file;
mod namespace_grants;
mod network;
mod pause;
mod ports;
mod read_file;
mod remove_file;
mod requests;
mod reset;
mod rich;
mod run;
mod run_code;
mod run_commands;
mod runtimes;
mod search_files;
mod secrets;
pub mod shapes;
mod spawn;
mod stat_file;
mod stats;
mod status;
mod sync;
mod times;
pub(crate) use times::timestamp;
mod tokens;
mod toolsets;
mod usage;
mod validate;
mod wait;
mod watch_files;
mod webhooks;
mod write_files;

pub use events::EventShape;
pub use toolsets::{Toolset, Toolsets};

/// HTTP method of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Method {
    /// Reads; arguments in path and query.
    Get,
    /// Does; arguments in path and JSON body.
    Post,
    /// Removes; arguments in path and query.
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

/// One thing Isle can do.
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

    /// Does it.
    fn call(
        engine: Engine,
        context: CallContext,
        input: Self::Input,
    ) -> impl Future<Output = Result<Self::Output>> + Send;
}

type Handler = Arc<dyn Fn(Engine, CallContext, Value) -> BoxFuture<'static, Result<Value>> + Send + Sync>;

/// Made when somebody asks: all of them together take longer than the rest of a daemon's start.
struct Schemas {
    input: LazyLock<Schema>,
    output: LazyLock<Schema>,
}

/// An operation with its types erased, as the doors use it.
#[derive(Clone)]
pub struct Entry {
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
    handler: Handler,
    check: fn(Value) -> Result<()>,
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Entry").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Entry {
    fn of<O: Operation>() -> Self {
        Self {
            name: O::NAME,
            title: O::TITLE,
            description: O::DESCRIPTION,
            route: O::ROUTE,
            toolset: O::TOOLSET,
            effect: O::EFFECT,
            schemas: Arc::new(Schemas {
                input: LazyLock::new(shapes::input_schema_of::<O::Input>),
                output: LazyLock::new(shapes::output_schema_of::<O::Output>),
            }),
            check: |input| parse::<O::Input>(O::NAME, input).map(drop),
            handler: Arc::new(|engine, context, input| {
                Box::pin(async move {
                    let input = parse::<O::Input>(O::NAME, input)?;
                    let output = O::call(engine, context, input).await?;
                    serde_json::to_value(output).map_err(Error::internal)
                })
            }),
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
        shapes::tool_input_schema(self.input_schema())
    }

    /// The schema of the result as an MCP tool shows it: names and types of the fields.
    #[must_use]
    pub fn tool_output_schema(&self) -> Schema {
        shapes::tool_output_schema(self.output_schema())
    }

    /// Whether arguments can be read, without doing anything about them.
    pub fn check(&self, input: Value) -> Result<()> {
        (self.check)(input)
    }

    pub(crate) fn call(
        &self,
        engine: Engine,
        context: CallContext,
        input: Value,
    ) -> BoxFuture<'static, Result<Value>> {
        (self.handler)(engine, context, input)
    }
}

/// Reads arguments into their type; the message names the field.
fn parse<T: DeserializeOwned>(operation: &str, input: Value) -> Result<T> {
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
    entries: Arc<[Entry]>,
}

impl Registry {
    /// Every operation Isle has.
    #[must_use]
    pub fn standard() -> Self {
        Self { entries: standard().into() }
    }

    /// All of them.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// One by name.
    pub fn get(&self, name: &str) -> Result<&Entry> {
        self.entries.iter().find(|entry| entry.name == name).ok_or_else(|| {
            Error::new(Code::OperationNotFound, format!("there is no operation {name:?}"))
                .detail("operations", self.entries.iter().map(|entry| entry.name).collect::<Vec<_>>())
                .next("choose one of the operations listed in `details`")
        })
    }
}

fn standard() -> Vec<Entry> {
    vec![
        Entry::of::<exec::Exec>(),
        Entry::of::<run_code::RunCode>(),
        Entry::of::<read_file::ReadFile>(),
        Entry::of::<write_files::WriteFiles>(),
        Entry::of::<list_files::ListFiles>(),
        Entry::of::<logs::Logs>(),
        Entry::of::<wait::Wait>(),
        Entry::of::<kill::Kill>(),
        Entry::of::<status::Status>(),
        Entry::of::<destroy::Destroy>(),
        Entry::of::<history::History>(),
        Entry::of::<run::RunOnce>(),
        Entry::of::<create::Create>(),
        Entry::of::<list::List>(),
        Entry::of::<contexts::ListContexts>(),
        Entry::of::<contexts::InterruptContext>(),
        Entry::of::<contexts::RestartContext>(),
        Entry::of::<contexts::RemoveContext>(),
        Entry::of::<env::Env>(),
        Entry::of::<validate::Validate>(),
        Entry::of::<install::Install>(),
        Entry::of::<reset::Reset>(),
        Entry::of::<extend::Extend>(),
        Entry::of::<pause::Pause>(),
        Entry::of::<pause::Resume>(),
        Entry::of::<spawn::Spawn>(),
        Entry::of::<children::Children>(),
        Entry::of::<children::DestroyChild>(),
        Entry::of::<children::ResetSpawnCount>(),
        Entry::of::<bridge::Bridge>(),
        Entry::of::<jobs::StartJob>(),
        Entry::of::<jobs::ListJobs>(),
        Entry::of::<jobs::WriteJob>(),
        Entry::of::<run_commands::RunCommands>(),
        Entry::of::<edit_file::EditFile>(),
        Entry::of::<search_files::SearchFiles>(),
        Entry::of::<move_file::MoveFile>(),
        Entry::of::<watch_files::WatchFiles>(),
        Entry::of::<copy_in::CopyIn>(),
        Entry::of::<copy_out::CopyOut>(),
        Entry::of::<sync::SyncStart>(),
        Entry::of::<sync::SyncStop>(),
        Entry::of::<sync::SyncList>(),
        Entry::of::<mirror::SyncPush>(),
        Entry::of::<mirror::SyncPull>(),
        Entry::of::<git_clone::GitClone>(),
        Entry::of::<network::Allow>(),
        Entry::of::<network::RevokeGrant>(),
        Entry::of::<network::Grants>(),
        Entry::of::<network::Net>(),
        Entry::of::<namespace_grants::AllowNamespace>(),
        Entry::of::<namespace_grants::RevokeNamespaceGrant>(),
        Entry::of::<namespace_grants::NamespaceGrants>(),
        Entry::of::<requests::NetworkRequests>(),
        Entry::of::<requests::ApproveRequest>(),
        Entry::of::<requests::DenyRequest>(),
        Entry::of::<ports::Expose>(),
        Entry::of::<ports::Unexpose>(),
        Entry::of::<ports::WaitForPort>(),
        Entry::of::<secrets::SecretSet>(),
        Entry::of::<secrets::SecretList>(),
        Entry::of::<secrets::SecretRemove>(),
        Entry::of::<secrets::SecretAttach>(),
        Entry::of::<secrets::SecretDetach>(),
        Entry::of::<stat_file::StatFile>(),
        Entry::of::<remove_file::RemoveFile>(),
        Entry::of::<audit::Audit>(),
        Entry::of::<audit_verify::AuditVerify>(),
        Entry::of::<limits::Limits>(),
        Entry::of::<usage::Usage>(),
        Entry::of::<inspect::Inspect>(),
        Entry::of::<tokens::CreateToken>(),
        Entry::of::<tokens::ListTokens>(),
        Entry::of::<tokens::RevokeToken>(),
        Entry::of::<events::Events>(),
        Entry::of::<webhooks::AddWebhook>(),
        Entry::of::<webhooks::ListWebhooks>(),
        Entry::of::<webhooks::RemoveWebhook>(),
        Entry::of::<stats::Stats>(),
        Entry::of::<runtimes::Runtimes>(),
        Entry::of::<health::Health>(),
    ]
}

#[cfg(test)]
mod tests;
