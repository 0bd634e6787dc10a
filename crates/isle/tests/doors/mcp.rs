//! MCP as a client meets it: `isle mcp` as a child process, JSON-RPC on its standard streams.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use serde_json::{Value, json};

pub(crate) use crate::harness::McpClient as Client;
use crate::harness::{TestDaemon, Watchdog, finish, processes_with, until};

/// What every request of the sessionless revision carries.
fn modern(mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    });
    params
}

#[test]
fn clients_of_every_revision_are_served() {
    let daemon = TestDaemon::start();
    for version in ["2025-06-18", "2025-11-25"] {
        let (mut client, hello) = Client::initialized(&daemon, version);
        assert_eq!(hello["protocolVersion"], version);
        assert_eq!(hello["serverInfo"]["name"], "isle");
        let result = client.call("exec", json!({"command": "echo $((6*7))"}));
        assert_eq!(result["structuredContent"]["stdout"], "42\n", "{result}");
        assert_eq!(client.request("ping", json!({}))["result"], json!({}));
        assert_eq!(client.hang_up(), Some(0), "the end of the input is the end of the session");
    }
    let mut client = Client::start(&daemon);
    let found = client.request("server/discover", modern(json!({})));
    assert!(
        found["result"]["supportedVersions"].as_array().unwrap().contains(&json!("2026-07-28")),
        "{found}"
    );
    let call = modern(json!({"name": "exec", "arguments": {"argv": ["echo", "no handshake"]}}));
    let result = client.request("tools/call", call)["result"].clone();
    assert_eq!(result["structuredContent"]["stdout"], "no handshake\n", "{result}");
    assert_eq!(client.hang_up(), Some(0));
}

#[test]
fn eleven_tools_are_listed_for_little() {
    let daemon = TestDaemon::start();
    let (mut client, _) = Client::initialized(&daemon, "2025-11-25");
    let list = client.request("tools/list", json!({}))["result"]["tools"].clone();
    let mut names: Vec<&str> =
        list.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    names.sort_unstable();
    let expected = [
        "destroy",
        "exec",
        "history",
        "kill",
        "list_files",
        "logs",
        "read_file",
        "run_code",
        "status",
        "wait",
        "write_files",
    ];
    assert_eq!(names, expected);
    // Four bytes of JSON are about one token; every conversation pays for the list.
    assert!(list.to_string().len() < 12_000, "{} bytes", list.to_string().len());
}

#[test]
fn a_session_of_a_model_works_from_end_to_end() {
    let daemon = TestDaemon::start();
    let (mut client, _) = Client::initialized(&daemon, "2025-06-18");
    let files = json!([{"path": "app/main.sh", "content": "read x; echo hello $x >&2; exit 2\n"}]);
    let written = client.call("write_files", json!({"sandbox": "work", "files": files}));
    assert_eq!(written["isError"], false, "{written}");
    let ran = client.call("run_code", json!({"sandbox": "work", "path": "app/main.sh", "stdin": "you\n"}));
    let run = &ran["structuredContent"];
    assert_eq!(
        (&run["state"], &run["exit_code"], &run["stderr"]),
        (&json!("failed"), &json!(2), &json!("hello you\n"))
    );
    assert_eq!(ran["isError"], false, "a status other than 0 is a result");
    assert!(ran["content"][0]["text"].as_str().unwrap().contains("hello you"), "{ran}");
    let read = client.call("read_file", json!({"sandbox": "work", "path": "app/main.sh"}));
    assert!(read["structuredContent"]["content"].as_str().unwrap().starts_with("read x"));
    let listed = client.call("list_files", json!({"sandbox": "work", "depth": 2}));
    assert_eq!(listed["structuredContent"]["entries"].as_array().unwrap().len(), 2, "{listed}");
    let job =
        client.call("exec", json!({"sandbox": "work", "command": "echo on; sleep 78301", "wait": "0s"}));
    let id = &job["structuredContent"]["run_id"];
    assert_eq!(job["structuredContent"]["state"], "running");
    until("it says something", || {
        client.call("logs", json!({"run_id": id}))["structuredContent"]["stdout"]["text"] == "on\n"
    });
    // Another client, another door: the same sandbox and the same run.
    let (mut other, _) = Client::initialized(&daemon, "2025-11-25");
    let status = other.call("status", json!({"sandbox": "work"}));
    assert_eq!(&status["structuredContent"]["detail"]["runs"][0]["run_id"], id, "{status}");
    let killed = other.call("kill", json!({"run_id": id}));
    assert_eq!(killed["structuredContent"]["state"], "killed", "{killed}");
    let logs = client.call("logs", json!({"run_id": id}));
    assert_eq!(logs["structuredContent"]["stdout"]["text"], "on\n");
    let history = client.call("history", json!({"sandbox": "work"}));
    assert_eq!(history["structuredContent"]["runs"].as_array().unwrap().len(), 2);
    assert_eq!(client.call("destroy", json!({"sandbox": "work"}))["isError"], false);
    assert!(daemon.names().is_empty());
}

#[test]
fn large_results_stay_small_and_can_be_paged() {
    let daemon = TestDaemon::start();
    let (mut client, _) = Client::initialized(&daemon, "2025-11-25");
    let result = client.call("exec", json!({"command": "seq 1 100000; seq 1 100000 >&2"}));
    assert!(result["structuredContent"].to_string().len() < 30_000);
    assert!(result["content"].to_string().len() < 30_000);
    let run = result["structuredContent"].clone();
    assert_eq!((&run["stdout_truncated"], &run["stderr_truncated"]), (&json!(true), &json!(true)));
    let (mut text, mut offset) = (String::new(), 0);
    loop {
        let page =
            client.call("logs", json!({"run_id": run["run_id"], "stream": "stdout", "offset": offset}));
        let page = &page["structuredContent"]["stdout"];
        assert!(page.to_string().len() < 30_000);
        let next = page["next_offset"].as_u64().unwrap();
        if next == offset {
            break;
        }
        text.push_str(page["text"].as_str().unwrap());
        offset = next;
    }
    let all: String = (1..=100_000).map(|number| format!("{number}\n")).collect();
    assert!(text == all, "the pages are not the output: {} of {} bytes", text.len(), all.len());
}

#[test]
fn bad_arguments_are_a_tool_error_a_model_can_act_on() {
    let daemon = TestDaemon::start();
    let (mut client, _) = Client::initialized(&daemon, "2025-11-25");
    let cases = [
        ("exec", json!({}), "INVALID_ARGUMENT"),
        ("exec", json!({"command": "a", "argv": ["b"]}), "INVALID_ARGUMENT"),
        ("exec", json!({"command": "a", "colour": "red"}), "INVALID_ARGUMENT"),
        ("exec", json!({"command": "a", "sandbox": "../x"}), "INVALID_NAME"),
        ("exec", json!({"command": "a", "timeout": "soon"}), "INVALID_DURATION"),
        ("read_file", json!({"path": "../etc/passwd"}), "INVALID_PATH"),
        ("read_file", json!({"path": "x", "sandbox": "nobody"}), "SANDBOX_NOT_FOUND"),
        ("logs", json!({"run_id": "run_00000000000000000000000000"}), "RUN_NOT_FOUND"),
        ("wait", json!({"run_id": "no name: at all"}), "INVALID_ARGUMENT"),
        ("wait", json!({"run_id": "nonsense"}), "JOB_NOT_FOUND"),
    ];
    for (tool, arguments, code) in cases {
        let result = client.call(tool, arguments.clone());
        assert_eq!(result["isError"], true, "{tool} {arguments}: {result}");
        let text = result["content"][0]["text"].as_str().unwrap();
        assert!(text.starts_with(code) && text.contains("Next: "), "{tool} {arguments}: {text}");
    }
    let unknown = client.request("tools/call", json!({"name": "launch", "arguments": {}}));
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
    assert_eq!(client.request("no/such/method", json!({}))["error"]["code"], -32601);
    assert!(daemon.names().is_empty());
}

#[test]
fn progress_beats_while_a_long_command_runs() {
    let daemon = TestDaemon::start();
    let (mut client, _) = Client::initialized(&daemon, "2025-11-25");
    let call = json!({"name": "exec", "arguments": {"command": "echo working; sleep 7"}, "_meta": {"progressToken": "beat"}});
    let result = client.request("tools/call", call)["result"].clone();
    assert_eq!(result["structuredContent"]["state"], "completed");
    let beats: Vec<&Value> =
        client.notices.iter().filter(|notice| notice["method"] == "notifications/progress").collect();
    assert!(!beats.is_empty(), "{:?}", client.notices);
    let mut last = 0.0;
    for beat in beats {
        assert_eq!(beat["params"]["progressToken"], "beat");
        let now = beat["params"]["progress"].as_f64().unwrap();
        assert!(now > last, "progress only grows");
        last = now;
    }
}

#[test]
fn a_cancelled_call_ends_its_whole_tree() {
    let daemon = TestDaemon::start();
    let (mut client, _) = Client::initialized(&daemon, "2025-11-25");
    let marker = format!("78302{:07}", std::process::id());
    let command = format!("(setsid sleep {marker} &) ; trap '' TERM; sleep {marker}; sleep {marker}");
    let id = client.ask("tools/call", json!({"name": "exec", "arguments": {"command": command}}));
    until("both sleep", || processes_with(&format!("sleep {marker} ")).len() >= 2);
    let reason = json!({"requestId": id, "reason": "enough"});
    client.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": reason}));
    until("the whole tree is gone", || processes_with(&marker).is_empty());
    // Its record follows its last process.
    until("it is on record as cancelled", || {
        client.call("history", json!({}))["structuredContent"]["runs"][0]["state"] == "cancelled"
    });
}

#[test]
fn a_client_that_only_goes_away_leaves_its_run_alone() {
    let daemon = TestDaemon::start();
    daemon.shell("default", "mkfifo go");
    let (mut client, _) = Client::initialized(&daemon, "2025-11-25");
    client.ask("tools/call", json!({"name": "exec", "arguments": {"command": "read x < go; echo $x"}}));
    until("it runs", || daemon.get("/v1/runs?state=running")["runs"].as_array().unwrap().len() == 1);
    drop(client);
    daemon.shell("default", "echo went on > go");
    until("it ended by itself", || {
        daemon.get("/v1/runs?state=running")["runs"].as_array().unwrap().is_empty()
    });
    let runs = daemon.get("/v1/runs?sandbox=default&state=completed");
    let id = runs["runs"]
        .as_array()
        .unwrap()
        .iter()
        .find(|run| run["command"].as_str().unwrap().contains("read x"));
    assert_eq!(daemon.succeeds(&["logs", id.unwrap()["run_id"].as_str().unwrap()]), "went on\n");
}

#[test]
fn the_pipe_starts_the_daemon_it_needs() {
    let mut daemon = TestDaemon::start();
    daemon.terminate();
    let mut command = daemon.isle_starting(&["mcp"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let _watch = Watchdog::over(&child);
    let ask = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": modern(json!({"name": "exec", "arguments": {"command": "echo started"}}))});
    writeln!(child.stdin.as_ref().unwrap(), "{ask}").unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("started\\n"), "{line}");
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    assert!(finish(&mut daemon.isle(&["stop"])).status.success());
}

#[test]
fn a_model_limits_a_run_and_reads_which_limit_ended_it() {
    let daemon = TestDaemon::start();
    let (mut client, _) = Client::initialized(&daemon, "2025-11-25");
    let spin = json!({"command": "while :; do :; done", "limits": {"cpu": "1s"}});
    let result = client.call("exec", spin);
    let run = &result["structuredContent"];
    assert_eq!(
        (&run["state"], &run["limits_hit"][0]["limit"]),
        (&json!("killed"), &json!("cpu_time")),
        "{result}"
    );
    let said = result["content"][0]["text"].as_str().unwrap();
    assert!(said.contains("CPU time of 1s"), "{said}");
    let code = json!({"code": "open('big', 'wb').write(b'x' * 2000000)", "language": "python",
        "limits": {"file_size": "1M"}});
    let result = client.call("run_code", code);
    assert!(result["structuredContent"]["stderr"].as_str().unwrap().contains("File too large"), "{result}");
    let wrong = client.call("exec", json!({"command": "true", "limits": {"cpu": "10ms"}}));
    assert_eq!(wrong["isError"], true);
    let said = wrong["content"][0]["text"].as_str().unwrap();
    assert!(said.starts_with("INVALID_ARGUMENT: limits.cpu") && said.contains("Next: "), "{said}");
}
