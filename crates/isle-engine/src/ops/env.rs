//! `env`: variables of a sandbox that stay, seen by everything that starts in it from then on.

use super::Handler;
use crate::context::CallContext;
use crate::engine::Engine;
use crate::run::looks_secret;
use crate::variables::Change;
use isle_api::inputs::Environment;
use isle_api::inputs::sandbox_or_default;
use isle_api::ops::env::{Action, Env, Input, Output, Variable};
use isle_core::values::SandboxName;
use isle_core::values::VariableName;
use isle_core::{Code, Error, Result};

impl Handler for Env {
    async fn call(engine: Engine, context: CallContext, input: Input) -> Result<Output> {
        let inner = &engine.inner;
        let sandbox = sandbox_or_default(input.sandbox);
        let change = change(input.action, input.variables, input.names)?;
        let names = change.set.iter().map(|(name, _)| name.as_str());
        let warnings = inner.config.secret_names.judge(names)?.into_iter().collect();
        let address = context.address(&sandbox);
        let known = inner.fleet.get(&address).is_some() || !inner.variables.of(&address).is_empty();
        match input.action {
            // As with files: what is put into a sandbox makes it.
            Action::Set => drop(inner.sandboxes.ensure(&context, &sandbox).await?),
            Action::Unset | Action::List if known || sandbox == SandboxName::default_sandbox() => {}
            Action::Unset | Action::List => return Err(inner.fleet.no_such_sandbox(&address)),
        }
        let changed = match input.action {
            Action::Set | Action::Unset => inner.variables.change(&context, &sandbox, &change)?,
            Action::List => Vec::new(),
        };
        let all = inner.variables.of(&address);
        let variables = all.iter().map(|(name, value)| {
            let secret = looks_secret(name);
            let shown = input.action == Action::List && !secret;
            Variable { name: name.clone(), value: shown.then(|| value.clone()), looks_secret: secret }
        });
        let variables = variables.collect();
        Ok(Output { sandbox, action: input.action, changed, variables, warnings })
    }
}

/// What is to be changed; what belongs to another action is refused.
fn change(action: Action, variables: Option<Environment>, names: Option<Vec<String>>) -> Result<Change> {
    let refuse = |what: &str, next: &str| Err(Error::new(Code::InvalidArgument, what).next(next));
    // Some clients send every argument they know of; empty ones then mean nothing.
    let variables = variables.map(|Environment(pairs)| pairs).filter(|pairs| !pairs.is_empty());
    let names = names.filter(|names| !names.is_empty());
    match (action, variables, names) {
        (Action::Set, Some(pairs), None) => {
            let set = pairs.into_iter().map(|(name, value)| Ok((name.parse()?, value)));
            Ok(Change { set: set.collect::<Result<_>>()?, unset: Vec::new() })
        }
        (Action::Unset, None, Some(names)) => {
            let unset = names.iter().map(|name| name.parse::<VariableName>());
            Ok(Change { set: Vec::new(), unset: unset.collect::<Result<_>>()? })
        }
        (Action::List, None, None) => Ok(Change::default()),
        (Action::Set, ..) => refuse(
            "action set takes variables and nothing else",
            "give variables as an object such as {\"NAME\": \"value\"}",
        ),
        (Action::Unset, ..) => {
            refuse("action unset takes names and nothing else", "give names as a list such as [\"NAME\"]")
        }
        (Action::List, ..) => refuse(
            "action list takes neither variables nor names",
            "leave them out, or set the action to set",
        ),
    }
}
