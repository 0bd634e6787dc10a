//! `audit_verify`: whether the audit chain is whole.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Effect, Method, Operation, Route, Toolset};
use crate::context::CallContext;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::journal::store_error;

pub(super) struct AuditVerify;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Input {}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Output {
    /// Whether nothing is wrong.
    intact: bool,
    /// Rows looked at.
    rows: u64,
    /// Hash of the newest row.
    head: String,
    /// The first place that is wrong.
    broken_at: Option<u64>,
    /// What was found, in a sentence.
    verdict: String,
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

    async fn call(engine: Engine, context: CallContext, _: Input) -> Result<Output> {
        context.operator_only("checking the audit chain of all namespaces")?;
        let store = engine.inner.journal.store().clone();
        // Reads the whole chain: nobody else should wait for that.
        let verdict = tokio::task::spawn_blocking(move || store.verify_audit())
            .await
            .map_err(Error::internal)?
            .map_err(store_error)?;
        Ok(Output {
            intact: verdict.is_intact(),
            rows: verdict.rows,
            broken_at: verdict.fault.as_ref().map(|fault| fault.seq),
            verdict: verdict.to_string(),
            head: verdict.head,
        })
    }
}
