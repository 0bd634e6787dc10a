//! `extend`: more time for a sandbox.

use super::list::SandboxBrief;
use crate::{Effect, Method, Operation, Route, Toolset};
use isle_core::values::{SandboxName, Span};
use schemars::JsonSchema;
use serde::Deserialize;

/// The operation `extend`.
#[derive(Debug)]
pub struct Extend;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Input {
    pub sandbox: SandboxName,
    /// How much longer, e.g. 30m: from its deadline, or from now when that has passed.
    pub by: Span,
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
}
