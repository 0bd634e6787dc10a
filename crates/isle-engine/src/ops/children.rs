//! `children`, `destroy_child` and `reset_spawn_count`: what descends from a sandbox, and its end.

use super::Handler;
use crate::children::family_shape;
use crate::context::CallContext;
use crate::engine::{Engine, Inner};
use crate::sandbox::Sandbox;
use isle_api::ops::children::{
    Children, ChildrenInput, CountReset, DestroyChild, DestroyInput, Destroyed, Family, ResetSpawnCount,
};
use isle_core::values::SandboxName;
use isle_core::{Code, Error, Result};
use std::sync::Arc;

fn known(inner: &Inner, context: &CallContext, parent: Option<SandboxName>) -> Result<Arc<Sandbox>> {
    let parent = context.address(&parent.unwrap_or_else(SandboxName::default_sandbox));
    inner.fleet.get(&parent).ok_or_else(|| inner.fleet.no_such_sandbox(&parent))
}

impl Handler for Children {
    async fn call(engine: Engine, context: CallContext, input: ChildrenInput) -> Result<Family> {
        let parent = known(&engine.inner, &context, input.parent)?;
        Ok(family_shape(&engine.inner.children, &parent))
    }
}

impl Handler for DestroyChild {
    async fn call(engine: Engine, context: CallContext, input: DestroyInput) -> Result<Destroyed> {
        let inner = &engine.inner;
        let address = context.address(&input.child);
        let child = inner.fleet.get(&address).ok_or_else(|| inner.fleet.no_such_sandbox(&address))?;
        let Some(of) = child.child_of().cloned() else {
            return Err(Error::new(Code::PermissionDenied, format!("{} is nobody's child", child.name))
                .next("`destroy` removes it, if that is what you want"));
        };
        let descendants = inner.fleet.family(&child.id).iter().map(|sandbox| sandbox.name.clone()).collect();
        let parent = of.parent.name.clone();
        inner.sandboxes.destroy_child(&context, of).await?;
        Ok(Destroyed { child: input.child, parent, descendants })
    }
}

impl Handler for ResetSpawnCount {
    async fn call(engine: Engine, context: CallContext, input: ChildrenInput) -> Result<CountReset> {
        context.operator_only("the count of children")?;
        let parent = known(&engine.inner, &context, input.parent)?.name.clone();
        let before = engine.inner.children.reset_count(&context, &parent)?;
        Ok(CountReset { parent, before })
    }
}
