//! `watch_files`: what happened to files since the last look.

use super::Handler;
use crate::context::{CallContext, Door};
use crate::engine::Engine;
use crate::files::watch::Cursor;
use isle_api::inputs::sandbox_or_default;
use isle_api::ops::watch_files::{Input, Output, WatchFiles};
use isle_core::values::{GuestPath, Span};
use isle_core::{Code, Error, Result};

/// Events in one answer.
const PAGE: usize = 1000;

const PAGE_OF_A_MODEL: usize = 200;

impl Handler for WatchFiles {
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
                let sandbox = inner.sandboxes.looked_at(&context, &name).await?;
                let path = input.path.unwrap_or_else(GuestPath::workspace);
                let user = input.user.unwrap_or_default().into();
                inner.watches.begin(&sandbox, &path, user, input.recursive.unwrap_or(true)).await?
            }
        };
        // A sandbox that died is not built anew to say that nothing happened in it.
        let address = context.address(&name);
        let sandbox = inner.fleet.get(&address).ok_or_else(|| inner.fleet.no_such_sandbox(&address))?;
        let page = if context.door == Door::Mcp { PAGE_OF_A_MODEL } else { PAGE };
        let seeing = inner.watches.seen_since(&sandbox.id, cursor, wait.0, page);
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
