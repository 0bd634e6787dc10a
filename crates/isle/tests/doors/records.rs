//! What is on record: the history of runs, and an audit log that cannot be changed unseen.

use serde_json::{Value, json};

use crate::harness::{TestDaemon, finish};

#[test]
fn history_is_newest_first_and_says_how_each_run_ended() {
    let daemon = TestDaemon::start();
    daemon.exec("box", json!({"command": "echo first"}));
    daemon.exec("box", json!({"command": "exit 2"}));
    daemon.exec("other", json!({"argv": ["sleep", "79"], "timeout": "200ms"}));
    let runs = daemon.get("/v1/runs")["runs"].as_array().unwrap().clone();
    let states: Vec<&str> = runs.iter().map(|run| run["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["timed_out", "failed", "completed"]);
    assert_eq!(runs[1]["exit_code"], 2);
    assert!(runs[0]["duration_ms"].is_u64() && runs[0]["age_seconds"].is_u64(), "{}", runs[0]);
    assert!(runs[0]["command"].as_str().unwrap().contains("sleep"));
    let of_box = daemon.get("/v1/runs?sandbox=box&limit=1");
    assert_eq!(of_box["runs"].as_array().unwrap().len(), 1);
    let older = daemon.get(&format!("/v1/runs?before={}", runs[1]["run_id"].as_str().unwrap()));
    assert_eq!(older["runs"][0]["run_id"], runs[2]["run_id"]);
    daemon.succeeds(&["rm", "box", "other"]);
    assert_eq!(
        daemon.get("/v1/runs?sandbox=box")["runs"].as_array().unwrap().len(),
        2,
        "it outlives the sandbox"
    );
    assert!(daemon.succeeds(&["history", "box"]).contains("echo first"));
}

#[test]
fn listings_are_followed_page_by_page_to_their_end() {
    let daemon = TestDaemon::start();
    for _ in 0..5 {
        daemon.exec("box", json!({"command": "true"}));
    }
    for (path, list, key) in
        [("/v1/audit", "rows", "seq"), ("/v1/runs", "runs", "run_id"), ("/v1/events/history", "events", "id")]
    {
        let all = |answer: &Value| -> Vec<Value> {
            answer[list].as_array().unwrap().iter().map(|row| row[key].clone()).collect()
        };
        let whole = daemon.get(&format!("{path}?limit=400"));
        assert!(whole["before"].is_null(), "{whole}");
        let mut pages: Vec<Value> = Vec::new();
        let mut next = format!("{path}?limit=2");
        loop {
            let page = daemon.get(&next);
            pages.extend(all(&page));
            match &page["before"] {
                Value::Null => break,
                Value::String(id) => next = format!("{path}?limit=2&before={id}"),
                number => next = format!("{path}?limit=2&before={number}"),
            }
        }
        assert_eq!(pages, all(&whole), "{path}");
    }
    // The command line follows them by itself.
    assert_eq!(daemon.succeeds(&["history", "--limit", "5", "--json"]).matches("run_id").count(), 5);
}

#[test]
fn rows_that_were_checked_before_need_not_be_checked_again() {
    let daemon = TestDaemon::start();
    daemon.exec("box", json!({"command": "true"}));
    assert!(daemon.succeeds(&["audit", "--verify"]).contains("audit chain intact"));
    daemon.exec("box", json!({"command": "true"}));
    let since = daemon.get("/v1/audit/verify?since_last=true");
    assert_eq!((&since["intact"], &since["checked"]), (&json!(true), &json!(1)), "{since}");
    assert!(daemon.succeeds(&["audit", "--verify", "--since-last"]).contains("0 new rows of"));
}

#[test]
fn every_deed_is_audited_with_its_door_and_the_stages_it_passed() {
    let daemon = TestDaemon::start();
    daemon.exec("box", json!({"command": "true"}));
    daemon.succeeds(&["exec", "box", "--allow", "example.com:443", "--", "true"]);
    daemon.post(
        "/v1/secrets",
        json!({"name": "KEY", "value": "a-long-value-of-a-secret", "hosts": ["example.com"]}),
    );
    daemon.exec("other", json!({"command": "true", "secrets": ["KEY"]}));
    daemon.post("/v1/sandboxes/box/files/write", json!({"files": [{"path": "a", "content": "b"}]}));
    daemon.succeeds(&["rm", "box"]);
    let rows = daemon.get("/v1/audit")["rows"].as_array().unwrap().clone();
    let actions: Vec<&str> = rows.iter().map(|row| row["action"].as_str().unwrap()).collect();
    for action in ["create_sandbox", "exec", "write_files", "destroy_sandbox"] {
        assert!(actions.contains(&action), "{actions:?}");
    }
    let doors: Vec<&Value> = rows.iter().map(|row| &row["door"]).collect();
    assert!(doors.contains(&&json!("http")) && doors.contains(&&json!("cli")), "{doors:?}");
    let of = |action: &str, sandbox: &str| {
        rows.iter().find(|row| row["action"] == action && row["sandbox"] == sandbox).unwrap()
    };
    // Only what did something for a run is in its row.
    let exec = of("exec", "box");
    assert_eq!(exec["detail"]["stages"], json!(["admit", "validate", "execute", "audit"]), "{exec}");
    let secret = of("exec", "other");
    let stages = json!(["admit", "secrets", "validate", "execute", "mask", "audit"]);
    assert_eq!(secret["detail"]["stages"], stages, "{secret}");
    assert_eq!(exec["detail"]["network"], json!([]), "nothing could be reached: {exec}");
    let session = of("session", "box");
    let stages = json!(["admit", "network", "validate", "execute", "audit"]);
    assert_eq!(session["detail"]["stages"], stages, "{session}");
    assert_eq!(session["detail"]["network"], json!(["example.com:443"]), "{session}");
    for pair in rows.windows(2) {
        assert_eq!(pair[0]["prev_hash"], pair[1]["hash"], "each row holds on to the one before");
    }
}

#[test]
fn an_audit_row_that_was_changed_is_found_and_named() {
    let edits = [
        ("edited", "UPDATE audit SET detail = replace(detail, 'completed', 'harmless') WHERE seq = ?1"),
        ("edited", "UPDATE audit SET actor = 'somebody else' WHERE seq = ?1"),
        ("removed", "DELETE FROM audit WHERE seq = ?1"),
        ("moved", "UPDATE audit SET seq = seq + 1000 WHERE seq = ?1"),
    ];
    for (what, statement) in edits {
        let mut daemon = TestDaemon::start();
        for command in ["echo one", "echo two", "echo three"] {
            daemon.exec("box", json!({ "command": command }));
        }
        let whole = daemon.succeeds(&["audit", "--verify"]);
        assert!(whole.contains("audit chain intact"), "{whole}");
        let rows = daemon.get("/v1/audit?action=exec");
        let seq = rows["rows"][1]["seq"].as_i64().unwrap();
        daemon.terminate();
        let database = rusqlite::Connection::open(daemon.home().state_dir().join("isle.db")).unwrap();
        assert_eq!(database.execute(statement, [seq]).unwrap(), 1);
        drop(database);
        daemon.launch();
        let output = finish(&mut daemon.isle(&["audit", "--verify"]));
        let said = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(1), "{what}: {said}");
        assert!(said.contains("broken"), "{what}: {said}");
        let verdict = daemon.get("/v1/audit/verify");
        assert_eq!(verdict["intact"], false);
        let at = verdict["broken_at"].as_i64().unwrap();
        assert!(at == seq || at == seq + 1, "{what}: row {seq}, told {verdict}");
    }
}
