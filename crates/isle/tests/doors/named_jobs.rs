//! Jobs by name: started, listed, written to and stopped, in both tiers and at every door.

use std::process::Stdio;
use std::thread;

use serde_json::{Value, json};

use crate::contexts::both_tiers;
use crate::harness::{TestDaemon, finish, processes_with, until};
use crate::mcp::Client;

/// Starts a job, which must work.
pub(crate) fn start(daemon: &TestDaemon, sandbox: &str, arguments: Value) -> Value {
    daemon.post(&format!("/v1/sandboxes/{sandbox}/jobs"), arguments)
}

/// What a run or job printed.
pub(crate) fn said(daemon: &TestDaemon, job: &str) -> String {
    let logs = daemon.get(&format!("/v1/runs/{job}/logs?stream=stdout&tail=0"));
    logs["stdout"]["text"].as_str().unwrap().to_owned()
}

/// The end of a run or job.
pub(crate) fn ended(daemon: &TestDaemon, job: &str) -> Value {
    daemon.post(&format!("/v1/runs/{job}/wait"), json!({"timeout": "60s"}))
}

fn write(daemon: &TestDaemon, job: &str, body: Value) -> Value {
    daemon.post(&format!("/v1/runs/{job}/input"), body)
}

#[test]
fn a_job_is_known_by_its_name_wherever_a_run_is() {
    let daemon = TestDaemon::start();
    for sandbox in both_tiers(&daemon) {
        let command =
            "echo $GREETING from $PWD; echo aside >&2; while ! [ -e ../go ]; do sleep 0.02; done; exit 3";
        let arguments = json!({
            "name": "web", "command": command, "env": {"GREETING": "hello"}, "cwd": "/workspace/sub",
        });
        let job = start(&daemon, sandbox, arguments);
        let name = format!("{sandbox}:web");
        assert_eq!(
            (&job["job"], &job["state"], &job["pty"]),
            (&json!(name), &json!("running"), &json!(false))
        );
        until("its output is seen by name", || said(&daemon, &name).ends_with("/sub\n"));
        assert!(said(&daemon, &name).starts_with("hello from "), "{}", said(&daemon, &name));
        assert!(daemon.succeeds(&["logs", &name, "-n", "1"]).starts_with("hello from "));
        let listed = daemon.get(&format!("/v1/jobs?sandbox={sandbox}"));
        assert_eq!(listed["jobs"][0]["run_id"], job["run_id"], "{listed}");
        let running = daemon.get("/v1/jobs?state=running&limit=5");
        assert_eq!(running["jobs"].as_array().unwrap().len(), 1, "{running}");
        let table = daemon.succeeds(&["job", "ls", sandbox]);
        assert!(table.contains(&name) && table.contains("running"), "{table}");

        daemon.shell(sandbox, "touch go");
        let waited = finish(&mut daemon.isle(&["wait", &name]));
        assert_eq!(waited.status.code(), Some(3));
        let listed = daemon.get(&format!("/v1/jobs?sandbox={sandbox}"))["jobs"][0].clone();
        assert_eq!((&listed["state"], &listed["exit_code"]), (&json!("failed"), &json!(3)), "{listed}");
        assert!(listed["ended_at"].is_string() && listed["duration_ms"].is_u64(), "{listed}");
        assert!(said(&daemon, &name).starts_with("hello"), "after the end it is still there");
        let late = daemon.refused("POST", &format!("/v1/runs/{name}/kill"), Some(&json!({})));
        assert_eq!(late["code"], "RUN_FINISHED");
    }
    // A name without a sandbox is one of the sandbox `default`; whoever means another is told.
    let stranger = daemon.refused("GET", "/v1/runs/web/logs", None);
    assert_eq!(stranger["code"], "JOB_NOT_FOUND");
    assert!(stranger["next_steps"][0].as_str().unwrap().contains(":web"), "{stranger}");
    start(&daemon, "default", json!({"name": "here", "argv": ["echo", "at home"]}));
    assert_eq!(ended(&daemon, "here")["stdout"], "at home\n");
}

#[test]
fn a_name_is_unique_while_its_job_goes_on_and_free_afterwards() {
    let daemon = TestDaemon::start();
    daemon.shell("box", "true");
    let won: usize = thread::scope(|scope| {
        let one = |number: usize| {
            let body = json!({"name": "web", "command": format!("echo {number} >> ran; exec sleep 600")});
            daemon.http("POST", "/v1/sandboxes/box/jobs", Some(&body)).status
        };
        let all: Vec<_> = (0..6).map(|number| scope.spawn(move || one(number))).collect();
        all.into_iter().map(|thread| usize::from(thread.join().unwrap() == 200)).sum()
    });
    assert_eq!(won, 1, "of six at once one gets the name");
    let taken = json!({"name": "web", "command": "echo no >> ran"});
    let refused = daemon.refused("POST", "/v1/sandboxes/box/jobs", Some(&taken));
    assert_eq!(refused["code"], "JOB_EXISTS", "{refused}");
    until("the first has begun", || daemon.shell("box", "cat ran 2>/dev/null || true").lines().count() == 1);
    // Elsewhere the name is free.
    start(&daemon, "other", json!({"name": "web", "command": "true"}));
    let first = daemon.get("/v1/jobs?sandbox=box")["jobs"][0]["run_id"].clone();
    daemon.post("/v1/runs/box:web/kill", json!({"force": true}));
    start(&daemon, "box", json!({"name": "web", "command": "echo second"}));
    assert_eq!(ended(&daemon, "box:web")["stdout"], "second\n", "the name means the newest");
    assert_eq!(ended(&daemon, first.as_str().unwrap())["state"], "killed", "the id means the first");
    assert_eq!(daemon.shell("box", "cat ran").lines().count(), 1, "nothing else ran");
}

#[test]
fn what_cannot_be_a_job_is_refused_and_nothing_is_left_of_it() {
    let daemon = TestDaemon::start();
    daemon.shell("box", "true");
    let missing = json!({"name": "web", "argv": ["no-such-program"]});
    assert_eq!(daemon.refused("POST", "/v1/sandboxes/box/jobs", Some(&missing))["code"], "COMMAND_NOT_FOUND");
    let wrong = [
        (json!({"name": "run_me", "command": "true"}), "INVALID_NAME"),
        (json!({"name": "../web", "command": "true"}), "INVALID_NAME"),
        (json!({"name": "", "command": "true"}), "INVALID_NAME"),
        (json!({"name": "web"}), "INVALID_ARGUMENT"),
        (json!({"name": "web", "command": "true", "argv": ["true"]}), "INVALID_ARGUMENT"),
        (json!({"name": "web", "command": "true", "cwd": "relative"}), "INVALID_PATH"),
        (json!({"name": "web", "command": "true", "timeout": "9000d"}), "INVALID_ARGUMENT"),
        (json!({"name": "web", "command": "true", "wait": "1s"}), "INVALID_ARGUMENT"),
    ];
    for (body, code) in &wrong {
        let error = daemon.refused("POST", "/v1/sandboxes/box/jobs", Some(body));
        assert_eq!(error["code"], *code, "{body}: {error}");
    }
    for query in ["limit=0", "limit=501", "state=asleep", "sandbox=../x", "colour=red"] {
        daemon.refused("GET", &format!("/v1/jobs?{query}"), None);
    }
    // The name is free: nothing of all this holds it.
    start(&daemon, "box", json!({"name": "web", "command": "echo good"}));
    assert_eq!(ended(&daemon, "box:web")["stdout"], "good\n");
    let failed = finish(&mut daemon.isle(&["job", "start", "box", "--name", "a b", "--", "true"]));
    assert!(!failed.status.success());
    assert!(String::from_utf8_lossy(&failed.stderr).contains("error[INVALID_NAME]"));
}

#[test]
fn a_job_reads_what_anybody_writes_to_it_until_its_input_ends() {
    let daemon = TestDaemon::start();
    for sandbox in both_tiers(&daemon) {
        let job = format!("{sandbox}:echo");
        let arguments = json!({"name": "echo", "command": "while read x; do echo got $x; done; echo over", "input": true, "stdin": "zero\n"});
        start(&daemon, sandbox, arguments);
        let written = write(&daemon, &job, json!({"text": "one\n"}));
        assert_eq!(
            (&written["written_bytes"], &written["unread_bytes"]),
            (&json!(4), &json!(0)),
            "{written}"
        );
        daemon.succeeds(&["job", "write", &job, "two"]);
        write(&daemon, &job, json!({"base64": "dGhyZWUK"}));
        until("it has read all", || said(&daemon, &job) == "got zero\ngot one\ngot two\ngot three\n");
        let last = write(&daemon, &job, json!({"text": "four\n", "eof": true}));
        assert_eq!(last["ended"], true, "{last}");
        let end = ended(&daemon, &job);
        assert_eq!(end["state"], "completed", "{end}");
        assert!(end["stdout"].as_str().unwrap().ends_with("got four\nover\n"), "{end}");

        let path = format!("/v1/runs/{job}/input");
        assert_eq!(daemon.refused("POST", &path, Some(&json!({"text": "x"})))["code"], "RUN_FINISHED");
        start(&daemon, sandbox, json!({"name": "deaf", "command": "exec sleep 600"}));
        let path = format!("/v1/runs/{sandbox}:deaf/input");
        assert_eq!(daemon.refused("POST", &path, Some(&json!({"text": "x"})))["code"], "INPUT_CLOSED");
        for wrong in
            [json!({}), json!({"text": "a", "base64": "YQ=="}), json!({"base64": "?"}), json!({"text": ""})]
        {
            assert_eq!(daemon.refused("POST", &path, Some(&wrong))["code"], "INVALID_ARGUMENT", "{wrong}");
        }
        let much = json!({"text": "x".repeat(1024 * 1024 + 1)});
        assert_eq!(daemon.refused("POST", &path, Some(&much))["code"], "TOO_LARGE");
        let actions = daemon.get(&format!("/v1/audit?sandbox={sandbox}"))["rows"].to_string();
        assert!(actions.contains("write_job"), "who wrote is on record");
    }
}

#[test]
fn a_job_that_does_not_read_takes_what_fits_and_the_rest_is_told() {
    let daemon = TestDaemon::start();
    start(
        &daemon,
        "box",
        json!({"name": "slow", "command": "while ! [ -e go ]; do sleep 0.05; done; wc -c", "input": true}),
    );
    let written = write(&daemon, "box:slow", json!({"text": "x".repeat(300_000)}));
    let (taken, left) =
        (written["written_bytes"].as_u64().unwrap(), written["unread_bytes"].as_u64().unwrap());
    assert!(taken > 0 && left > 0 && taken + left == 300_000, "{written}");
    daemon.shell("box", "touch go");
    let rest =
        write(&daemon, "box:slow", json!({"text": "x".repeat(usize::try_from(left).unwrap()), "eof": true}));
    assert_eq!((&rest["unread_bytes"], &rest["ended"]), (&json!(0), &json!(true)), "{rest}");
    assert_eq!(ended(&daemon, "box:slow")["stdout"], "300000\n");
}

#[test]
fn stopping_a_job_ends_its_whole_tree_and_shows_its_last_lines() {
    let daemon = TestDaemon::start();
    for (number, sandbox) in both_tiers(&daemon).into_iter().enumerate() {
        let marker = format!("{}{:07}", 85_100 + number, std::process::id());
        let alive = || processes_with(&format!("sleep {marker} ")).len();
        let command = format!(
            "trap 'echo asked; exit 5' TERM; (setsid setsid sleep {marker} &); seq 1 100; sleep {marker} & wait"
        );
        start(&daemon, sandbox, json!({"name": "web", "command": command}));
        let job = format!("{sandbox}:web");
        until("all of it runs", || alive() >= 3 && said(&daemon, &job).lines().count() == 100);
        let last = daemon.succeeds(&["job", "stop", &job]);
        assert_eq!(last.lines().count(), 20, "{last}");
        assert!(last.starts_with("82\n") && last.ends_with("100\nasked\n"), "it was asked first: {last}");
        assert_eq!(alive(), 0, "nothing of it is left when the answer comes");
        let end = ended(&daemon, &job);
        assert_eq!((&end["state"], &end["exit_code"]), (&json!("killed"), &json!(5)), "{end}");

        let deaf = format!("trap '' TERM; echo deaf; sleep {marker} & wait; wait");
        start(&daemon, sandbox, json!({"name": "web", "command": deaf}));
        until("it does not listen", || said(&daemon, &job) == "deaf\n");
        daemon.succeeds(&["job", "stop", "--force", &job]);
        assert_eq!(alive(), 0);
        assert_eq!(ended(&daemon, &job)["signal"], 9);
        let again = finish(&mut daemon.isle(&["job", "stop", &job]));
        assert!(String::from_utf8_lossy(&again.stderr).contains("error[RUN_FINISHED]"));
        let never = finish(&mut daemon.isle(&["job", "stop", "box:never"]));
        assert!(String::from_utf8_lossy(&never.stderr).contains("error[JOB_NOT_FOUND]"));
    }
}

#[test]
fn the_tail_of_a_log_is_fifty_lines_or_what_was_asked_for() {
    let daemon = TestDaemon::start();
    start(&daemon, "box", json!({"name": "count", "command": "seq 1 300"}));
    ended(&daemon, "box:count");
    let lines = |query: &str| {
        let logs = daemon.get(&format!("/v1/runs/box:count/logs?stream=stdout{query}"));
        logs["stdout"]["text"].as_str().unwrap().lines().count()
    };
    assert_eq!(lines(""), 50);
    assert_eq!(lines("&tail=7"), 7);
    assert_eq!((lines("&tail=0"), lines("&tail=-1")), (300, 300));
    assert_eq!(daemon.succeeds(&["logs", "box:count"]).lines().count(), 300);
    let page = daemon.get("/v1/runs/box:count/logs?stream=stdout&offset=2&limit=4");
    assert_eq!((&page["stdout"]["text"], &page["stdout"]["next_offset"]), (&json!("2\n3\n"), &json!(6)));
    assert_eq!(daemon.succeeds(&["logs", "--follow", "-n", "2", "box:count"]), "299\n300\n");
}

#[test]
fn the_tools_of_jobs_work_over_mcp() {
    let daemon = TestDaemon::start();
    let (mut client, _) = Client::initialized_with(&daemon, "2025-11-25", &["--toolsets", "core,jobs"]);
    let mut call = |tool: &str, arguments: Value| client.call(tool, arguments)["structuredContent"].clone();
    let job = call(
        "start_job",
        json!({"sandbox": "box", "name": "calc", "command": "while read x; do echo $((x)); done", "input": true}),
    );
    assert_eq!((&job["job"], &job["state"]), (&json!("box:calc"), &json!("running")), "{job}");
    call("write_job", json!({"run_id": "box:calc", "text": "6*7\n"}));
    let logs = call("logs", json!({"run_id": "box:calc", "stream": "stdout", "offset": 0, "wait": "30s"}));
    assert_eq!(logs["stdout"]["text"], "42\n", "{logs}");
    let listed = call("list_jobs", json!({"state": "running"}));
    assert_eq!(listed["jobs"][0]["job"], "box:calc", "{listed}");
    let killed = call("kill", json!({"run_id": "box:calc"}));
    assert_eq!((&killed["state"], &killed["last_output"]), (&json!("killed"), &json!("42\n")), "{killed}");
    let commands = json!([{"command": "echo one"}, {"argv": ["false"], "allow_failure": true}, {"command": "echo three"}]);
    let result = call("run_commands", json!({"sandbox": "box", "commands": commands, "lock": true}));
    assert_eq!(
        (&result["state"], &result["stdout"]),
        (&json!("completed"), &json!("one\nthree\n")),
        "{result}"
    );
    let refused = client.call("start_job", json!({"sandbox": "box", "name": "no good", "command": "true"}));
    assert_eq!(refused["isError"], true, "{refused}");
    assert!(refused.to_string().contains("INVALID_NAME"), "{refused}");
}

/// Numbers from 1 on, a line each, as many as have so many bytes or a little more.
fn numbers(bytes: usize) -> (u32, String) {
    let mut text = String::new();
    let last = (1..).find(|number| {
        text.push_str(&format!("{number}\n"));
        text.len() >= bytes
    });
    (last.unwrap(), text)
}

#[test]
fn a_job_that_prints_much_keeps_all_of_it_in_files_that_go_with_its_record() {
    let mut daemon = TestDaemon::start_with(&[("ISLE_OUTPUT_CAP", "64K")]);
    let place = daemon.home().state_dir().join("jobs");
    let files = || std::fs::read_dir(&place).map_or(0, Iterator::count);
    let (last, all) = numbers(600_000);
    for sandbox in both_tiers(&daemon) {
        let command = format!("seq 1 {last}; seq 1 9 >&2");
        start(&daemon, sandbox, json!({"name": "talker", "command": command}));
        let name = format!("{sandbox}:talker");
        assert_eq!(ended(&daemon, &name)["state"], "completed");
        let output = finish(&mut daemon.isle(&["logs", &name]));
        assert!(output.stdout == all.as_bytes(), "{} bytes of {}", output.stdout.len(), all.len());
        assert_eq!(String::from_utf8(output.stderr).unwrap().lines().count(), 9, "and nothing is missing");
        // Following tells the same, from the beginning on.
        let followed = finish(&mut daemon.isle(&["logs", "--follow", &name]));
        assert!(followed.stdout == all.as_bytes(), "{} bytes of {}", followed.stdout.len(), all.len());
        // From the middle, by position, as pages of the length that was asked for.
        let page =
            daemon.get(&format!("/v1/runs/{name}/logs?stream=stdout&offset=300000&limit=1000"))["stdout"]
                .clone();
        assert_eq!(page["text"], all[300_000..301_000], "{page}");
        assert_eq!(
            (&page["next_offset"], &page["total_bytes"]),
            (&json!(301_000), &json!(all.len())),
            "{page}"
        );
        // A run that is no job keeps its beginning and its end.
        let run = daemon.exec(sandbox, json!({"command": format!("seq 1 {last}")}));
        let cut = daemon
            .get(&format!("/v1/runs/{}/logs?stream=stdout&offset=300000", run["run_id"].as_str().unwrap()));
        assert!(cut["stdout"]["lost_bytes"].as_u64().unwrap() > 0, "{cut}");
    }
    // So does following one that goes on, or that only the store knows.
    let command = format!("seq 1 {last}; while ! [ -e go ]; do sleep 0.02; done; echo end");
    start(&daemon, "box", json!({"name": "slow", "command": command}));
    until("it has said all but its end", || {
        daemon.get("/v1/runs/box:slow/logs?stream=stdout&tail=1")["stdout"]["total_bytes"] == all.len()
    });
    let following = daemon.isle(&["logs", "--follow", "box:slow"]).stdout(Stdio::piped()).spawn().unwrap();
    daemon.shell("box", "touch go");
    let said = following.wait_with_output().unwrap().stdout;
    assert!(said == format!("{all}end\n").as_bytes(), "{} bytes of {}", said.len(), all.len());
    daemon.kill();
    daemon.launch();
    let said = finish(&mut daemon.isle(&["logs", "--follow", "box:slow"])).stdout;
    assert!(said == format!("{all}end\n").as_bytes(), "{} bytes of {}", said.len(), all.len());
    assert_eq!(files(), 3, "one for each output that did not fit");
    daemon.post("/v1/limits", json!({"keep_runs_for": "1ms"}));
    daemon.kill();
    daemon.launch();
    until("old runs are forgotten, and their files are gone", || files() == 0);
}

#[test]
fn files_of_a_job_are_bounded_and_what_is_missing_is_told() {
    let daemon = TestDaemon::start_with(&[("ISLE_OUTPUT_CAP", "64K"), ("ISLE_JOB_OUTPUT_CAP", "200K")]);
    let (last, all) = numbers(1_000_000);
    start(&daemon, "box", json!({"name": "flood", "command": format!("seq 1 {last}")}));
    assert_eq!(ended(&daemon, "box:flood")["state"], "completed");
    let held: u64 = std::fs::read_dir(daemon.home().state_dir().join("jobs"))
        .unwrap()
        .map(|entry| entry.unwrap().metadata().unwrap().len())
        .sum();
    assert!((100_000..=200 * 1024).contains(&held), "{held}");
    let output = finish(&mut daemon.isle(&["logs", "box:flood"]));
    let (text, words) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(text.starts_with("1\n2\n") && text.ends_with(&format!("\n{last}\n")));
    let missing = all.len() - text.len();
    assert!(words.contains(&format!("{missing} bytes of output were dropped")), "{missing}: {words}");
    let kept = usize::try_from(held).unwrap();
    assert!(text.ends_with(&all[all.len() - kept..]), "the end is whole");
}
