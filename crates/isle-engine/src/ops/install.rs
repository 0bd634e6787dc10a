//! `install`: packages for a sandbox, by its own tools.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::inputs::{named_place, sandbox_or_default};
use super::shapes::{RunResult, RunState};
use super::{Effect, Method, Operation, Route, Toolset};
use crate::context::CallContext;
use crate::engine::Engine;
use crate::error::{Code, Error, Result};
use crate::install::{Addresses, Manager, Wanted, hint, last_words};
use crate::run::{OnCancel, answer_budget};
use crate::values::{SandboxName, Span};

pub(super) struct Install;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Input {
    /// Sandbox name, default "default".
    sandbox: Option<SandboxName>,
    /// E.g. ["numpy", "pandas==2.2"]; paths of package files start with / or ./.
    packages: Vec<String>,
    /// Left out: by what the image has.
    manager: Option<Manager>,
    /// Address of another package index.
    index: Option<String>,
    /// Take addresses as packages, default false.
    allow_urls: Option<bool>,
    /// What the installation may reach: pip, npm, apt for what these use on this host, or hosts. The operator's.
    #[serde(default)]
    allow: Vec<String>,
    /// Default 120s.
    timeout: Option<Span>,
    /// Answer after this at the latest; the run goes on.
    wait: Option<Span>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Output {
    sandbox: SandboxName,
    manager: Manager,
    packages: Vec<String>,
    /// Whether they are there now.
    installed: bool,
    /// What to do when they are not.
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
    /// The installation as a run.
    run: RunResult,
}

impl Operation for Install {
    type Input = Input;
    type Output = Output;
    const NAME: &'static str = "install";
    const TITLE: &'static str = "Install packages";
    const DESCRIPTION: &'static str =
        "Install packages in a sandbox with pip, npm, apt or apk. They stay until it is reset or destroyed.";
    const ROUTE: Route = Route { method: Method::Post, path: "/sandboxes/{sandbox}/install" };
    const TOOLSET: Toolset = Toolset::Environment;
    const EFFECT: Effect = Effect::Changes;

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
        let granting = inner.asked(&context, &input.allow, None).await?;
        // Before a sandbox is made for it.
        wanted.check(&inner.image_of(&context.address(&name)))?;
        let sandbox = inner.ensure(&context, &name).await?;
        let mut chosen = wanted.choose(&sandbox).await?;
        chosen.granting = granting;
        let run = inner.start_install(&context, named_place(Some(name.clone())), &chosen).await?;
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
            run: inner.snapshot_of(&run).result(answer_budget(None, &inner.config)),
        })
    }
}
