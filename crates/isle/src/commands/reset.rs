//! `isle reset`: recreates sandboxes; an error does not stop the others.

use std::process::ExitCode;

use isle_client::Result;
use serde_json::json;

use super::Context;
use super::call_each::call_each;
use crate::arguments::ResetArguments;

pub(super) async fn reset(context: &Context, arguments: ResetArguments) -> Result<ExitCode> {
    let client = context.client().await?;
    let input = |name: &str| json!({ "sandbox": name, "wipe": arguments.wipe });
    call_each(context, &client, "reset", &arguments.names, input, "reset").await
}
