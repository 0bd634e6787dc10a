//! How long sandboxes live: TTL and idle time, extension, what counts as use, and what is told when the
//! time is up.

use std::net::TcpStream;

use serde_json::{Value, json};

use crate::contexts::needs;
use crate::harness::http::unix_raw;
use crate::harness::{TestDaemon, processes_with, require, tiers, until};
use crate::mcp::Client;

/// Looks often.
const EAGER: (&str, &str) = ("ISLE_SWEEP_INTERVAL", "100ms");
/// Never looks while a test lasts.
const LAZY: (&str, &str) = ("ISLE_SWEEP_INTERVAL", "1h");

/// Takes one caller after the other, in a thread, until each goes.
const SERVER: &str = "
import socket, threading
server = socket.create_server(('127.0.0.1', 8000))
def serve():
    while True:
        with server.accept()[0] as caller:
            try:
                caller.recv(1)
            except OSError:
                pass
threading.Thread(target=serve, daemon=True).start()
";

fn create(daemon: &TestDaemon, settings: Value) -> Value {
    daemon.post("/v1/sandboxes", settings)
}

fn brief(daemon: &TestDaemon, sandbox: &str) -> Value {
    daemon.get(&format!("/v1/status?sandbox={sandbox}"))["sandboxes"][0].clone()
}

/// Milliseconds of the day of a time as it is shown.
fn of_day(time: &Value) -> i64 {
    let text = time.as_str().unwrap_or_else(|| panic!("no time: {time}"));
    let part = |from: usize, to: usize| text[from..to].parse::<i64>().unwrap();
    ((part(11, 13) * 60 + part(14, 16)) * 60 + part(17, 19)) * 1000 + part(20, 23)
}

/// How far two times are apart, both within half a day.
fn apart(one: &Value, other: &Value) -> i64 {
    const DAY: i64 = 86_400_000;
    let distance = (of_day(one) - of_day(other)).rem_euclid(DAY);
    distance.min(DAY - distance)
}

#[test]
fn a_sandbox_ends_at_its_ttl_with_all_that_runs_in_it_and_keeps_its_workspace() {
    let daemon = TestDaemon::start_with(&[EAGER]);
    let marker = format!("78551{:07}", std::process::id());
    let settings = |tier: &str| json!({"sandbox": tier, "tier": tier, "allow_downgrade": true});
    let mut runs = Vec::new();
    for &tier in tiers() {
        let mut limited = settings(tier);
        limited["ttl"] = json!("3s");
        let made = create(&daemon, limited);
        assert!(made["expires_at"].is_string(), "{made}");
        daemon.shell(tier, "echo kept > file");
        let run = daemon.exec(tier, json!({"command": format!("sleep {marker}"), "wait": "0s"}));
        runs.push(run["run_id"].as_str().unwrap().to_owned());
    }
    until("they are gone", || daemon.names().is_empty());
    assert!(processes_with(&marker).is_empty(), "nothing of them runs on");
    for run in runs {
        let ended = daemon.post(&format!("/v1/runs/{run}/wait"), json!({}));
        assert_eq!(ended["state"], "killed", "{ended}");
        assert_eq!(ended["note"], "the time of its sandbox was up", "{ended}");
    }
    for &tier in tiers() {
        create(&daemon, settings(tier));
        assert_eq!(daemon.shell(tier, "cat file"), "kept\n", "the name can be used again");
        assert!(brief(&daemon, tier)["expires_at"].is_null(), "made anew as the configuration says");
    }
    let swept = daemon.get("/v1/health")["sweeper"].clone();
    let expired = json!(tiers().len());
    assert_eq!((&swept["expired"], &swept["idle"], &swept["failures"]), (&expired, &json!(0), &json!(0)));
    let audit = daemon.get("/v1/audit?action=expire_sandbox");
    assert_eq!(audit["rows"].as_array().unwrap().len(), tiers().len(), "{audit}");
}

#[test]
fn an_expired_sandbox_answers_410_until_it_is_removed_and_an_extension_saves_it() {
    let daemon = TestDaemon::start_with(&[LAZY]);
    let exec = json!({"command": "echo there"});
    let first = daemon.post("/v1/sandboxes/box/exec", json!({"command": "echo kept > file", "ttl": "1s"}));
    assert_eq!(first["state"], "completed", "{first}");
    until("its time is up", || daemon.http("POST", "/v1/sandboxes/box/exec", Some(&exec)).status == 410);
    let error = daemon.refused("POST", "/v1/sandboxes/box/exec", Some(&exec));
    assert_eq!(error["code"], "EXPIRED", "{error}");
    assert!(error["details"]["expired_at"].is_string(), "{error}");
    for (method, path, body) in [
        ("GET", "/v1/sandboxes/box/files/list?path=.", None),
        ("POST", "/v1/sandboxes/box/reset", Some(json!({}))),
        ("POST", "/v1/sandboxes", Some(json!({"sandbox": "box"}))),
    ] {
        assert_eq!(daemon.refused(method, path, body.as_ref())["code"], "EXPIRED", "{method} {path}");
    }
    assert_eq!(daemon.names(), ["box"], "it is still shown");
    let extended = daemon.post("/v1/sandboxes/box/extend", json!({"by": "1h"}));
    assert!(extended["expires_at"].is_string(), "{extended}");
    assert_eq!(daemon.shell("box", "cat file"), "kept\n");
}

#[test]
fn times_out_of_range_are_refused_with_the_range_and_change_nothing() {
    let daemon = TestDaemon::start_with(&[LAZY, ("ISLE_MAX_TTL", "2h"), ("ISLE_DEFAULT_TTL", "1h")]);
    for settings in [
        json!({"sandbox": "box", "ttl": "3h"}),
        json!({"sandbox": "box", "ttl": "0s"}),
        json!({"sandbox": "box", "ttl": "999ms"}),
        json!({"sandbox": "box", "ttl": "none"}),
        json!({"sandbox": "box", "idle": "121m"}),
    ] {
        let answer = daemon.http("POST", "/v1/sandboxes", Some(&settings));
        assert_eq!((answer.status, answer.code().as_str()), (400, "TTL_INVALID"), "{settings}");
        let error = daemon.refused("POST", "/v1/sandboxes", Some(&settings));
        assert!(error["message"].as_str().unwrap().contains("from 1s to 2h"), "{error}");
    }
    let error = daemon.refused("POST", "/v1/sandboxes", Some(&json!({"sandbox": "box", "ttl": "soon"})));
    assert_eq!(error["code"], "INVALID_DURATION", "{error}");
    let exec = json!({"command": "true", "ttl": "1d"});
    assert_eq!(daemon.refused("POST", "/v1/sandboxes/box/exec", Some(&exec))["code"], "TTL_INVALID");
    assert!(!daemon.names().contains(&"box".to_owned()), "nothing was made");

    create(&daemon, json!({"sandbox": "box"}));
    let before = brief(&daemon, "box")["expires_at"].clone();
    for by in ["90m", "0s"] {
        let error = daemon.refused("POST", "/v1/sandboxes/box/extend", Some(&json!({"by": by})));
        assert_eq!(error["code"], "TTL_INVALID", "{error}");
    }
    assert!(apart(&before, &brief(&daemon, "box")["expires_at"]) < 60_000, "nothing was moved");
    let extended = daemon.post("/v1/sandboxes/box/extend", json!({"by": "30m"}));
    assert!(apart(&before, &extended["expires_at"]) > 25 * 60_000, "{extended}");
    daemon.shell("default", "true");
    let error = daemon.refused("POST", "/v1/sandboxes/default/extend", Some(&json!({"by": "1m"})));
    assert_eq!(error["code"], "TTL_INVALID", "the default sandbox has no TTL: {error}");
    let error = daemon.refused("POST", "/v1/sandboxes/nobody/extend", Some(&json!({"by": "1m"})));
    assert_eq!(error["code"], "SANDBOX_NOT_FOUND");
}

#[test]
fn whatever_goes_on_in_a_sandbox_keeps_it_and_those_nobody_uses_end() {
    let host = tempfile::tempdir().unwrap();
    std::fs::write(host.path().join("file"), "x").unwrap();
    let root = host.path().to_str().unwrap();
    let daemon = TestDaemon::start_with(&[EAGER, ("ISLE_DEFAULT_IDLE", "1s"), ("ISLE_HOST_ROOTS", root)]);
    daemon.shell("default", "true");
    daemon.post("/v1/sandboxes/job/jobs", json!({"name": "long", "command": "sleep 3000"}));
    daemon.post("/v1/syncs", json!({"sandbox": "synced", "host_path": root, "path": "."}));
    daemon.shell("watched", "true");
    let watching = std::thread::scope(|scope| {
        let socket = daemon.socket();
        let watcher = scope.spawn(move || {
            unix_raw(
                &socket,
                "GET /v1/sandboxes/watched/files/watch/events?path=.",
                &["Accept: text/event-stream"],
                &[],
            )
        });
        daemon.shell("unused", "true");
        until("who is not used is gone", || !daemon.names().contains(&"unused".to_owned()));
        // Another one, so that as much time has passed since the watch began.
        daemon.shell("unused", "true");
        until("and once more", || !daemon.names().contains(&"unused".to_owned()));
        let names = daemon.names();
        daemon.succeeds(&["rm", "--wipe", "watched"]);
        watcher.join().unwrap();
        names
    });
    assert_eq!(watching, ["default", "job", "synced", "watched"]);
    let job = brief(&daemon, "job");
    assert!(job["idle_expires_at"].is_null(), "its clock stands still while it is used: {job}");
    daemon.post("/v1/runs/job:long/kill", json!({"force": true}));
    until("the job's sandbox ends when the job does", || !daemon.names().contains(&"job".to_owned()));
    assert_eq!(daemon.names(), ["default", "synced"], "the default sandbox is exempt");
    assert_eq!(daemon.get("/v1/health")["sweeper"]["expired"], 0);
}

#[test]
fn an_open_connection_to_a_port_is_a_use_of_its_sandbox() {
    let daemon = TestDaemon::start();
    require!(needs(&daemon, "python3"));
    // In a context, so that no run goes on which would be a use by itself.
    let call = json!({ "code": SERVER, "language": "python", "context": "server" });
    daemon.post("/v1/sandboxes/box/code", call);
    let shown = daemon.post("/v1/sandboxes/box/ports", json!({ "port": 8000, "host_port": 0 }));
    let port = u16::try_from(shown["host_port"].as_u64().unwrap()).unwrap();
    let is_used = || brief(&daemon, "box")["idle_expires_at"].is_null();
    until("nobody uses it", || !is_used());
    let caller = TcpStream::connect(("127.0.0.1", port)).unwrap();
    until("a connection is a use", is_used);
    drop(caller);
    until("it was", || !is_used());
}

#[test]
fn who_names_no_deadlines_has_a_week_without_use_and_no_ttl() {
    let daemon = TestDaemon::start();
    let made = create(&daemon, json!({"sandbox": "box"}));
    assert!(made["expires_at"].is_null() && made["idle_expires_at"].is_string(), "{made}");
    let extended = daemon.refused("POST", "/v1/sandboxes/box/extend", Some(&json!({"by": "1h"})));
    assert_eq!(extended["code"], "TTL_INVALID", "it has no TTL: {extended}");
    let endless = json!({"sandbox": "endless", "idle": "none"});
    let refused = daemon.refused("POST", "/v1/sandboxes", Some(&endless));
    assert_eq!((&refused["code"], &refused["details"]["longest"]), (&json!("TTL_INVALID"), &json!("30d")));
    assert!(daemon.succeeds(&["create", "other"]).contains("expires if idle at"));
    daemon.shell("default", "true");
    let default = brief(&daemon, "default");
    assert!(default["idle_expires_at"].is_null() && default["expires_at"].is_null(), "exempt: {default}");
    assert_eq!(daemon.names(), ["box", "default", "other"]);
}

#[test]
fn deadlines_and_extensions_survive_a_crash_of_the_daemon() {
    let mut daemon = TestDaemon::start_with(&[EAGER]);
    create(&daemon, json!({"sandbox": "short", "ttl": "3s"}));
    create(&daemon, json!({"sandbox": "long", "ttl": "2h", "idle": "1h"}));
    let made = brief(&daemon, "long");
    let extended = daemon.post("/v1/sandboxes/long/extend", json!({"by": "1h"}));
    daemon.shell("long", "true");
    daemon.kill();
    daemon.launch();
    let again = brief(&daemon, "long");
    assert!(apart(&extended["expires_at"], &again["expires_at"]) < 60_000, "{extended} and {again}");
    assert!(apart(&made["idle_expires_at"], &again["idle_expires_at"]) < 60_000, "{made} and {again}");
    assert_eq!(again["runs"], 1, "{again}");
    until("the short one ends all the same", || daemon.names() == ["long"]);
    daemon.terminate();
    daemon.launch();
    let third = brief(&daemon, "long");
    assert!(apart(&extended["expires_at"], &third["expires_at"]) < 60_000, "{extended} and {third}");
    daemon.post("/v1/sandboxes/long/reset", json!({}));
    let fourth = brief(&daemon, "long");
    assert!(
        apart(&extended["expires_at"], &fourth["expires_at"]) < 60_000,
        "a reset gives no time: {fourth}"
    );
}

#[test]
fn a_call_that_asks_for_other_deadlines_than_a_sandbox_has_is_refused() {
    let daemon = TestDaemon::start_with(&[LAZY]);
    let exec = |ttl: &str| json!({"command": "true", "ttl": ttl, "idle": "10m"});
    daemon.post("/v1/sandboxes/box/exec", exec("1h"));
    daemon.post("/v1/sandboxes/box/exec", exec("1h"));
    daemon.shell("box", "true");
    let error = daemon.refused("POST", "/v1/sandboxes/box/exec", Some(&exec("2h")));
    assert_eq!(error["code"], "ALREADY_EXISTS", "{error}");
    assert_eq!(error["details"]["settings"]["ttl"], "1h", "{error}");
    let error = daemon.refused("POST", "/v1/sandboxes", Some(&json!({"sandbox": "box", "ttl": "2h"})));
    assert_eq!(error["code"], "ALREADY_EXISTS", "{error}");
    assert_eq!(brief(&daemon, "box")["runs"], 3);
}

#[test]
fn a_model_and_the_command_line_make_sandboxes_with_deadlines_and_extend_them() {
    let daemon = TestDaemon::start_with(&[LAZY]);
    let said = daemon.succeeds(&["create", "box", "--ttl", "1h", "--idle", "30m", "--memory", "64M"]);
    let lines: Vec<&str> = said.lines().collect();
    assert!(
        matches!(lines[..], ["box", expires, unused] if expires.starts_with("expires at") && unused.starts_with("expires if idle at")),
        "{said}"
    );
    let listed = daemon.succeeds(&["ls"]);
    assert!(listed.contains("EXPIRES"), "{listed}");
    let before = brief(&daemon, "box")["expires_at"].clone();
    daemon.succeeds(&["extend", "box", "1h"]);
    let (mut client, _) = Client::initialized_with(&daemon, "2025-11-25", &["--toolsets", "lifecycle"]);
    let answer = client.call("extend", json!({"sandbox": "box", "by": "1h"}))["structuredContent"].clone();
    assert!(apart(&before, &answer["expires_at"]) > 110 * 60_000, "{before} and {answer}");
    let refused = client.call("extend", json!({"sandbox": "box", "by": "60d"}));
    assert_eq!(refused["isError"], true, "{refused}");
    assert!(refused.to_string().contains("TTL_INVALID"), "{refused}");
    let output = crate::harness::finish(&mut daemon.isle(&["create", "other", "--ttl", "1ms"]));
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("1s"), "{output:?}");
}
