//! `audit`: the rows of the audit chain.

use isle_store::AuditFilter;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::times::timestamp;
use super::{Effect, Method, Operation, Route, Toolset};
use crate::context::CallContext;
use crate::engine::Engine;
use crate::error::Result;
use crate::journal::store_error;
use crate::values::SandboxName;

pub(super) struct Audit;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Input {
    /// Only this sandbox.
    sandbox: Option<SandboxName>,
    /// Only this action, such as exec.
    action: Option<String>,
    /// 1 to 500, default 100.
    limit: Option<u32>,
    /// Rows before this place in the chain.
    before: Option<u64>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Output {
    /// Newest first.
    rows: Vec<Row>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub(super) struct Row {
    /// Its place in the chain.
    seq: u64,
    /// When.
    time: String,
    /// Who.
    actor: String,
    /// Through which door.
    door: String,
    /// What.
    action: String,
    /// In which sandbox.
    sandbox: Option<String>,
    /// In which run.
    run: Option<String>,
    /// The rest.
    detail: Value,
    /// Hash of the row before.
    prev_hash: String,
    /// Hash of this row.
    hash: String,
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

    async fn call(engine: Engine, context: CallContext, input: Input) -> Result<Output> {
        let filter = AuditFilter {
            namespace: Some(context.namespace.to_string()),
            action: input.action,
            sandbox: input.sandbox.map(|name| name.to_string()),
            limit: input.limit.unwrap_or(100),
            before: input.before,
        };
        let rows = engine.inner.journal.store().audit(&filter).map_err(store_error)?;
        let rows = rows
            .into_iter()
            .map(|row| Row {
                seq: row.seq,
                time: timestamp(row.time_ms),
                actor: row.actor,
                door: row.door,
                action: row.action,
                sandbox: row.sandbox,
                run: row.run,
                detail: row.detail,
                prev_hash: row.prev_hash,
                hash: row.hash,
            })
            .collect();
        Ok(Output { rows })
    }
}
