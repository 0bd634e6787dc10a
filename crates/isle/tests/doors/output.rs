//! Output: how much is kept and shown, how the rest is paged, and following it while it comes.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::harness::http::{Events, try_unix};
use crate::harness::{TestDaemon, Watchdog, until};

/// All that is kept of one stream, page by page, and how much of it was not kept.
fn page_through(daemon: &TestDaemon, run: &str, stream: &str, limit: u64) -> (String, u64) {
    let (mut text, mut lost, mut offset) = (String::new(), 0, 0);
    loop {
        let logs = daemon.get(&format!("/v1/runs/{run}/logs?stream={stream}&offset={offset}&limit={limit}"));
        let page = &logs[stream];
        lost += page["lost_bytes"].as_u64().unwrap_or(0);
        let next = page["next_offset"].as_u64().unwrap();
        if next == offset {
            assert_eq!(page["total_bytes"], next, "{logs}");
            return (text, lost);
        }
        let shown = page["text"].as_str().unwrap();
        assert_eq!(page["offset"].as_u64().unwrap() + shown.len() as u64, next);
        text.push_str(shown);
        offset = next;
    }
}

fn numbers(count: u32) -> String {
    (1..=count).map(|number| format!("{number}\n")).collect()
}

#[test]
fn long_output_is_cut_in_the_middle_and_pages_give_every_byte() {
    let daemon = TestDaemon::start();
    let run = daemon.exec("box", json!({"command": "seq 1 60000; echo oops >&2"}));
    let (id, shown) = (run["run_id"].as_str().unwrap(), run["stdout"].as_str().unwrap());
    let all = numbers(60_000);
    assert_eq!(run["stdout_truncated"], true);
    assert_eq!(run["stdout_bytes"], all.len());
    assert!(shown.len() < 30_000 && shown.starts_with("1\n2\n") && shown.ends_with("59999\n60000\n"));
    assert!(
        shown.contains("bytes cut") && shown.contains(id),
        "the cut says what is missing and where it is"
    );
    assert_eq!((&run["stderr"], &run["stderr_truncated"]), (&json!("oops\n"), &json!(false)));
    assert_eq!(page_through(&daemon, id, "stdout", 50_000), (all, 0));
    assert_eq!(page_through(&daemon, id, "stderr", 4), ("oops\n".into(), 0));
}

#[test]
fn a_caller_may_ask_for_more_or_less_of_the_output() {
    let daemon = TestDaemon::start();
    let with = |limit: &str| daemon.exec("box", json!({"command": "seq 1 60000", "output_limit": limit}));
    let all = with("1M");
    assert_eq!((&all["stdout"], &all["stdout_truncated"]), (&json!(numbers(60_000)), &json!(false)));
    let little = with("1K");
    assert!(little["stdout"].as_str().unwrap().len() < 1200, "{little}");
    assert_eq!(little["stdout_truncated"], true);
}

#[test]
fn beyond_the_cap_the_beginning_and_the_end_are_kept_and_the_rest_is_counted() {
    let daemon = TestDaemon::start_with(&[("ISLE_OUTPUT_CAP", "64K")]);
    let run = daemon.exec("box", json!({"command": "seq 1 100000; seq 1 50000 >&2"}));
    let id = run["run_id"].as_str().unwrap();
    let all = numbers(100_000);
    assert_eq!(run["stdout_bytes"], all.len(), "everything is counted");
    let (kept, lost) = page_through(&daemon, id, "stdout", 10_000);
    assert_eq!(kept.len() as u64 + lost, all.len() as u64);
    assert_eq!(kept, [&all[..32 * 1024], &all[all.len() - 32 * 1024..]].concat());
    let (kept, lost) = page_through(&daemon, id, "stderr", 10_000);
    assert_eq!(kept.len() as u64 + lost, numbers(50_000).len() as u64);
}

#[test]
fn cuts_fall_between_characters() {
    let daemon = TestDaemon::start_with(&[("ISLE_OUTPUT_CAP", "16K")]);
    let command = "for i in 1 2 3 4 5 6 7 8; do printf '€%.0s' $(seq 1 2000); done";
    for limit in ["101", "1000", "5001"] {
        let run = daemon.exec("box", json!({"command": command, "output_limit": limit}));
        assert_eq!(run["stdout_bytes"], 48_000);
        assert!(!run["stdout"].as_str().unwrap().contains('\u{fffd}'), "{limit}: {run}");
    }
}

#[test]
fn the_last_lines_are_shown_by_default_and_by_number() {
    let daemon = TestDaemon::start();
    let run = daemon.exec("box", json!({"command": "seq 1 200"}));
    let logs = |query: &str| {
        let id = run["run_id"].as_str().unwrap();
        let logs = daemon.get(&format!("/v1/runs/{id}/logs?stream=stdout{query}"));
        text(&logs["stdout"]["text"]).to_owned()
    };
    assert_eq!(logs("&tail=2"), "199\n200\n");
    assert_eq!(logs("").lines().count(), 50);
    assert_eq!(logs("&tail=0"), numbers(200));
}

#[test]
fn bytes_that_are_no_text_do_not_break_the_answer() {
    let daemon = TestDaemon::start();
    let command = "printf 'a\\377\\376b\\0c'; head -c 3000 /dev/urandom >&2";
    let run = daemon.exec("box", json!({ "command": command }));
    assert_eq!(run["stdout"], "a\u{fffd}\u{fffd}b\0c");
    assert_eq!((&run["stdout_bytes"], &run["stderr_bytes"]), (&json!(6), &json!(3000)));
}

#[test]
fn a_stream_of_events_is_resumed_after_the_last_one_seen() {
    let daemon = TestDaemon::start();
    daemon.shell("box", "mkfifo go");
    let body = json!({"command": "echo one; read x < go; echo two; echo err >&2; exit 4"}).to_string();
    let kind = ["Content-Type: application/json"];
    let mut events = Events::open(&daemon.socket(), "POST /v1/sandboxes/box/exec/stream", &kind, &body);
    let run = events.run_id();
    let started = events.next().unwrap();
    assert_eq!((started.name.as_str(), &started.data["run_id"]), ("started", &json!(run)));
    let first = events.next().unwrap();
    assert_eq!((first.name.as_str(), &first.data["data"]), ("stdout", &json!("one\n")));
    // The client is gone; the run goes on.
    drop(events);
    daemon.shell("box", "echo > go");
    let resume = format!("Last-Event-ID: {}", first.id);
    let line = format!("GET /v1/runs/{run}/events");
    let rest = Events::open(&daemon.socket(), &line, &[&resume], "").rest();
    assert!(rest.iter().all(|event| event.id > first.id), "{rest:?}");
    let said = |name: &str| -> String {
        rest.iter().filter(|event| event.name == name).map(|event| text(&event.data["data"])).collect()
    };
    assert_eq!((said("stdout").as_str(), said("stderr").as_str()), ("two\n", "err\n"));
    let ended = rest.last().unwrap();
    assert_eq!(ended.name, "ended");
    assert_eq!((&ended.data["state"], &ended.data["exit_code"]), (&json!("failed"), &json!(4)));
    // A run that ended can still be followed from its beginning.
    let all = Events::open(&daemon.socket(), &line, &[], "").rest();
    let everything: String =
        all.iter().filter(|event| event.name == "stdout").map(|event| text(&event.data["data"])).collect();
    assert_eq!(everything, "one\ntwo\n");
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

#[test]
fn following_begins_with_the_last_lines_and_goes_on() {
    let daemon = TestDaemon::start();
    daemon.shell("box", "mkfifo go end");
    let command = "seq 1 100; echo oops >&2; read x < go; echo $x; read x < end";
    let run = daemon.exec("box", json!({"command": command, "wait": "0s"}));
    let id = run["run_id"].as_str().unwrap();
    until("its first output is there", || {
        let logs = daemon.get(&format!("/v1/runs/{id}/logs?tail=1"));
        logs["stdout"]["text"] == "100\n" && logs["stderr"]["text"] == "oops\n"
    });
    let mut child =
        daemon.isle(&["logs", "--tail", "2", "--follow", id]).stdout(Stdio::piped()).spawn().unwrap();
    let _watch = Watchdog::over(&child);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!((lines.next().unwrap(), lines.next().unwrap()), ("99".into(), "100".into()));

    let line = format!("GET /v1/runs/{id}/events?tail=1");
    let mut events = Events::open(&daemon.socket(), &line, &[], "");
    let mut tail = [events.next().unwrap(), events.next().unwrap()];
    tail.sort_by(|one, other| one.name.cmp(&other.name));
    assert_eq!((tail[0].name.as_str(), text(&tail[0].data["data"])), ("stderr", "oops\n"));
    assert_eq!((tail[1].name.as_str(), text(&tail[1].data["data"])), ("stdout", "100\n"));
    // The operation: from the end of what was seen, waiting for more.
    let logs = daemon.get(&format!("/v1/runs/{id}/logs?stream=stdout&tail=1"));
    assert_eq!(logs["stdout"]["text"], "100\n");
    let offset = logs["stdout"]["next_offset"].as_u64().unwrap();
    let quiet = daemon.get(&format!("/v1/runs/{id}/logs?stream=stdout&offset={offset}&wait=50ms"));
    assert_eq!((&quiet["state"], &quiet["stdout"]["text"]), (&json!("running"), &json!("")), "{quiet}");
    let socket = daemon.socket();
    let more = format!("GET /v1/runs/{id}/logs?stream=stdout&offset={offset}&wait=60s");
    let waiting = std::thread::spawn(move || try_unix(&socket, &more, &[], b"").unwrap().json());

    daemon.shell("box", "echo went on > go");
    assert_eq!(lines.next().unwrap(), "went on");
    let went_on = events.next().unwrap();
    assert_eq!(text(&went_on.data["data"]), "went on\n");
    assert_eq!(waiting.join().unwrap()["stdout"]["text"], "went on\n");
    // Who comes back with the id it saw last does not get the tail again.
    daemon.shell("box", "echo > end");
    assert_eq!(events.next().unwrap().name, "ended");
    let header = format!("Last-Event-ID: {}", went_on.id);
    let mut again = Events::open(&daemon.socket(), &line, &[&header], "");
    assert_eq!(again.next().unwrap().name, "ended");
    assert!(lines.next().is_none());
    assert!(child.wait().unwrap().success());
    // The same from the record.
    assert_eq!(daemon.succeeds(&["logs", "-f", "-n", "2", id]), "100\nwent on\n");
}

#[test]
fn arguments_of_following_that_make_no_sense_are_refused() {
    let daemon = TestDaemon::start();
    let run = daemon.exec("box", json!({"command": "true"}));
    let id = run["run_id"].as_str().unwrap();
    for path in
        ["events?tail=some", "events?tail=-1", "events?colour=1", "logs?wait=1s", "logs?offset=0&wait=301s"]
    {
        let error = daemon.refused("GET", &format!("/v1/runs/{id}/{path}"), None);
        assert_eq!(error["code"], "INVALID_ARGUMENT", "{path}");
    }
}
