//! `isle wait`: waits until runs have exited. The exit code is that of the last run given.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use isle_api::shapes::RunResult;
use isle_client::{Client, Result};
use isle_core::values::Span;
use isle_core::{Code, Error};
use serde_json::{Value, json};

use super::Context;
use crate::arguments::WaitArguments;
use crate::output::{Form, Paint, Table, human_millis, print, print_json};
use crate::session::code_of;

/// How long one call waits; further calls continue waiting.
const ONE_CALL: Duration = Duration::from_secs(45);

pub(super) async fn wait(context: &Context, arguments: WaitArguments) -> Result<ExitCode> {
    let limit = arguments.timeout.as_deref().map(str::parse::<Span>).transpose()?;
    let until = limit.map(|limit| Instant::now() + limit.0);
    let client = context.client().await?;
    let mut results = Vec::new();
    for run in &arguments.runs {
        results.push(ended(&client, run, until).await?);
    }
    match context.form {
        Form::Json => print_json(&json!(results)),
        Form::Human => {
            let mut table = Table::new(&["RUN", "SANDBOX", "STATE", "EXIT", "TOOK"]);
            for result in &results {
                table.row([
                    result.run_id.to_string(),
                    result.sandbox.to_string(),
                    result.state.as_str().to_owned(),
                    result.exit_code.map_or_else(|| "-".to_owned(), |code| code.to_string()),
                    human_millis(result.duration_ms),
                ]);
            }
            print(&table.render(Paint::for_stdout()));
        }
    }
    Ok(results.last().map_or(ExitCode::SUCCESS, |result| ExitCode::from(code_of(result))))
}

async fn ended(client: &Client, run: &str, until: Option<Instant>) -> Result<RunResult> {
    loop {
        let left =
            until.map_or(ONE_CALL, |until| until.saturating_duration_since(Instant::now()).min(ONE_CALL));
        let wait = Value::from(format!("{}ms", left.as_millis()));
        let result: RunResult = client.call_as("wait", json!({ "run_id": run, "timeout": wait })).await?;
        if result.state.is_final() {
            return Ok(result);
        }
        if until.is_some_and(|until| Instant::now() >= until) {
            return Err(Error::new(Code::Busy, format!("run {run} has not exited yet"))
                .next("wait longer, or kill it with `isle kill`")
                .into());
        }
    }
}
