//! `audit_verify`: whether the audit chain is whole.

use crate::{Effect, Method, Operation, Route, Toolset};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The operation `audit_verify`.
#[derive(Debug)]
pub struct AuditVerify;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// Only rows added since a check last found nothing wrong.
    #[serde(default)]
    pub since_last: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Output {
    /// Whether nothing is wrong.
    pub intact: bool,
    /// Rows in the chain, up to the first that is wrong.
    pub rows: u64,
    /// How many of them were checked now.
    pub checked: u64,
    /// Hash of the newest row.
    pub head: String,
    /// The first place that is wrong.
    pub broken_at: Option<u64>,
    /// What was found, in a sentence.
    pub verdict: String,
}

impl Operation for AuditVerify {
    type Input = Input;
    type Output = Output;
    const NAME: &'static str = "audit_verify";
    const TITLE: &'static str = "Check the audit log";
    const DESCRIPTION: &'static str = "Check the whole audit chain: finds an edited, removed or moved row.";
    const ROUTE: Route = Route { method: Method::Get, path: "/audit/verify" };
    const TOOLSET: Toolset = Toolset::None;
    const EFFECT: Effect = Effect::Reads;
}
