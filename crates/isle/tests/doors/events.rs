//! What happens is told once, from where it happens: in the history, as a stream that is taken up again,
//! on the command line and to a model. What is secret is not told.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::harness::http::Events;
use crate::harness::{TestDaemon, Watchdog, finish, require, until, until_some};
use crate::mcp::Client;
use crate::tenants::{listening, tenant};
use crate::trees::with_root;

/// Events of the history that fit a query, oldest first.
pub(crate) fn told(daemon: &TestDaemon, query: &str) -> Vec<Value> {
    let answer = daemon.get(&format!("/v1/events/history?limit=1000&{query}"));
    let mut events = answer["events"].as_array().unwrap().clone();
    events.reverse();
    events
}

fn kinds(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["kind"].as_str().unwrap()).collect()
}

/// The kinds of the events of one run.
fn kinds_of(daemon: &TestDaemon, run: &Value) -> Vec<String> {
    let run = run["run_id"].as_str().unwrap();
    kinds(&told(daemon, &format!("run_id={run}"))).into_iter().map(str::to_owned).collect()
}

/// A run is answered before its end is told.
fn until_told(daemon: &TestDaemon, run: &Value, expected: &[&str]) {
    until(&format!("{expected:?} is told"), || kinds_of(daemon, run) == expected);
}

#[test]
fn every_end_of_a_run_is_told_once_by_its_own_kind() {
    let daemon = TestDaemon::start_with(&[("ISLE_DENY_PATTERNS", "forbidden_word")]);
    let done = daemon.exec("box", json!({"command": "echo hello"}));
    until_told(&daemon, &done, &["run_started", "run_completed"]);
    let failed = daemon.exec("box", json!({"command": "exit 3"}));
    until_told(&daemon, &failed, &["run_started", "run_failed"]);
    let event = told(&daemon, &format!("run_id={}&kind=run_failed", failed["run_id"].as_str().unwrap()));
    assert_eq!(event[0]["data"]["exit_code"], 3, "{event:?}");
    assert_eq!((&event[0]["sandbox"], &event[0]["namespace"]), (&json!("box"), &json!("default")));
    let late = daemon.exec("box", json!({"command": "sleep 60", "timeout": "100ms"}));
    until_told(&daemon, &late, &["run_started", "run_timed_out"]);
    let big = json!({"command": "exec head -c 2M /dev/zero > big", "limits": {"file_size": "1M"}});
    let big = daemon.exec("box", big);
    until_told(&daemon, &big, &["run_started", "run_killed", "resource_exceeded"]);
    let going = daemon.exec("box", json!({"command": "sleep 60", "wait": "0s"}));
    daemon.post(&format!("/v1/runs/{}/kill", going["run_id"].as_str().unwrap()), json!({}));
    until_told(&daemon, &going, &["run_started", "run_killed"]);
    daemon.refused("POST", "/v1/sandboxes/box/exec", Some(&json!({"command": "forbidden_word"})));
    let denied = told(&daemon, "kind=run_denied");
    assert_eq!((denied.len(), &denied[0]["data"]["command"]), (1, &json!("forbidden_word")), "{denied:?}");
}

#[test]
fn the_life_of_sandboxes_jobs_sessions_and_syncs_is_told_once() {
    let (daemon, root) = with_root(&[]);
    daemon.shell("box", "true");
    let job = json!({"sandbox": "box", "name": "builder", "command": "echo built"});
    daemon.post("/v1/sandboxes/box/jobs", job);
    until("the job is told", || kinds(&told(&daemon, "kind=job_ended")) == ["job_ended"]);
    assert_eq!(told(&daemon, "kind=job_started")[0]["data"]["job"], "builder");
    assert_eq!(daemon.succeeds(&["exec", "box", "--", "echo", "hi"]), "hi\n");
    let sessions = || told(&daemon, "kind=session_opened&kind=session_closed");
    until("the session is told", || kinds(&sessions()) == ["session_opened", "session_closed"]);
    let host = root.path().to_str().unwrap();
    let sync = daemon.post("/v1/syncs", json!({"sandbox": "box", "host_path": host, "path": "mirror"}));
    daemon.http("DELETE", &format!("/v1/syncs/{}", sync["sync"].as_str().unwrap()), None);
    let syncs = || told(&daemon, "kind=sync_started&kind=sync_stopped");
    until("the sync is told", || kinds(&syncs()) == ["sync_started", "sync_stopped"]);
    daemon.post("/v1/sandboxes/box/reset", json!({}));
    daemon.http("DELETE", "/v1/sandboxes/box", None);
    let life = told(&daemon, "sandbox=box&kind=sandbox_created&kind=sandbox_reset&kind=sandbox_destroyed");
    assert_eq!(kinds(&life), ["sandbox_created", "sandbox_reset", "sandbox_destroyed"], "{life:?}");
    let once = daemon.post("/v1/runs", json!({"command": "true"}));
    let name = once["sandbox"].as_str().unwrap();
    until("the one-shot is gone", || {
        let life = told(&daemon, &format!("sandbox={name}"));
        kinds(&life) == ["sandbox_created", "run_started", "run_completed", "sandbox_destroyed"]
    });
    let all = told(&daemon, "");
    assert!(all.windows(2).all(|pair| pair[0]["id"].as_u64() < pair[1]["id"].as_u64()), "{all:?}");
}

#[test]
fn packages_that_were_installed_are_told() {
    let daemon = TestDaemon::start();
    require!(crate::install::needs_pip(&daemon));
    crate::install::wheel(&daemon, "box", "isle_demo", "1.0");
    let packages =
        json!({"packages": ["./isle_demo-1.0-py3-none-any.whl"], "manager": "pip", "wait": "100s"});
    daemon.post("/v1/sandboxes/box/install", packages);
    let installed = told(&daemon, "kind=package_installed");
    assert_eq!(installed.len(), 1, "{installed:?}");
    let packages = json!(["./isle_demo-1.0-py3-none-any.whl"]);
    assert_eq!(
        (&installed[0]["data"]["manager"], &installed[0]["data"]["packages"]),
        (&json!("pip"), &packages)
    );
}

#[test]
fn what_is_secret_is_in_no_event() {
    let daemon = TestDaemon::start();
    daemon.post(
        "/v1/sandboxes/box/env",
        json!({"action": "set", "variables": {"DEPLOY_TOKEN": "hunter2hunter2"}}),
    );
    daemon.shell("box", "echo hunter2hunter2 > /dev/null; OTHER_PASSWORD=swordfish true");
    let given = json!({"command": "echo opensesame", "env": {"API_KEY": "opensesame", "PLAIN": "visible"}});
    daemon.exec("box", given);
    let all = daemon.get("/v1/events/history?limit=1000").to_string();
    for secret in ["hunter2", "swordfish", "opensesame"] {
        assert!(!all.contains(secret), "{secret}: {all}");
    }
    assert!(all.contains("OTHER_PASSWORD=*** true") && all.contains("echo ***"), "{all}");
    let stream = told(&daemon, "kind=run_started");
    assert_eq!(stream.len(), 2, "{stream:?}");
}

#[test]
fn a_stream_is_taken_up_where_it_was_left_also_after_a_restart_and_a_crash() {
    let mut daemon = TestDaemon::start();
    let mut events = Events::open(&daemon.socket(), "GET /v1/events?kind=run_completed", &[], "");
    daemon.shell("box", "echo one");
    let first = events.next().unwrap();
    assert_eq!((first.name.as_str(), &first.data["sandbox"]), ("run_completed", &json!("box")));
    assert_eq!(first.data["id"], first.id);
    daemon.shell("box", "echo two");
    let second = events.next().unwrap().id;
    daemon.terminate();
    assert!(events.rest().is_empty(), "the stream ends with the daemon");
    daemon.launch();
    let resume = format!("Last-Event-ID: {}", first.id);
    let mut events = Events::open(&daemon.socket(), "GET /v1/events?kind=run_completed", &[&resume], "");
    assert_eq!(events.next().unwrap().id, second, "what happened before the restart is in the history");
    daemon.shell("box", "echo three");
    let third = events.next().unwrap().id;
    assert!(third > second);
    // A crash may take what was not written yet; then it is told how many are gone, and ids go on.
    daemon.shell("box", "echo four");
    let seen = events.next().unwrap().id;
    daemon.kill();
    daemon.launch();
    let resume = format!("Last-Event-ID: {seen}");
    let mut events = Events::open(&daemon.socket(), "GET /v1/events?kind=run_completed", &[&resume], "");
    daemon.shell("box", "echo five");
    let next = until_some("the next run is told", || events.next().filter(|event| event.name != "lost"));
    assert!(next.id > seen, "{} after {seen}", next.id);
    assert_eq!(next.data["data"]["command"], "echo five");
}

#[test]
fn the_command_line_shows_events_without_letting_them_touch_the_terminal() {
    let daemon = TestDaemon::start();
    daemon.shell("box", "true '\u{1b}[31mred\u{202e}'");
    let shown = daemon.succeeds(&["events", "--kind", "run_started", "--sandbox", "box"]);
    assert!(shown.contains("KIND") && shown.contains("\\u{1b}[31mred"), "{shown}");
    assert!(!shown.contains('\u{1b}') && !shown.contains('\u{202e}'), "{shown:?}");
    let listed: Value = serde_json::from_str(&daemon.succeeds(&["--json", "events", "-n", "1"])).unwrap();
    assert_eq!(listed["events"].as_array().unwrap().len(), 1, "{listed}");
    let mut child = daemon
        .isle(&["--json", "events", "--follow", "--kind", "run_failed", "--kind", "run_started"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let _watch = Watchdog::over(&child);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    assert_eq!(next()["kind"], "run_started", "those that happened come first");
    daemon.exec("box", json!({"command": "exit 7"}));
    assert_eq!(next()["kind"], "run_started");
    assert_eq!(next()["data"]["exit_code"], 7);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_model_asks_what_happened_when_the_set_is_on() {
    let daemon = TestDaemon::start();
    let failed = daemon.exec("box", json!({"command": "exit 5"}));
    let (mut client, _) = Client::initialized_with(&daemon, "2025-11-25", &["--toolsets", "admin"]);
    let arguments = json!({"kind": ["run_failed"], "since": "10m"});
    let answer = client.call("events", arguments)["structuredContent"].clone();
    assert_eq!(answer["events"][0]["run_id"], failed["run_id"], "{answer}");
    assert_eq!(answer["events"].as_array().unwrap().len(), 1, "{answer}");
}

#[test]
fn the_history_is_read_page_by_page_and_bad_questions_are_refused() {
    let daemon = TestDaemon::start();
    for _ in 0..5 {
        daemon.shell("box", "true");
    }
    let mut pages = 0;
    let (mut seen, mut before) = (Vec::new(), String::new());
    loop {
        let page = daemon.get(&format!("/v1/events/history?kind=run_started&limit=2{before}"));
        seen.extend(page["events"].as_array().unwrap().iter().map(|event| event["id"].as_u64().unwrap()));
        pages += 1;
        let Some(next) = page["before"].as_u64() else { break };
        before = format!("&before={next}");
    }
    assert_eq!((pages, seen.len()), (3, 5));
    assert!(seen.windows(2).all(|pair| pair[0] > pair[1]), "{seen:?}");
    for bad in ["kind=exploded", "limit=0", "limit=1001", "since=never", "sandbox=a//b", "colour=red"] {
        let error = daemon.refused("GET", &format!("/v1/events/history?{bad}"), None);
        assert!(error["code"].as_str().unwrap().starts_with("INVALID_"), "{bad}: {error}");
    }
    for bad in ["kind=exploded", "after=soon", "sandbox=a//b", "colour=red"] {
        let error = daemon.refused("GET", &format!("/v1/events?{bad}"), None);
        assert!(error["code"].as_str().unwrap().starts_with("INVALID_"), "{bad}: {error}");
    }
    let output = finish(&mut daemon.isle(&["events", "--kind", "exploded"]));
    assert!(String::from_utf8_lossy(&output.stderr).contains("error[INVALID_ARGUMENT]"), "{output:?}");
}

#[test]
fn a_tenant_hears_of_its_own_events_only() {
    let (daemon, address) = listening(&[]);
    let one = tenant(&daemon, &address, "one");
    one.shell("web", "echo mine");
    daemon.shell("web", "echo the operators");
    let commands = |answer: Value| -> Vec<String> {
        let events = answer["events"].as_array().unwrap().clone();
        events.iter().map(|event| event["data"]["command"].as_str().unwrap().to_owned()).collect()
    };
    let history = "/v1/events/history?kind=run_completed";
    assert_eq!(commands(one.get(history)), ["echo mine"]);
    assert_eq!(commands(daemon.get(history)), ["echo the operators"]);
    let everywhere = format!("{history}&all=true");
    assert_eq!(commands(daemon.get(&everywhere)), ["echo the operators", "echo mine"]);
    for path in [everywhere.as_str(), "/v1/events?all=true"] {
        assert_eq!(one.ask("GET", path, None).code(), "FORBIDDEN", "{path}");
    }
}

#[test]
fn deadlines_pauses_and_children_are_told_once() {
    let daemon = TestDaemon::start_with(&[
        ("ISLE_SPAWN_POLICIES", "parent = {}"),
        ("ISLE_DISK", "16M"),
        ("ISLE_SWEEP_INTERVAL", "100ms"),
    ]);
    daemon.post("/v1/sandboxes", json!({"sandbox": "brief", "ttl": "1s"}));
    daemon.post("/v1/sandboxes", json!({"sandbox": "long", "ttl": "1h"}));
    daemon.post("/v1/sandboxes/long/extend", json!({"by": "1m"}));
    daemon.post("/v1/sandboxes/long/pause", json!({}));
    daemon.post("/v1/sandboxes/long/resume", json!({}));
    let life = told(&daemon, "sandbox=long");
    assert_eq!(kinds(&life), ["sandbox_created", "sandbox_extended", "sandbox_paused", "sandbox_resumed"]);
    daemon.shell("parent", "true");
    for name in ["one", "two"] {
        daemon.post("/v1/sandboxes/parent/children", json!({"name": name}));
    }
    let gone = daemon.http("DELETE", "/v1/children/parent%2Fone", None);
    assert_eq!(gone.status, 200, "{}", gone.text());
    daemon.http("DELETE", "/v1/sandboxes/parent", None);
    let family = told(&daemon, "kind=child_spawned&kind=child_destroyed");
    let told_of = |name: &str| -> Vec<&str> {
        let own =
            family.iter().filter(|event| event["sandbox"] == name && event["data"]["parent"] == "parent");
        own.map(|event| event["kind"].as_str().unwrap()).collect()
    };
    for name in ["parent/one", "parent/two"] {
        assert_eq!(told_of(name), ["child_spawned", "child_destroyed"], "{family:?}");
    }
    until("the end of its time is told", || {
        let life = told(&daemon, "sandbox=brief");
        kinds(&life) == ["sandbox_created", "sandbox_expired"]
    });
}
