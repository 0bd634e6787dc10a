//! `spawn`: a child sandbox with a share of its parent's rights.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::children::ChildBrief;
use super::{Effect, Method, Operation, Route, Toolset};
use crate::backend::Tier;
use crate::children::SpawnRequest;
use crate::context::CallContext;
use crate::engine::Engine;
use crate::error::Result;
use crate::values::{ByteSize, SandboxName, Span};

pub(super) struct Spawn;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Input {
    /// Whose child, default "default".
    parent: Option<SandboxName>,
    /// Name of the child; numbered after its parent when left away.
    name: Option<SandboxName>,
    /// One of the allowed images; the first when left away.
    image: Option<String>,
    /// Not weaker than the parent's.
    tier: Option<Tier>,
    /// CPUs, at least 1; cut to what is allowed.
    cpus: Option<f64>,
    /// At least 64M; cut to what is allowed.
    memory: Option<ByteSize>,
    /// How long it lives; cut to what is allowed.
    ttl: Option<Span>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Output {
    /// The child.
    #[serde(flatten)]
    child: ChildBrief,
    /// How many the parent has spawned so far.
    spawned: u32,
}

impl Operation for Spawn {
    type Input = Input;
    type Output = Output;
    const NAME: &'static str = "spawn";
    const TITLE: &'static str = "Spawn a child sandbox";
    const DESCRIPTION: &'static str = "Make a child of a sandbox, to split work. It has an empty workspace, at most its parent's rights, a deadline, and ends with its parent. Use it by its name. Needs a spawn policy of the operator.";
    const ROUTE: Route = Route { method: Method::Post, path: "/sandboxes/{parent}/children" };
    const TOOLSET: Toolset = Toolset::Children;
    const EFFECT: Effect = Effect::Changes;

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
        let child = engine.inner.spawn(&context, &parent, request).await?;
        Ok(Output {
            child: ChildBrief::of(&child),
            spawned: engine.inner.children.spawned(&context.address(&parent)),
        })
    }
}
