//! `isle limits`, `isle usage` and `isle inspect`, for operators.

use std::process::ExitCode;

use isle_client::Result;
use serde_json::{Value, json};

use super::{Context, fields};
use crate::arguments::{InspectArguments, LimitsArguments, UsageArguments};
use crate::output::{Paint, Table, show};

pub(super) async fn limits(context: &Context, arguments: LimitsArguments) -> Result<ExitCode> {
    let mut input = json!({
        "memory": arguments.memory,
        "cpus": arguments.cpus,
        "pids": arguments.pids,
        "disk": arguments.disk,
        "timeout": arguments.timeout,
        "max_running": arguments.max_running,
        "max_waiting": arguments.max_waiting,
        "max_sandboxes": arguments.max_sandboxes,
        "max_sandboxes_per_namespace": arguments.max_sandboxes_per_namespace,
        "memory_budget": arguments.memory_budget,
        "keep_output": arguments.keep_output,
        "keep_runs_for": arguments.keep_runs_for,
    });
    input["reset"] = arguments.reset.into();
    let answer = context.client().await?.call("limits", input).await?;
    show(context.form, &answer, |answer| {
        let mut table = Table::new(&["LIMIT", "VALUE", "PREVIOUS", "MAXIMUM"]);
        let (before, caps) = (&answer["before"], &answer["caps"]);
        for name in answer["now"].as_object().into_iter().flat_map(serde_json::Map::keys) {
            let (now, earlier) = (fields::text(&answer["now"], name), fields::text(before, name));
            let earlier = if now == earlier { String::new() } else { earlier };
            let most = match name.as_str() {
                "max_running" | "max_waiting" | "max_sandboxes" | "max_sandboxes_per_namespace" => "count",
                other => other,
            };
            let most = caps.get(most).map(|_| fields::text(caps, most)).unwrap_or_default();
            table.row([name.clone(), now, earlier, most]);
        }
        table.render(Paint::for_stdout())
    })
}

pub(super) async fn usage(context: &Context, arguments: UsageArguments) -> Result<ExitCode> {
    let input = json!({ "sandbox": arguments.name, "run_id": arguments.run });
    let answer = context.client().await?.call("usage", input).await?;
    show(context.form, &answer, |answer| {
        if let Some(run) = answer.get("run") {
            // Of runs that went on together only the sum is known.
            let most = if run["network"]["shared"] == true { "≤ " } else { "" };
            let network = |name| format!("{most}{}", fields::bytes(&run["network"], name));
            let mut table = Table::new(&[
                "RUN",
                "STATE",
                "TIME",
                "CPU",
                "PEAK MEMORY",
                "READ",
                "WRITTEN",
                "NET OUT",
                "NET IN",
                "PIDS",
                "STDOUT",
                "STDERR",
            ]);
            table.row([
                fields::text(run, "run_id"),
                fields::text(run, "state"),
                fields::millis(run, "duration_ms"),
                fields::millis(run, "cpu_ms"),
                fields::bytes(run, "peak_memory_bytes"),
                fields::bytes(run, "io_read_bytes"),
                fields::bytes(run, "io_write_bytes"),
                network("sent_bytes"),
                network("received_bytes"),
                fields::text(run, "peak_pids"),
                fields::bytes(run, "stdout_bytes"),
                fields::bytes(run, "stderr_bytes"),
            ]);
            return table.render(Paint::for_stdout());
        }
        let mut table = Table::new(&[
            "NAME",
            "CPU",
            "MEMORY",
            "PEAK",
            "PIDS",
            "DISK",
            "READ",
            "WRITTEN",
            "NET OUT",
            "NET IN",
            "RUNS",
            "RUNNING",
            "MEASURED BY",
        ]);
        for sandbox in fields::list(answer, "sandboxes") {
            table.row([
                fields::text(sandbox, "name"),
                fields::millis(sandbox, "cpu_ms"),
                fields::bytes(sandbox, "memory_bytes"),
                fields::bytes(sandbox, "memory_peak_bytes"),
                fields::text(sandbox, "pids"),
                fields::bytes(sandbox, "disk_bytes"),
                fields::bytes(sandbox, "io_read_bytes"),
                fields::bytes(sandbox, "io_write_bytes"),
                fields::bytes(sandbox, "network_sent_bytes"),
                fields::bytes(sandbox, "network_received_bytes"),
                fields::text(sandbox, "runs"),
                fields::text(sandbox, "running_runs"),
                fields::text(sandbox, "measured_by"),
            ]);
        }
        if table.is_empty() {
            return "No sandboxes.\n".to_owned();
        }
        table.render(Paint::for_stdout())
    })
}

pub(super) async fn inspect(context: &Context, arguments: InspectArguments) -> Result<ExitCode> {
    let answer = context.client().await?.call("inspect", json!({ "sandbox": arguments.name })).await?;
    show(context.form, &answer, |answer| {
        let shown: Vec<String> = fields::list(answer, "sandboxes").iter().map(details).collect();
        if shown.is_empty() { "No sandboxes.\n".to_owned() } else { shown.join("\n") }
    })
}

/// One sandbox, one line per item.
fn details(sandbox: &Value) -> String {
    let limits = &sandbox["limits"];
    let mut lines = vec![
        format!(
            "{} ({}, {})",
            fields::text(sandbox, "name"),
            fields::text(sandbox, "state"),
            fields::text(sandbox, "tier")
        ),
        format!(
            "  limits     {} memory, {} CPUs, {} processes, {} disk",
            fields::text(limits, "memory"),
            fields::text(limits, "cpus"),
            fields::text(limits, "pids"),
            fields::text(limits, "disk")
        ),
    ];
    for (key, what) in [("expires_at", "expires at"), ("idle_expires_at", "expires if idle at")] {
        if sandbox.get(key).is_some() {
            lines.push(format!("  deadline   {what} {}", fields::text(sandbox, key)));
        }
    }
    for variable in fields::list(sandbox, "variables") {
        lines.push(format!(
            "  variable   {}={}",
            fields::text(variable, "name"),
            fields::text(variable, "value")
        ));
    }
    for secret in fields::list(sandbox, "secrets") {
        let how = if secret["exposed"] == true { "value" } else { "placeholder" };
        lines.push(format!(
            "  secret     {} as {how} in {}",
            fields::text(secret, "name"),
            fields::text(secret, "variable")
        ));
    }
    for context in fields::list(sandbox, "contexts") {
        lines.push(format!(
            "  context    {} ({}, {} calls)",
            fields::text(context, "name"),
            fields::text(context, "language"),
            fields::text(context, "calls")
        ));
    }
    for run in fields::list(sandbox, "running") {
        let name =
            if run.get("job").is_some() { fields::text(run, "job") } else { fields::text(run, "run_id") };
        let state = if run["queued"] == true { "waiting" } else { "running" };
        lines.push(format!("  {state}    {name}: {}", fields::text(run, "command")));
    }
    for sync in fields::list(sandbox, "syncs") {
        lines.push(format!(
            "  sync       {} follows {}",
            fields::text(sync, "path"),
            fields::text(sync, "host_path")
        ));
    }
    lines.push(String::new());
    lines.join("\n")
}
