//! `isle allow`, `revoke`, `net`, `expose`, `unexpose`, `url`: the network of a sandbox.

use std::process::ExitCode;

use isle_client::Result;
use serde_json::{Value, json};

use super::{Context, fields};
use crate::arguments::{
    AllowArguments, ExposeArguments, NetArguments, RevokeArguments, UnexposeArguments, UrlArguments,
};
use crate::output::{Form, Paint, Table, escaped, print_stderr, show};

pub(super) async fn allow(context: &Context, arguments: AllowArguments) -> Result<ExitCode> {
    let AllowArguments { name, mut hosts, all, lifetime, total, rate } = arguments;
    let client = context.client().await?;
    if all {
        hosts.insert(0, name);
        let input = json!({ "hosts": hosts, "lifetime": lifetime, "total": total, "rate": rate });
        let answer = client.call("allow_namespace", input).await?;
        return show(context.form, &answer, shared_table);
    }
    let input =
        json!({ "sandbox": name, "hosts": hosts, "lifetime": lifetime, "total": total, "rate": rate });
    let answer = client.call("allow", input).await?;
    show(context.form, &answer, table)
}

pub(super) async fn revoke(context: &Context, arguments: RevokeArguments) -> Result<ExitCode> {
    let RevokeArguments { name, mut hosts, all } = arguments;
    let client = context.client().await?;
    if all {
        hosts.insert(0, name);
        let answer = client.call("revoke_namespace_grant", json!({ "hosts": hosts })).await?;
        return show(context.form, &answer, shared_table);
    }
    let answer = client.call("revoke_grant", json!({ "sandbox": name, "hosts": hosts })).await?;
    show(context.form, &answer, table)
}

pub(super) fn table(answer: &Value) -> String {
    let mut table = Table::new(&["GRANT", "SOURCE", "EXPIRES IN", "CONNECTIONS", "SENT", "RECEIVED"]);
    for grant in fields::list(answer, "grants") {
        table.row([
            fields::text(grant, "grant"),
            fields::text(grant, "source"),
            grant["seconds_left"].as_u64().map_or_else(|| "-".to_owned(), |left| format!("{left}s")),
            grant["connections"].to_string(),
            grant["sent_bytes"].to_string(),
            grant["received_bytes"].to_string(),
        ]);
    }
    if table.is_empty() {
        return "No grants: all connections are denied. Allow a host with `isle allow NAME HOST`.\n"
            .to_owned();
    }
    table.render(Paint::for_stdout())
}

/// Grants of all sandboxes of a namespace.
pub(super) fn shared_table(answer: &Value) -> String {
    let mut table = Table::new(&["GRANT", "SOURCE", "EXPIRES IN"]);
    for grant in fields::list(answer, "grants") {
        table.row([
            fields::text(grant, "grant"),
            "namespace".to_owned(),
            grant["seconds_left"].as_u64().map_or_else(|| "-".to_owned(), |left| format!("{left}s")),
        ]);
    }
    if table.is_empty() {
        return "No grants for the namespace. Allow a host for all its sandboxes with `isle allow --all HOST`.\n"
            .to_owned();
    }
    table.render(Paint::for_stdout())
}

pub(super) async fn net(context: &Context, arguments: NetArguments) -> Result<ExitCode> {
    let input = json!({ "sandbox": arguments.name, "limit": arguments.limit });
    let answer = context.client().await?.call("net", input).await?;
    show(context.form, &answer, log)
}

fn log(answer: &Value) -> String {
    let mut table = Table::new(&["TIME", "TARGET", "OUTCOME", "SENT", "RECEIVED", "REASON"]);
    for entry in fields::list(answer, "log") {
        let count = |key: &str| entry[key].as_u64().map_or_else(|| "-".to_owned(), |bytes| bytes.to_string());
        table.row([
            fields::text(entry, "time"),
            fields::text(entry, "target"),
            fields::text(entry, "outcome"),
            count("sent_bytes"),
            count("received_bytes"),
            entry["message"].as_str().map(escaped).unwrap_or_default(),
        ]);
    }
    let mut total = format!(
        "{} connections completed, {} open, {} denied, {} failed\n",
        answer["connections"], answer["open"], answer["denied"], answer["failed"]
    );
    if let Some(latency) = answer["latency_ms"].as_f64() {
        total.push_str(&format!("average connect time: {latency} ms\n"));
    }
    for port in fields::list(answer, "ports") {
        total.push_str(&format!(
            "port {} on 127.0.0.1:{}: {} connections, {} open, {} rejected, {} bytes sent, {} bytes received\n",
            port["port"],
            port["host_port"],
            port["connections"],
            port["open"],
            port["refused"],
            port["sent_bytes"],
            port["received_bytes"]
        ));
    }
    let peers: Vec<String> =
        fields::list(answer, "peers").iter().filter_map(Value::as_str).map(escaped).collect();
    if !peers.is_empty() {
        let ports: Vec<String> = fields::list(answer, "peer_ports").iter().map(Value::to_string).collect();
        total.push_str(&format!("peers: {} on port {}\n", peers.join(", "), ports.join(", ")));
    }
    if let Some(proxied) = answer.get("proxied") {
        total.push_str(&format!(
            "HTTP port proxy: {} connections, {} open, {} rejected, {} bytes sent, {} bytes received\n",
            proxied["connections"],
            proxied["open"],
            proxied["refused"],
            proxied["sent_bytes"],
            proxied["received_bytes"]
        ));
    }
    if table.is_empty() { total } else { table.render(Paint::for_stdout()) + &total }
}

pub(super) async fn expose(context: &Context, arguments: ExposeArguments) -> Result<ExitCode> {
    let ExposeArguments { name, port, host_port, wait } = arguments;
    let client = context.client().await?;
    if let Some(wait) = wait {
        client.call("wait_for_port", json!({ "sandbox": name, "port": port, "wait": wait })).await?;
    }
    let input = json!({ "sandbox": name, "port": port, "host_port": host_port });
    let answer = client.call("expose", input).await?;
    if let Some(warning) = answer["warning"].as_str() {
        print_stderr(&format!("isle: {}", escaped(warning)));
    }
    show(context.form, &answer, |answer| fields::text(answer, "address") + "\n")
}

pub(super) async fn unexpose(context: &Context, arguments: UnexposeArguments) -> Result<ExitCode> {
    let input = json!({ "sandbox": arguments.name, "port": arguments.port });
    let answer = context.client().await?.call("unexpose", input).await?;
    show(context.form, &answer, |_| String::new())
}

pub(super) async fn url(context: &Context, arguments: UrlArguments) -> Result<ExitCode> {
    let UrlArguments { name, port, lifetime, wait } = arguments;
    let client = context.client().await?;
    if let Some(wait) = wait {
        client.call("wait_for_port", json!({ "sandbox": name, "port": port, "wait": wait })).await?;
    }
    let input = json!({ "sandbox": name, "port": port, "lifetime": lifetime });
    let answer = client.call("port_url", input).await?;
    if answer["listening"] == false {
        print_stderr(&format!("isle: no process listens on port {port} in the sandbox yet"));
    }
    let shown = show(context.form, &answer, |answer| fields::text(answer, "url") + "\n");
    if context.form == Form::Human {
        // The URL is for browsers: its redirect needs a client that stores cookies.
        let [header, ticket, address] =
            ["header", "ticket", "address"].map(|name| fields::text(&answer, name));
        print_stderr(&format!("isle: without a browser: curl -H '{header}: {ticket}' http://{address}/"));
    }
    shown
}
