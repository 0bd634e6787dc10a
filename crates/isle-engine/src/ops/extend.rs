//! `extend`: more time for a sandbox.

use schemars::JsonSchema;
use serde::Deserialize;

use super::list::SandboxBrief;
use super::{Effect, Method, Operation, Route, Toolset};
use crate::context::CallContext;
use crate::engine::Engine;
use crate::error::Result;
use crate::values::{SandboxName, Span};

pub(super) struct Extend;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Input {
    sandbox: SandboxName,
    /// How much longer, e.g. 30m: from its deadline, or from now when that has passed.
    by: Span,
}

impl Operation for Extend {
    type Input = Input;
    type Output = SandboxBrief;
    const NAME: &'static str = "extend";
    const TITLE: &'static str = "Extend a sandbox's time";
    const DESCRIPTION: &'static str =
        "Give a sandbox that has a TTL more time. The answer has its new deadline, expires_at.";
    const ROUTE: Route = Route { method: Method::Post, path: "/sandboxes/{sandbox}/extend" };
    const TOOLSET: Toolset = Toolset::Lifecycle;
    const EFFECT: Effect = Effect::Changes;

    async fn call(engine: Engine, context: CallContext, input: Input) -> Result<SandboxBrief> {
        let sandbox = engine.inner.extend(&context, &input.sandbox, input.by).await?;
        Ok(SandboxBrief::of(&sandbox))
    }
}
