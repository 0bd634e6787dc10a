//! `install`: packages for a sandbox, by its own tools.

use super::Handler;
use crate::context::CallContext;
use crate::engine::Engine;
use crate::install::{Addresses, Wanted, hint, last_words};
use crate::network::AskedGrants;
use crate::run::{OnCancel, answer_budget, named_target};
use isle_api::inputs::sandbox_or_default;
use isle_api::ops::install::{Input, Install, Output};
use isle_api::shapes::RunState;
use isle_core::{Code, Error, Result};

impl Handler for Install {
    async fn call(engine: Engine, context: CallContext, input: Input) -> Result<Output> {
        let inner = &engine.inner;
        let name = sandbox_or_default(input.sandbox);
        let addresses =
            if input.allow_urls.unwrap_or(false) { Addresses::Allowed } else { Addresses::Refused };
        let wanted = Wanted {
            manager: input.manager,
            packages: input.packages,
            addresses,
            index: input.index,
            timeout: input.timeout,
        };
        let asked = AskedGrants::read(&context, &input.allow, None)?;
        // Before a sandbox is made for it.
        wanted.check(&inner.sandboxes.image_of(&context.address(&name)))?;
        let sandbox = inner.sandboxes.ensure(&context, &name).await?;
        let mut chosen = wanted.choose(&sandbox).await?;
        chosen.asked = asked;
        let run = inner.installer.start(&context, named_target(Some(name.clone())), &chosen).await?;
        run.wait(&context, input.wait.unwrap_or(inner.config.wait).0, OnCancel::Kill).await?;
        if let Some(error) = run.finish().and_then(|finish| finish.error.clone()) {
            return Err(error);
        }
        let state = run.state();
        let hint = match state {
            RunState::Running | RunState::Queued | RunState::Completed => None,
            _ => hint(chosen.manager, &last_words(&run)),
        };
        if let Some(why) = hint.as_ref().filter(|words| words.contains("has no pip")) {
            return Err(Error::new(
                Code::RuntimeNotAvailable,
                format!("image {:?} has no pip", sandbox.spec.image),
            )
            .next(why.clone()));
        }
        Ok(Output {
            sandbox: name,
            manager: chosen.manager,
            packages: wanted.packages,
            installed: state == RunState::Completed,
            hint,
            run: inner.runs.snapshot_of(&run).result(answer_budget(None, &inner.config)),
        })
    }
}
