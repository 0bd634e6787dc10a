//! `isle reset`: sandboxes made anew. One that fails does not keep the others.

use std::process::ExitCode;

use isle_client::Result;
use serde_json::json;

use super::Context;
use super::each::each;
use crate::arguments::ResetArguments;

pub(super) async fn reset(context: &Context, arguments: ResetArguments) -> Result<ExitCode> {
    let client = context.client().await?;
    let input = |name: &str| json!({ "sandbox": name, "wipe": arguments.wipe });
    each(context, &client, "reset", &arguments.names, input, "reset").await
}
