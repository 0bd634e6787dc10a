//! What happens to files is told: on request, as a stream, and on a terminal.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::file_work::in_each_tier;
use crate::harness::http::{Events, unix_raw};
use crate::harness::{TestDaemon, Watchdog, until};
use crate::mcp::Client;

/// Asks until `path` was told to have met `kind`; gives everything told and the cursor.
fn told(daemon: &TestDaemon, name: &str, cursor: &str, kind: &str, path: &str) -> (Vec<Value>, String) {
    let (mut all, mut cursor) = (Vec::new(), cursor.to_owned());
    until(&format!("{path} is told as {kind}"), || {
        let seen = daemon.get(&format!("/v1/sandboxes/{name}/files/watch?cursor={cursor}&wait=1s"));
        cursor = seen["cursor"].as_str().unwrap().to_owned();
        all.extend(seen["events"].as_array().unwrap().iter().cloned());
        all.iter().any(|event| event["kind"] == kind && event["path"] == path)
    });
    (all, cursor)
}

#[test]
fn what_happened_to_files_is_told_since_the_last_look() {
    let daemon = TestDaemon::start();
    in_each_tier(&daemon, |name| {
        daemon.shell(name, "mkdir -p d/in; echo 0 > d/old");
        let begun = daemon.get(&format!("/v1/sandboxes/{name}/files/watch?path=d"));
        assert_eq!((&begun["events"], &begun["ended"]), (&json!([]), &json!(false)));
        let cursor = begun["cursor"].as_str().unwrap();
        daemon.shell(name, "echo 1 > d/in/new; touch outside");
        let (events, cursor) = told(&daemon, name, cursor, "created", "in/new");
        assert!(events.iter().all(|event| event["path"] != "outside"), "{events:?}");
        daemon.shell(name, "mv d/old d/moved; mkdir -p d/x/y; echo 2 > d/x/y/z; rm d/in/new");
        let (events, cursor) = told(&daemon, name, &cursor, "removed", "in/new");
        let moved = events.iter().find(|event| event["kind"] == "moved").unwrap();
        assert_eq!((&moved["from"], &moved["path"]), (&json!("old"), &json!("moved")));
        assert!(events.iter().any(|event| event["path"] == "x/y/z"), "new directories too: {events:?}");
        daemon.post(
            &format!("/v1/sandboxes/{name}/files/write"),
            json!({"files": {"d/moved": "by an operation"}}),
        );
        let (_, cursor) = told(&daemon, name, &cursor, "created", "moved");
        daemon.shell(name, "rm -r d");
        until("the watch is over", || {
            let seen = daemon.http(
                "GET",
                &format!("/v1/sandboxes/{name}/files/watch?cursor={cursor}&wait=1s"),
                None,
            );
            seen.status == 410 || seen.json()["ended"] == true
        });
        for (bad, code) in [
            ("path=missing", "FILE_NOT_FOUND"),
            ("path=../x", "INVALID_PATH"),
            ("cursor=x", "INVALID_ARGUMENT"),
            ("cursor=gone.0", "WATCH_ENDED"),
            ("wait=10h", "INVALID_ARGUMENT"),
        ] {
            let error = daemon.refused("GET", &format!("/v1/sandboxes/{name}/files/watch?{bad}"), None);
            assert_eq!(error["code"], code, "{bad}");
        }
    });
}

#[test]
fn one_file_is_watched_also_when_it_is_replaced() {
    let daemon = TestDaemon::start();
    daemon.shell("box", "echo 1 > file");
    let begun = daemon.get("/v1/sandboxes/box/files/watch?path=file");
    daemon.shell("box", "touch other; echo 2 > draft; mv draft file");
    let (events, _) = told(&daemon, "box", begun["cursor"].as_str().unwrap(), "created", "file");
    assert!(events.iter().all(|event| event["path"] == "file"), "{events:?}");
}

#[test]
fn files_are_watched_as_a_stream_that_ends_with_the_sandbox() {
    let daemon = TestDaemon::start();
    daemon.shell("box", "true");
    let line = "GET /v1/sandboxes/box/files/watch/events";
    let mut events = Events::open(&daemon.socket(), line, &[], "");
    assert_eq!(events.next().unwrap().name, "watching");
    daemon.shell("box", "echo x > \"$(printf 'a\\nb')\"");
    let event = events.next().unwrap();
    assert_eq!((event.name.as_str(), &event.data["path"]), ("file", &json!("a\nb")));
    daemon.http("DELETE", "/v1/sandboxes/box", None);
    let rest = events.rest();
    assert_eq!(rest.last().unwrap().name, "ended", "{rest:?}");
    assert!(daemon.names().is_empty(), "a watch never brings a sandbox back");
    let wrong = unix_raw(&daemon.socket(), "GET /v1/sandboxes/box/files/watch/events?depth=2", &[], b"");
    assert_eq!(wrong.code(), "INVALID_ARGUMENT");
}

#[test]
fn more_than_can_be_told_is_told_as_such() {
    let daemon = TestDaemon::start();
    daemon.shell("box", "mkdir many");
    let begun = daemon.get("/v1/sandboxes/box/files/watch?path=many");
    daemon.shell("box", "cd many; seq 1 30000 | xargs touch; cd ..; touch many/last");
    let (mut cursor, mut told, mut overflow) = (begun["cursor"].as_str().unwrap().to_owned(), 0, false);
    until("everything is told, or that something was lost", || {
        let seen = daemon.get(&format!("/v1/sandboxes/box/files/watch?cursor={cursor}&wait=1s"));
        cursor = seen["cursor"].as_str().unwrap().to_owned();
        told += seen["events"].as_array().unwrap().len();
        overflow |= seen["overflow"] == true;
        overflow || told >= 30_001
    });
}

#[test]
fn the_command_line_and_a_model_watch_files() {
    let daemon = TestDaemon::start();
    daemon.shell("box", "mkdir d");
    let mut child =
        daemon.isle(&["watch", "box", "d"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let _watch = Watchdog::over(&child);
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert_eq!(line, "watching /workspace/d in box\n");
    let (mut client, _) = Client::initialized_with(&daemon, "2025-11-25", &["--toolsets", "files"]);
    let begun =
        client.call("watch_files", json!({"sandbox": "box", "path": "d"}))["structuredContent"].clone();
    daemon.shell("box", "mkdir d/sub; mv d/sub d/dir");
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut shown = String::new();
    until("the move is shown", || {
        shown = lines.next().unwrap().unwrap();
        shown.starts_with("moved")
    });
    assert_eq!(shown, "moved    sub -> dir/");
    until("a model sees it", || {
        let arguments = json!({"sandbox": "box", "cursor": begun["cursor"], "wait": "1s"});
        let seen = client.call("watch_files", arguments)["structuredContent"].clone();
        seen["events"].as_array().unwrap().iter().any(|event| event["kind"] == "moved")
    });
    child.kill().unwrap();
    child.wait().unwrap();
}
