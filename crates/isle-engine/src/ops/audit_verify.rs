//! `audit_verify`: whether the audit chain is whole.

use super::Handler;
use crate::context::CallContext;
use crate::engine::Engine;
use crate::journal::store_error;
use isle_api::ops::audit_verify::{AuditVerify, Input, Output};
use isle_core::{Error, Result};

impl Handler for AuditVerify {
    async fn call(engine: Engine, context: CallContext, input: Input) -> Result<Output> {
        context.operator_only("checking the audit chain of all namespaces")?;
        let store = engine.inner.journal.store().clone();
        // Reads the whole chain: nobody else should wait for that.
        let verdict = tokio::task::spawn_blocking(move || match input.since_last {
            true => store.verify_new_audit(),
            false => store.verify_audit(),
        })
        .await
        .map_err(Error::internal)?
        .map_err(store_error)?;
        Ok(Output {
            intact: verdict.is_intact(),
            rows: verdict.rows,
            checked: verdict.checked,
            broken_at: verdict.fault.as_ref().map(|fault| fault.seq),
            verdict: verdict.to_string(),
            head: verdict.head,
        })
    }
}
