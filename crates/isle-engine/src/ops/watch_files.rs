//! `watch_files`: what happened to files since the last look.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::inputs::{User, sandbox_or_default};
use super::{Effect, Method, Operation, Route, Toolset};
use crate::context::{CallContext, Door};
use crate::engine::Engine;
use crate::error::{Code, Error, Result};
use crate::values::{GuestPath, SandboxName, Span};
use crate::watch::{Cursor, FileEvent};

/// Events in one answer.
const PAGE: usize = 1000;
const PAGE_OF_A_MODEL: usize = 200;

pub(super) struct WatchFiles;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Input {
    sandbox: Option<SandboxName>,
    /// Directory or file, default /workspace.
    path: Option<GuestPath>,
    /// Also what is in its directories; default true.
    recursive: Option<bool>,
    /// Of the answer before; none begins to watch.
    cursor: Option<String>,
    /// How long to wait for something to happen, default 0s.
    wait: Option<Span>,
    user: Option<User>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Output {
    events: Vec<FileEvent>,
    /// Pass it to the next call.
    cursor: String,
    /// More happened than is told: look at the files themselves.
    overflow: bool,
    /// Nothing more will come: what was watched, or the sandbox, is gone.
    ended: bool,
}

impl Operation for WatchFiles {
    type Input = Input;
    type Output = Output;
    const NAME: &'static str = "watch_files";
    const TITLE: &'static str = "Watch files";
    const DESCRIPTION: &'static str = "What happened to files of a sandbox since the last look. The first call begins to watch and gives a cursor; later calls with it tell what was created, modified, removed or moved.";
    const ROUTE: Route = Route { method: Method::Get, path: "/sandboxes/{sandbox}/files/watch" };
    const TOOLSET: Toolset = Toolset::Files;
    const EFFECT: Effect = Effect::Reads;

    async fn call(engine: Engine, context: CallContext, input: Input) -> Result<Output> {
        let inner = &engine.inner;
        let wait = input.wait.unwrap_or(Span::seconds(0));
        if wait > inner.config.wait {
            return Err(Error::new(
                Code::InvalidArgument,
                format!("a wait of {wait} is longer than the longest allowed, {}", inner.config.wait),
            )
            .next("wait less and call again with the cursor"));
        }
        let cursor = input.cursor.as_deref().map(str::parse::<Cursor>).transpose()?;
        let name = sandbox_or_default(input.sandbox);
        let cursor = match cursor {
            Some(cursor) => {
                if input.path.is_some() || input.recursive.is_some() {
                    return Err(Error::new(
                        Code::InvalidArgument,
                        "cursor and path or recursive are both given",
                    )
                    .next("leave path and recursive out: the cursor knows what is watched"));
                }
                cursor
            }
            None => {
                let sandbox = inner.looked_at(&context, &name).await?;
                let path = input.path.unwrap_or_else(GuestPath::workspace);
                let user = input.user.unwrap_or_default().into();
                inner.begin_watch(&sandbox, &path, user, input.recursive.unwrap_or(true)).await?
            }
        };
        // A sandbox that died is not built anew to say that nothing happened in it.
        let address = context.address(&name);
        let sandbox = inner.fleet.get(&address).ok_or_else(|| inner.no_such_sandbox(&address))?;
        let page = if context.door == Door::Mcp { PAGE_OF_A_MODEL } else { PAGE };
        let seeing = inner.seen_since(&sandbox.id, cursor, wait.0, page);
        let seen = tokio::select! {
            seen = seeing => seen?,
            () = context.cancelled.cancelled() => return Err(crate::pipeline::cancelled()),
        };
        Ok(Output {
            events: seen.events,
            cursor: seen.cursor.to_string(),
            overflow: seen.overflow,
            ended: seen.ended,
        })
    }
}
