//! `audit`: the rows of the audit chain.

use crate::{Effect, Method, Operation, Route, Toolset};
use isle_core::values::SandboxName;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The operation `audit`.
#[derive(Debug)]
pub struct Audit;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// Only this sandbox.
    pub sandbox: Option<SandboxName>,
    /// Only this action, such as exec.
    pub action: Option<String>,
    /// 1 to 500, default 100.
    pub limit: Option<u32>,
    /// Rows before this place in the chain.
    pub before: Option<u64>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Output {
    /// Newest first.
    pub rows: Vec<Row>,
    /// Give this as `before` for older rows; absent when there are none. A page may be short and have one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<u64>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct Row {
    /// Its place in the chain.
    pub seq: u64,
    /// When.
    pub time: String,
    /// Who.
    pub actor: String,
    /// Through which door.
    pub door: String,
    /// What.
    pub action: String,
    /// In which sandbox.
    pub sandbox: Option<String>,
    /// In which run.
    pub run: Option<String>,
    /// The rest.
    pub detail: Value,
    /// Hash of the row before, which may be another namespace's; told to the operator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prev_hash: Option<String>,
    /// Hash of this row.
    pub hash: String,
}

impl Operation for Audit {
    type Input = Input;
    type Output = Output;
    const NAME: &'static str = "audit";
    const TITLE: &'static str = "Audit log";
    const DESCRIPTION: &'static str =
        "What was done, by whom, through which door: the rows of the audit chain.";
    const ROUTE: Route = Route { method: Method::Get, path: "/audit" };
    const TOOLSET: Toolset = Toolset::None;
    const EFFECT: Effect = Effect::Reads;
}
