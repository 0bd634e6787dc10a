//! `audit`: the rows of the audit chain.

use super::Handler;
use crate::context::{CallContext, CallerRole};
use crate::engine::Engine;
use isle_api::ops::audit::{Audit, Input, Output, Row};
use isle_api::times::timestamp;
use isle_core::Result;
use isle_store::AuditFilter;

impl Handler for Audit {
    async fn call(engine: Engine, context: CallContext, input: Input) -> Result<Output> {
        let filter = AuditFilter {
            namespace: Some(context.namespace.to_string()),
            action: input.action,
            sandbox: input.sandbox.map(|name| name.to_string()),
            limit: input.limit.unwrap_or(100),
            before: input.before,
        };
        let page = engine.inner.journal.listed(&context, move |listing| listing.audit(&filter)).await?;
        let rows = page
            .rows
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
                prev_hash: (context.role == CallerRole::Operator).then_some(row.prev_hash),
                hash: row.hash,
            })
            .collect();
        Ok(Output { rows, before: page.next })
    }
}
