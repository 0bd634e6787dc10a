//! `isle spawn`: creates a child sandbox.

use std::process::ExitCode;

use isle_client::Result;
use serde_json::json;

use super::{Context, fields};
use crate::arguments::SpawnArguments;
use crate::output::show;

pub(super) async fn spawn(context: &Context, arguments: SpawnArguments) -> Result<ExitCode> {
    let SpawnArguments { parent, name, image, cpus, memory, ttl } = arguments;
    let input = json!({
        "parent": parent, "name": name, "image": image, "cpus": cpus, "memory": memory, "ttl": ttl,
    });
    let answer = context.client().await?.call("spawn", input).await?;
    show(context.form, &answer, |answer| format!("{}\n", fields::text(answer, "name")))
}
