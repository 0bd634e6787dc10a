//! `isle status`: details of one sandbox, or of the daemon and its sandboxes.

use std::process::ExitCode;

use isle_client::{Client, Result};
use isle_core::backend::{Guarantee, GuaranteeStatus};
use serde_json::{Value, json};

use super::ls::sandbox_table;
use super::{Context, fields};
use crate::arguments::StatusArguments;
use crate::output::{Colour, Paint, Table, escaped, shortened, show};

pub(super) async fn status(context: &Context, arguments: StatusArguments) -> Result<ExitCode> {
    let client = context.client().await?;
    match arguments.name {
        Some(name) => {
            let answer = client.call("status", json!({ "sandbox": name })).await?;
            show(context.form, &answer, |answer| sandbox(answer, Paint::for_stdout()))
        }
        None => daemon(context, &client).await,
    }
}

async fn daemon(context: &Context, client: &Client) -> Result<ExitCode> {
    let daemon = client.version().await?;
    let health = client.call("health", json!({})).await?;
    let listed = client.call("list", json!({})).await?;
    let value = json!({
        "daemon": daemon,
        "endpoint": client.endpoint().to_string(),
        "health": health,
        "sandboxes": listed["sandboxes"],
    });
    show(context.form, &value, |value| {
        let health = &value["health"];
        let mut text = format!(
            "isle {}, pid {}, since {}\n  state   {}\n  socket  {}\n  runs    {} running, {} waiting\n",
            escaped(&daemon.version),
            daemon.pid,
            escaped(&daemon.started_at),
            escaped(&daemon.state_dir),
            escaped(&fields::text(value, "endpoint")),
            fields::text(health, "running"),
            fields::text(health, "waiting"),
        );
        for tier in fields::list(health, "tiers") {
            let state = match (tier["available"].as_bool(), tier["available_with_downgrade"].as_bool()) {
                (Some(true), _) => "available",
                (_, Some(true)) => "not fully enforced on this host, see `isle doctor`",
                _ => "unavailable on this host, see `isle doctor`",
            };
            let name = format!("{} ({})", fields::text(tier, "tier"), fields::text(tier, "backend"));
            text.push_str(&format!("  tier    {}: {state}\n", escaped(&name)));
        }
        text.push('\n');
        text.push_str(&sandbox_table(value));
        text
    })
}

fn sandbox(answer: &Value, paint: Paint) -> String {
    let mut text = sandbox_table(answer);
    let detail = &answer["detail"];
    let (limits, usage) = (&detail["limits"], &detail["usage"]);
    text.push_str(&format!(
        "\nmemory  {} of {} (peak {})\ndisk    {} of {}\npids    {} of {}\ncpus    {} ({} used)\n",
        fields::bytes(usage, "memory_bytes"),
        fields::text(limits, "memory"),
        fields::bytes(usage, "memory_peak_bytes"),
        fields::bytes(usage, "disk_bytes"),
        fields::text(limits, "disk"),
        fields::text(usage, "pids"),
        fields::text(limits, "pids"),
        fields::text(limits, "cpus"),
        fields::millis(usage, "cpu_ms"),
    ));
    if usage["disk_inodes"].is_u64() {
        let (used, limit) = (fields::text(usage, "disk_inodes"), fields::text(usage, "disk_inodes_limit"));
        text.push_str(&format!("inodes  {used} of {limit} (files and directories on its disk)\n"));
    }
    if usage["disk_note"].is_string() {
        text.push_str(&format!("note    {}\n", escaped(&fields::text(usage, "disk_note"))));
    }
    let runs = fields::list(detail, "runs");
    if !runs.is_empty() {
        let mut table = Table::new(&["RUN", "FOR", "COMMAND"]);
        for run in runs {
            table.row([
                fields::text(run, "run_id"),
                fields::millis(run, "elapsed_ms"),
                shortened(&fields::text(run, "command"), 60),
            ]);
        }
        text.push_str(&format!("\n{}", table.render(paint)));
    }
    text.push('\n');
    for line in fields::list(detail, "containment") {
        if let Ok(guarantee) = serde_json::from_value::<Guarantee>(line.clone()) {
            text.push_str(&guarantee_line(&guarantee, paint));
        }
    }
    text
}

/// One line of a containment report, followed by its fix.
pub(super) fn guarantee_line(guarantee: &Guarantee, paint: Paint) -> String {
    let mark = match guarantee.status {
        GuaranteeStatus::Enforced => paint.plain(Colour::Green, "✓"),
        GuaranteeStatus::Watched => paint.plain(Colour::Yellow, "~"),
        GuaranteeStatus::Missing => paint.plain(Colour::Red, "✗"),
    };
    let mut text = format!("  {mark} {}: {}\n", escaped(&guarantee.key), escaped(&guarantee.how));
    if !guarantee.fix.is_empty() {
        text.push_str(&format!("      {} {}\n", paint.plain(Colour::Cyan, "→"), escaped(&guarantee.fix)));
    }
    text
}
