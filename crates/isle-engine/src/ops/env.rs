//! `env`: variables of a sandbox that stay, seen by everything that starts in it from then on.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::inputs::{Environment, sandbox_or_default};
use super::{Effect, Method, Operation, Route, Toolset};
use crate::context::CallContext;
use crate::engine::Engine;
use crate::error::{Code, Error, Result};
use crate::run::looks_secret;
use crate::values::SandboxName;
use crate::variables::{Change, VariableName};

pub(super) struct Env;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(super) enum Action {
    /// Set `variables`.
    Set,
    /// Forget `names`.
    Unset,
    /// Show them.
    List,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Input {
    /// Sandbox name, default "default".
    sandbox: Option<SandboxName>,
    action: Action,
    /// For set: names and values.
    variables: Option<Environment>,
    /// For unset.
    names: Option<Vec<String>>,
}

/// One variable.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub(super) struct Variable {
    name: String,
    /// Only when listed, and not when the name looks like that of a secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    /// Whether the name looks like that of a secret; its value is not shown.
    looks_secret: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Output {
    sandbox: SandboxName,
    action: Action,
    /// Names whose value is another one now.
    changed: Vec<String>,
    /// All there are now.
    variables: Vec<Variable>,
    /// What should be known about them.
    warnings: Vec<String>,
}

impl Operation for Env {
    type Input = Input;
    type Output = Output;
    const NAME: &'static str = "env";
    const TITLE: &'static str = "Variables of a sandbox";
    const DESCRIPTION: &'static str = "Set, unset or list variables of a sandbox. They stay, and every command, job and new context sees them.";
    const ROUTE: Route = Route { method: Method::Post, path: "/sandboxes/{sandbox}/env" };
    const TOOLSET: Toolset = Toolset::Environment;
    const EFFECT: Effect = Effect::Idempotent;

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
            Action::Set => drop(inner.ensure(&context, &sandbox).await?),
            Action::Unset | Action::List if known || sandbox == SandboxName::default_sandbox() => {}
            Action::Unset | Action::List => return Err(inner.no_such_sandbox(&address)),
        }
        let changed = match input.action {
            Action::Set | Action::Unset => inner.change_variables(&context, &sandbox, &change)?,
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
