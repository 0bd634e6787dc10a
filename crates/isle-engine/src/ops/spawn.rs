//! `spawn`: a child sandbox with a share of its parent's rights.

use super::Handler;
use crate::children::{SpawnRequest, child_brief};
use crate::context::CallContext;
use crate::engine::Engine;
use isle_api::ops::spawn::{Input, Output, Spawn};
use isle_core::Result;
use isle_core::values::SandboxName;

impl Handler for Spawn {
    async fn call(engine: Engine, context: CallContext, input: Input) -> Result<Output> {
        let parent = input.parent.unwrap_or_else(SandboxName::default_sandbox);
        let request = SpawnRequest {
            name: input.name,
            image: input.image,
            tier: input.tier,
            cpus: input.cpus,
            memory: input.memory,
            ttl: input.ttl,
        };
        let child = engine.inner.children.spawn(&context, &parent, request).await?;
        Ok(Output {
            child: child_brief(&child),
            spawned: engine.inner.children.spawned(&context.address(&parent)),
        })
    }
}
