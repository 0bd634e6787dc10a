//! `exec`: a command in a named sandbox.

use super::Handler;
use crate::context::CallContext;
use crate::engine::Engine;
use crate::run::{AnswerOptions, NamedOptions, Plan, RunKind, RunTarget, directory, program, text_input};
use crate::sandbox::Settings;
use isle_api::inputs::sandbox_or_default;
use isle_api::ops::exec::{Exec, Input};
use isle_api::shapes::RunResult;
use isle_core::Result;
use isle_vault::RequestedSecrets;

impl Handler for Exec {
    async fn call(engine: Engine, context: CallContext, input: Input) -> Result<RunResult> {
        let place = RunTarget::Named {
            name: sandbox_or_default(input.sandbox),
            options: NamedOptions {
                settings: Settings {
                    ttl: input.ttl,
                    idle: input.idle,
                    profile: input.profile,
                    backend: input.backend,
                    ..Settings::default()
                },
                resume: input.resume.unwrap_or(false),
            },
        };
        let program = program(input.command, input.argv)?;
        let plan = Plan {
            cwd: directory(input.cwd.as_deref())?,
            env: input.env.unwrap_or_default().0,
            input: text_input(input.stdin),
            user: input.user.unwrap_or_default().into(),
            timeout: engine.inner.runs.timeout(input.timeout),
            limits: input.limits.unwrap_or_default(),
            lock: input.lock.unwrap_or(false),
            secrets: RequestedSecrets::parse(&input.secrets, &input.expose_secrets)?,
            ..Plan::new(RunKind::Exec, place, program)
        };
        let options = AnswerOptions { wait: input.wait, output_limit: input.output_limit };
        engine.inner.runs.answer(&context, plan, options).await
    }
}
