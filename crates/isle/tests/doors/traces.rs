//! Everywhere a value could show up that was in a sandbox: what every door says of a command that prints
//! it, what is told and kept of a run, files of the daemon, and processes.

use std::path::Path;
use std::process::Command;

use serde_json::json;

use crate::harness::http::Events;
use crate::harness::{TestDaemon, finish, until};
use crate::mcp::Client;

/// A place, and what is there.
pub(crate) type Trace = (String, String);

/// What the doors say of a command while it speaks, and right after it: over HTTP, to a model, as one of
/// several commands, on the command line, on a terminal, and as the events of a job.
pub(crate) fn spoken(daemon: &TestDaemon, sandbox: &str, command: &str) -> Vec<Trace> {
    let at = |rest: &str| format!("/v1/sandboxes/{sandbox}/{rest}");
    let run = daemon.exec(sandbox, json!({ "command": command }));
    let batch = daemon.post(&at("commands"), json!({ "commands": [{ "command": command }] }));
    let job = daemon.post(&at("jobs"), json!({ "name": "speaker", "command": command }));
    let path = format!("GET /v1/runs/{}/events", job["run_id"].as_str().unwrap());
    let events = Events::open(&daemon.socket(), &path, &[], "").rest();
    let (mut client, _) = Client::initialized(daemon, "2025-11-25");
    let model = client.call("exec", json!({ "sandbox": sandbox, "command": command }));
    [
        ("exec", run.to_string()),
        ("commands", batch.to_string()),
        ("events of a run", events.iter().map(|event| event.data.to_string()).collect()),
        ("a model", model.to_string()),
        ("the command line", daemon.succeeds(&["exec", sandbox, "--", "sh", "-c", command])),
        ("a terminal", daemon.succeeds(&["exec", sandbox, "--tty", "--", "sh", "-c", command])),
    ]
    .map(|(place, text)| (place.to_owned(), text))
    .into()
}

/// What is told and kept of a run, and of everything before it: records, audit, events, the daemon's log
/// and what it has on disk besides the sandboxes' own files.
pub(crate) fn records(daemon: &TestDaemon, run: &str) -> Vec<Trace> {
    until("its events are written", || daemon.get("/v1/events/history?limit=500").to_string().contains(run));
    let paths = [
        "/v1/runs?limit=500".to_owned(),
        "/v1/audit?limit=500".to_owned(),
        "/v1/events/history?limit=500".to_owned(),
        "/v1/secrets".to_owned(),
        format!("/v1/runs/{run}/logs"),
    ];
    let mut found: Vec<Trace> = paths
        .into_iter()
        .map(|path| {
            let told = daemon.get(&path).to_string();
            (path, told)
        })
        .collect();
    found.push(("isle history".to_owned(), daemon.succeeds(&["history"])));
    found.push(("the log".to_owned(), daemon.log()));
    for name in ["isle.db", "isle.db-wal", "isle.log"] {
        if let Ok(bytes) = std::fs::read(daemon.home().state_dir().join(name)) {
            found.push((name.to_owned(), String::from_utf8_lossy(&bytes).into_owned()));
        }
    }
    found
}

/// The files below a directory that hold a value.
pub(crate) fn files_with(directory: &Path, value: &str) -> Vec<String> {
    let found = finish(Command::new("grep").args(["-rlaF", "--devices=skip", "--", value]).arg(directory));
    String::from_utf8_lossy(&found.stdout).lines().map(str::to_owned).collect()
}

/// Processes whose environment or command line holds a value, as far as we may look.
pub(crate) fn processes_showing(value: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        for part in ["environ", "cmdline"] {
            let path = entry.path().join(part);
            let shows = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).contains(value);
            if std::fs::read(&path).is_ok_and(shows) {
                found.push(path.display().to_string());
            }
        }
    }
    found
}
