//! `list`: the named sandboxes.

use super::Handler;
use crate::context::CallContext;
use crate::engine::Engine;
use crate::sandbox::{Sandbox, on_the_wall};
use isle_api::ops::list::{Input, List, Output, SandboxBrief};
use isle_api::times::timestamp;
use isle_core::Result;

pub(super) fn sandbox_brief(sandbox: &Sandbox) -> SandboxBrief {
    SandboxBrief {
        name: sandbox.name.clone(),
        id: sandbox.id.clone(),
        state: sandbox.shown_state(),
        backend: sandbox.backend.name(),
        tier: sandbox.spec.tier,
        image: sandbox.spec.image.clone(),
        running_runs: sandbox.running(),
        created_at: timestamp(sandbox.created_at_ms),
        last_used_at: timestamp(sandbox.last_used_ms()),
        // A child has the time it was given, by the wall clock.
        expires_at: match sandbox.child_of() {
            Some(child) => Some(timestamp(child.expires_at_ms)),
            None => sandbox.lease.expires().map(on_the_wall).map(timestamp),
        },
        idle_expires_at: sandbox.lease.idle_until().map(on_the_wall).map(timestamp),
        profile: sandbox.profile.as_ref().map(|profile| profile.name.clone()),
        runs: sandbox.lease.runs(),
        parent: sandbox.child_of().map(|child| child.parent.name.clone()),
        drifted: sandbox.drifted(),
    }
}

impl Handler for List {
    async fn call(engine: Engine, context: CallContext, _: Input) -> Result<Output> {
        let fleet = &engine.inner.fleet;
        let sandboxes =
            fleet.named_in(&context.namespace).iter().map(|sandbox| sandbox_brief(sandbox)).collect();
        Ok(Output { sandboxes, one_shots: fleet.one_shots_in(&context.namespace) })
    }
}
