//! `list_files`: what a directory holds.

use super::Handler;
use super::search_files::check_glob;
use crate::context::{CallContext, Door};
use crate::engine::Engine;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use isle_api::inputs::sandbox_or_default;
use isle_api::ops::list_files::{Input, ListFiles, Listed, Output};
use isle_api::shapes::FileFacts;
use isle_core::values::GuestPath;
use isle_core::{Code, Error, Result};

impl Handler for ListFiles {
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
        let sandbox = engine.inner.sandboxes.looked_at(&context, &sandbox_or_default(input.sandbox)).await?;
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
