//! What the tests share: rows with sensible contents, and a second, raw way into the database.

use std::path::Path;

use isle_store::{AuditEntry, RunEnd, RunNetwork, RunOutput, RunRow, SandboxRow, Store};
use serde_json::json;

pub(crate) fn sandbox(id: &str, name: Option<&str>) -> SandboxRow {
    SandboxRow {
        namespace: String::new(),
        id: id.to_owned(),
        name: name.map(str::to_owned),
        kind: if name.is_some() { "named" } else { "one_shot" }.to_owned(),
        state: "creating".to_owned(),
        spec: json!({"tier": "container"}),
        fingerprint: "f1".to_owned(),
        anchor: json!(null),
        containment: json!({}),
        created_at_ms: 1_000,
        last_used_ms: 1_000,
        lease: json!(null),
    }
}

pub(crate) fn run(id: &str, sandbox: &str) -> RunRow {
    RunRow {
        id: id.to_owned(),
        sandbox_id: format!("id-of-{sandbox}"),
        sandbox_name: Some(sandbox.to_owned()),
        door: "cli".to_owned(),
        actor: "uid:1000".to_owned(),
        kind: "exec".to_owned(),
        command: "echo hello".to_owned(),
        started_at_ms: 2_000,
        state: "running".to_owned(),
        violations: json!([]),
        limits_hit: json!([]),
        ..RunRow::default()
    }
}

/// What a run moved through a gate.
pub(crate) const NETWORK: RunNetwork =
    RunNetwork { sent_bytes: 3, received_bytes: 5, connections: 2, denied: 1, shared: true };

pub(crate) fn end(state: &str) -> RunEnd {
    RunEnd {
        state: state.to_owned(),
        exit_code: Some(0),
        duration_ms: Some(12),
        cpu_us: Some(900),
        peak_rss_kib: Some(2_048),
        io_read_bytes: Some(512),
        io_write_bytes: Some(1_024),
        network: Some(NETWORK),
        peak_tasks: Some(4),
        stdout_bytes: 6,
        ended_at_ms: 2_012,
        violations: json!([]),
        limits_hit: json!([]),
        output: RunOutput { stdout_head: b"hello\n".to_vec(), ..RunOutput::default() },
        ..RunEnd::default()
    }
}

pub(crate) fn entry(action: &str, sandbox: &str) -> AuditEntry {
    AuditEntry {
        namespace: None,
        time_ms: 2_012,
        actor: "uid:1000".to_owned(),
        door: "cli".to_owned(),
        action: action.to_owned(),
        sandbox: Some(sandbox.to_owned()),
        run: None,
        detail: json!({"command": "echo hello"}),
    }
}

/// Appends `count` entries.
pub(crate) fn fill_audit(store: &Store, count: u64) {
    for _ in 0..count {
        store.append_audit(&entry("exec", "default")).unwrap();
    }
}

/// The database by another door, as somebody with an editor has it.
pub(crate) fn raw(directory: &Path) -> rusqlite::Connection {
    let connection = rusqlite::Connection::open(directory.join("isle.db")).unwrap();
    connection.busy_timeout(std::time::Duration::from_secs(5)).unwrap();
    connection
}
