//! What cannot be, of lives, locks and children: at every door a code, a sentence and a next step, and nothing
//! is changed.

use serde_json::{Value, json};

use crate::harness::{TestDaemon, finish, until};
use crate::mcp::Client;

const TOOLSETS: &[&str] = &["--toolsets", "core,lifecycle,children,jobs,admin"];

/// What must be the same before and after: who is there, since when, and how.
fn picture(daemon: &TestDaemon) -> Value {
    let listed = daemon.get("/v1/sandboxes");
    let one = |sandbox: &Value| {
        let text = |name: &str| sandbox[name].as_str().unwrap_or_default().to_owned();
        // Deadlines are shown by the wall clock; a second more or less is none.
        let minute: String = text("expires_at").chars().take(16).collect();
        json!([text("name"), text("id"), text("state"), minute, sandbox["runs"]])
    };
    let sandboxes: Vec<Value> = listed["sandboxes"].as_array().unwrap().iter().map(one).collect();
    json!({ "sandboxes": sandboxes, "limits": daemon.post("/v1/limits", json!({}))["now"] })
}

/// One request, as a route and as an operation.
struct Bad {
    operation: &'static str,
    route: &'static str,
    /// With what is in the path.
    arguments: Value,
    /// Without.
    body: Value,
    code: &'static str,
}

fn bad(operation: &'static str, route: &'static str, path: Value, body: Value, code: &'static str) -> Bad {
    let mut arguments = path;
    for (name, value) in body.as_object().unwrap() {
        arguments[name] = value.clone();
    }
    Bad { operation, route, arguments, body, code }
}

/// Tries it at every door.
fn is_refused(daemon: &TestDaemon, client: &mut Client, bad: &Bad) {
    let Bad { operation, route, arguments, body, code } = bad;
    let before = picture(daemon);
    let error = daemon.refused("POST", route, Some(body));
    assert_eq!(error["code"], *code, "{operation} {arguments}: {error}");
    assert!(error["message"].as_str().unwrap().contains(' '), "a sentence: {error}");
    assert!(!error["next_steps"].as_array().unwrap().is_empty(), "a next step: {error}");
    let result = client.call(operation, arguments.clone());
    assert_eq!(result["isError"], true, "{operation} {arguments}: {result}");
    let text = result["content"][0]["text"].as_str().unwrap();
    assert!(text.starts_with(code) && text.contains("Next: "), "{operation} {arguments}: {text}");
    let output = finish(&mut daemon.isle(&["call", operation, &arguments.to_string()]));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{operation} {arguments}: {output:?}");
    assert!(
        said.starts_with(&format!("error[{code}]: ")) && said.contains("\nhint: "),
        "{operation}: {said}"
    );
    assert_eq!(picture(daemon), before, "{operation} {arguments} changed something");
}

#[test]
fn what_cannot_be_of_lives_and_children_is_refused_at_every_door_and_changes_nothing() {
    let policies = "box = { allowed_images = [\"host\"] }";
    let daemon = TestDaemon::start_with(&[("ISLE_SPAWN_POLICIES", policies)]);
    daemon.post("/v1/sandboxes", json!({"sandbox": "box", "ttl": "2h", "idle": "1h"}));
    daemon.post("/v1/sandboxes", json!({"sandbox": "still"}));
    daemon.post("/v1/sandboxes/still/pause", json!({}));
    let (mut client, _) = Client::initialized_with(&daemon, "2025-11-25", TOOLSETS);
    let boxed = || json!({"sandbox": "box"});
    let still = || json!({"sandbox": "still"});
    let parent = || json!({"parent": "box"});
    let (create, extend) = ("/v1/sandboxes", "/v1/sandboxes/box/extend");
    let (spawn, stopped) = ("/v1/sandboxes/box/children", "/v1/sandboxes/still/exec");
    let cases = [
        bad("create", create, json!({}), json!({"sandbox": "new", "ttl": "1ms"}), "TTL_INVALID"),
        bad("create", create, json!({}), json!({"sandbox": "new", "ttl": "31d"}), "TTL_INVALID"),
        bad("create", create, json!({}), json!({"sandbox": "new", "idle": "31d"}), "TTL_INVALID"),
        bad("create", create, json!({}), json!({"sandbox": "new", "ttl": "soon"}), "INVALID_DURATION"),
        bad("create", create, json!({}), json!({"sandbox": "box", "ttl": "3h"}), "ALREADY_EXISTS"),
        bad("create", create, json!({}), json!({"sandbox": "new", "profile": "none"}), "PROFILE_NOT_FOUND"),
        bad("extend", extend, boxed(), json!({"by": "30d"}), "TTL_INVALID"),
        bad("extend", extend, boxed(), json!({"by": "0s"}), "TTL_INVALID"),
        bad("extend", "/v1/sandboxes/still/extend", still(), json!({"by": "1h"}), "TTL_INVALID"),
        bad(
            "extend",
            "/v1/sandboxes/nobody/extend",
            json!({"sandbox": "nobody"}),
            json!({"by": "1h"}),
            "SANDBOX_NOT_FOUND",
        ),
        bad(
            "pause",
            "/v1/sandboxes/nobody/pause",
            json!({"sandbox": "nobody"}),
            json!({}),
            "SANDBOX_NOT_FOUND",
        ),
        bad("exec", stopped, still(), json!({"command": "true"}), "PAUSED"),
        bad("start_job", "/v1/sandboxes/still/jobs", still(), json!({"command": "true"}), "PAUSED"),
        bad("spawn", spawn, parent(), json!({"tier": "process"}), "PERMISSION_DENIED"),
        bad("spawn", spawn, parent(), json!({"image": "other"}), "PERMISSION_DENIED"),
        bad("spawn", spawn, parent(), json!({"cpus": 0.5}), "INVALID_ARGUMENT"),
        bad("spawn", spawn, parent(), json!({"memory": "1M"}), "INVALID_ARGUMENT"),
        bad("spawn", spawn, parent(), json!({"name": "box/x"}), "INVALID_NAME"),
        bad(
            "spawn",
            "/v1/sandboxes/still/children",
            json!({"parent": "still"}),
            json!({}),
            "PERMISSION_DENIED",
        ),
        bad("limits", "/v1/limits", json!({}), json!({"memory": "0"}), "INVALID_ARGUMENT"),
        bad("limits", "/v1/limits", json!({}), json!({"timeout": "100d"}), "INVALID_ARGUMENT"),
    ];
    for case in &cases {
        is_refused(&daemon, &mut client, case);
    }
}

#[test]
fn who_waits_for_a_lock_that_is_never_released_is_told_who_has_it_and_what_to_do() {
    let daemon = TestDaemon::start();
    let holder = json!({"name": "forever", "command": "exec sleep 600", "lock": true});
    daemon.post("/v1/sandboxes/box/jobs", holder);
    until("it has the lock", || daemon.get("/v1/jobs?sandbox=box")["jobs"][0]["state"] == "running");
    let second = json!({"command": "touch ran", "lock": true, "wait": "0s"});
    let waiting = daemon.exec("box", second.clone());
    let told = |answer: &Value| {
        assert_eq!(answer["state"], "queued", "{answer}");
        let note = answer["note"].as_str().unwrap_or_else(|| panic!("nothing is said: {answer}"));
        assert!(note.contains("box:forever has the lock") && note.contains("`kill` box:forever"), "{note}");
    };
    told(&waiting);
    let (mut client, _) = Client::initialized_with(&daemon, "2025-11-25", TOOLSETS);
    let mut arguments = second;
    arguments["sandbox"] = json!("box");
    told(&client.call("exec", arguments)["structuredContent"]);
    let job = client.call("start_job", json!({"sandbox": "box", "command": "touch ran", "lock": true}));
    told(&job["structuredContent"]);
    let run = waiting["run_id"].as_str().unwrap();
    let wait = json!({"run_id": run, "timeout": "0s"}).to_string();
    told(&serde_json::from_str(&daemon.succeeds(&["call", "wait", &wait])).unwrap());
    let shown = daemon.succeeds(&["inspect", "box"]);
    assert!(shown.contains(&format!("waiting    {run}: ")), "{shown}");
    assert!(shown.contains("running    forever: "), "{shown}");
    // What it says to do works.
    daemon.post("/v1/runs/box:forever/kill", json!({"force": true}));
    let ended = daemon.post(&format!("/v1/runs/{run}/wait"), json!({"timeout": "60s"}));
    assert_eq!((&ended["state"], &ended["note"]), (&json!("completed"), &Value::Null), "{ended}");
}
