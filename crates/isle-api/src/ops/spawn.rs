//! `spawn`: a child sandbox with a share of its parent's rights.

use super::children::ChildBrief;
use crate::{Effect, Method, Operation, Route, Toolset};
use isle_core::backend::Tier;
use isle_core::values::{ByteSize, ChildName, SandboxName, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The operation `spawn`.
#[derive(Debug)]
pub struct Spawn;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// Whose child, default "default".
    pub parent: Option<SandboxName>,
    /// Name of the child below its parent; numbered when left away.
    pub name: Option<ChildName>,
    /// One of the allowed images; the first when left away.
    pub image: Option<String>,
    /// Not weaker than the parent's.
    pub tier: Option<Tier>,
    /// CPUs, at least 1; cut to what is allowed.
    pub cpus: Option<f64>,
    /// At least 64M; cut to what is allowed.
    pub memory: Option<ByteSize>,
    /// How long it lives; cut to what is allowed.
    pub ttl: Option<Span>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Output {
    /// The child.
    #[serde(flatten)]
    pub child: ChildBrief,
    /// How many the parent has spawned so far.
    pub spawned: u32,
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
}
