//! `list_files`: what a directory holds.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::inputs::{User, sandbox_or_default};
use super::search_files::check_glob;
use super::shapes::{FileFacts, KindName};
use super::{Effect, Method, Operation, Route, Toolset};
use crate::context::{CallContext, Door};
use crate::engine::Engine;
use crate::error::{Code, Error, Result};
use crate::values::{GuestPath, SandboxName};

pub(super) struct ListFiles;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Input {
    sandbox: Option<SandboxName>,
    /// Default /workspace.
    path: Option<GuestPath>,
    /// Levels down, default 1.
    depth: Option<u32>,
    /// Entries at most, default 200.
    limit: Option<u32>,
    /// Such as "*.py"; at any depth.
    glob: Option<String>,
    user: Option<User>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Output {
    path: String,
    entries: Vec<Listed>,
    /// There are more than limit.
    truncated: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub(super) struct Listed {
    path: String,
    kind: KindName,
    size: u64,
    mode: String,
    modified: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    /// The name's bytes when they are not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    path_base64: Option<String>,
}

impl Operation for ListFiles {
    type Input = Input;
    type Output = Output;
    const NAME: &'static str = "list_files";
    const TITLE: &'static str = "List files";
    const DESCRIPTION: &'static str = "List a directory of a sandbox.";
    const ROUTE: Route = Route { method: Method::Get, path: "/sandboxes/{sandbox}/files/list" };
    const TOOLSET: Toolset = Toolset::Core;
    const EFFECT: Effect = Effect::Reads;

    async fn call(engine: Engine, context: CallContext, input: Input) -> Result<Output> {
        let refuse = |what: &str, next: &str| Err(Error::new(Code::InvalidArgument, what).next(next));
        // Who looks for a name looks everywhere.
        let deep = if input.glob.is_some() { 32 } else { 1 };
        let (depth, limit) = (input.depth.unwrap_or(deep), input.limit.unwrap_or(200));
        if !(1..=32).contains(&depth) {
            return refuse("depth is out of range", "choose 1 to 32");
        }
        if !(1..=10_000).contains(&limit) {
            return refuse("limit is out of range", "choose 1 to 10000");
        }
        check_glob(input.glob.as_deref())?;
        // A model's context is not to be flooded.
        let limit = if context.door == Door::Mcp { limit.min(200) } else { limit };
        let path = input.path.unwrap_or_else(GuestPath::workspace);
        let sandbox = engine.inner.looked_at(&context, &sandbox_or_default(input.sandbox)).await?;
        let user = input.user.unwrap_or_default().into();
        let listing = sandbox.agent()?.list(&path, user, depth, limit, input.glob).await?;
        let entries = listing
            .entries
            .into_iter()
            .map(|entry| {
                let facts = FileFacts::of(&entry.stat);
                let bytes: &[u8] = &entry.path;
                let path_base64 = std::str::from_utf8(bytes).err().map(|_| STANDARD.encode(bytes));
                Listed {
                    path: String::from_utf8_lossy(bytes).into_owned(),
                    kind: facts.kind,
                    size: facts.size,
                    mode: facts.mode,
                    modified: facts.modified,
                    target: entry.target.map(|target| String::from_utf8_lossy(&target).into_owned()),
                    path_base64,
                }
            })
            .collect();
        Ok(Output { path: path.absolute(), entries, truncated: listing.truncated })
    }
}
