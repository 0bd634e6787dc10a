//! Secrets through every door: set and never told again, seen by sandboxes as placeholders, or as values
//! that are masked in everything that comes out.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::contexts::{code, has};
use crate::harness::http::Events;
use crate::harness::{TestDaemon, Watchdog, finish, until};
use crate::mcp::Client;
use crate::tenants::{listening, tenant};

const REVISION: &str = "2025-11-25";

/// A value nobody else has.
fn value(what: &str) -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    format!("s3cr3t.{what}.{}.{:x}", std::process::id(), now.as_nanos())
}

fn set(daemon: &TestDaemon, name: &str, value: &str) -> Value {
    daemon.post("/v1/secrets", json!({"name": name, "value": value, "hosts": ["api.test"]}))
}

fn attach(daemon: &TestDaemon, sandbox: &str, body: Value) -> Value {
    daemon.post(&format!("/v1/sandboxes/{sandbox}/secrets"), body)
}

/// Runs the program with something on its standard input.
fn with_input(mut command: Command, input: &str) -> std::process::Output {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let _watchdog = Watchdog::over(&child);
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn holds(bytes: &[u8], value: &str) -> bool {
    String::from_utf8_lossy(bytes).contains(value)
}

/// The files below a directory that hold a value.
fn files_with(directory: &Path, value: &str) -> Vec<String> {
    let found = finish(Command::new("grep").args(["-rlaF", "--devices=skip", "--", value]).arg(directory));
    String::from_utf8_lossy(&found.stdout).lines().map(str::to_owned).collect()
}

/// Processes whose environment or command line holds a value, as far as we may look.
fn processes_showing(value: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        for part in ["environ", "cmdline"] {
            let path = entry.path().join(part);
            if std::fs::read(&path).is_ok_and(|bytes| holds(&bytes, value)) {
                found.push(path.display().to_string());
            }
        }
    }
    found
}

#[test]
fn a_secret_is_set_listed_rotated_and_removed_and_never_told_again() {
    let daemon = TestDaemon::start();
    let (first, second) = (value("first"), value("second"));
    let mut answers = String::new();
    let body = json!({"name": "API_KEY", "value": first, "hosts": ["API.test."], "expires": "30d"});
    let answer = daemon.post("/v1/secrets", body);
    assert_eq!((&answer["version"], &answer["hosts"]), (&json!(1), &json!(["api.test"])), "{answer}");
    assert!(answer["expires_at"].is_string(), "{answer}");
    answers += &answer.to_string();
    // By the command line, from standard input; hosts stay, and one line end is none of the value.
    let output = with_input(daemon.isle(&["--json", "secret", "set", "API_KEY"]), &format!("{second}\n"));
    assert!(output.status.success(), "{output:?}");
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&answer["version"], &answer["hosts"]), (&json!(2), &json!(["api.test"])), "{answer}");
    assert!(answer.get("expires_at").is_none(), "{answer}");
    answers += &String::from_utf8_lossy(&output.stdout);
    let file = daemon.home().write("key.txt", "from a file\n");
    daemon.succeeds(&[
        "secret",
        "set",
        "FILED",
        "--file",
        file.to_str().unwrap(),
        "--host",
        "*.a.test",
        "--expires",
        "1h",
    ]);
    let listed = daemon.get("/v1/secrets");
    let names: Vec<&str> =
        listed["secrets"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["API_KEY", "FILED"]);
    answers += &listed.to_string();
    answers += &daemon.succeeds(&["secret", "list"]);
    let (mut client, _) = Client::initialized_with(&daemon, REVISION, &["--toolsets", "secrets"]);
    let tools = client.request("tools/list", json!({})).to_string();
    for tool in ["secret_list", "secret_attach", "secret_detach"] {
        assert!(tools.contains(&format!("\"{tool}\"")), "{tools}");
    }
    for never in ["secret_set", "secret_remove"] {
        assert!(!tools.contains(never), "a model neither says nor removes secrets: {tools}");
        let body = json!({"name": "API_KEY", "value": "x"});
        let refused = client.request("tools/call", json!({"name": never, "arguments": body}));
        assert!(refused.get("error").is_some() || refused["result"]["isError"] == true, "{refused}");
    }
    answers += &client.call("secret_list", json!({})).to_string();
    for value in [&first, &second] {
        assert!(!answers.contains(value.as_str()), "{answers}");
    }
    // Never on a command line.
    let argument = json!({"name": "API_KEY", "value": "typed"}).to_string();
    let output = finish(&mut daemon.isle(&["call", "secret_set", &argument]));
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("command line"), "{output:?}");
    assert_eq!(daemon.succeeds(&["secret", "rm", "API_KEY", "FILED"]), "API_KEY\nFILED\n");
    assert_eq!(daemon.refused("DELETE", "/v1/secrets/API_KEY", None)["code"], "SECRET_NOT_FOUND");
    assert_eq!(daemon.get("/v1/secrets")["secrets"], json!([]));
    let audit = daemon.get("/v1/audit?limit=100").to_string();
    for action in ["secret_set", "secret_remove"] {
        assert!(audit.contains(action), "{audit}");
    }
}

#[test]
fn bad_secrets_are_refused_and_change_nothing() {
    let daemon = TestDaemon::start();
    for (body, code) in [
        (json!({"name": "A", "value": ""}), "INVALID_ARGUMENT"),
        (json!({"name": "A", "value": "a\0b"}), "INVALID_ARGUMENT"),
        (json!({"name": "A", "value": "x".repeat(65_537)}), "TOO_LARGE"),
        (json!({"name": "A-B", "value": "x"}), "INVALID_NAME"),
        (json!({"name": "", "value": "x"}), "INVALID_NAME"),
        (json!({"name": "LD_PRELOAD", "value": "x"}), "INVALID_NAME"),
        (json!({"name": "A", "value": "x", "hosts": ["*"]}), "INVALID_ARGUMENT"),
        (json!({"name": "A", "value": "x", "hosts": ["https://a.test/"]}), "INVALID_ARGUMENT"),
        (json!({"name": "A", "value": "x", "expires": "0s"}), "INVALID_DURATION"),
        (json!({"name": "A", "value": "x", "expires": "soon"}), "INVALID_DURATION"),
        (json!({"name": "A"}), "INVALID_ARGUMENT"),
        (json!({"name": "A", "value": 7}), "INVALID_ARGUMENT"),
    ] {
        assert_eq!(daemon.refused("POST", "/v1/secrets", Some(&body))["code"], code, "{body}");
    }
    assert_eq!(daemon.get("/v1/secrets")["secrets"], json!([]));
    assert!(!daemon.home().state_dir().join("vault.key").exists(), "nothing needed a key");
    let output = with_input(daemon.isle(&["secret", "set", "A"]), "");
    assert!(!output.status.success());
    daemon.post("/v1/secrets", json!({"name": "SHORT", "value": "1234567", "hosts": ["api.test"]}));
    daemon.post("/v1/secrets", json!({"name": "NOWHERE", "value": value("nowhere")}));
    daemon.post("/v1/secrets", json!({"name": "LINES", "value": "one\ntwo\nthree", "hosts": ["api.test"]}));
    daemon.post(
        "/v1/secrets",
        json!({"name": "BRIEF", "value": value("brief"), "hosts": ["api.test"], "expires": "1ms"}),
    );
    until("it has expired", || daemon.get("/v1/secrets")["secrets"][0]["expired"] == true);
    for (body, code) in [
        (json!({"secrets": ["NEVER"]}), "SECRET_NOT_FOUND"),
        (json!({"secrets": ["BRIEF"]}), "SECRET_EXPIRED"),
        (json!({"expose": ["BRIEF"]}), "SECRET_EXPIRED"),
        (json!({"expose": ["SHORT"]}), "INVALID_ARGUMENT"),
        (json!({"secrets": ["NOWHERE"]}), "INVALID_ARGUMENT"),
        (json!({"secrets": ["LINES"]}), "INVALID_ARGUMENT"),
        (json!({"secrets": ["SHORT", "SHORT"]}), "INVALID_ARGUMENT"),
        (json!({"secrets": ["SHORT=LD_PRELOAD"]}), "INVALID_ARGUMENT"),
        (json!({}), "INVALID_ARGUMENT"),
    ] {
        let error = daemon.refused("POST", "/v1/sandboxes/fresh/secrets", Some(&body));
        assert_eq!(error["code"], code, "{body}");
        if body != json!({}) {
            let run =
                json!({"command": "true", "secrets": body["secrets"], "expose_secrets": body["expose"]});
            let run = without_nulls(run);
            assert_eq!(daemon.refused("POST", "/v1/sandboxes/fresh/exec", Some(&run))["code"], code, "{run}");
            assert_eq!(daemon.refused("POST", "/v1/runs", Some(&run))["code"], code, "{run}");
        }
    }
    assert!(!daemon.names().contains(&"fresh".to_owned()), "a refusal makes no sandbox");
    daemon.shell("box", "true");
    let error =
        daemon.refused("POST", "/v1/sandboxes/box/secrets/detach", Some(&json!({"secrets": ["SHORT"]})));
    assert_eq!(error["code"], "SECRET_NOT_FOUND");
}

fn without_nulls(mut value: Value) -> Value {
    if let Some(fields) = value.as_object_mut() {
        fields.retain(|_, field| !field.is_null());
    }
    value
}

#[test]
fn a_sandbox_sees_a_placeholder_and_the_value_is_nowhere() {
    let daemon = TestDaemon::start_with(&[("ISLE_DISK", "16M")]);
    let secret = value("substituted");
    set(&daemon, "API_KEY", &secret);
    let attached = attach(&daemon, "box", json!({"secrets": ["API_KEY"]}));
    assert_eq!(attached["attached"], json!([{"name": "API_KEY", "variable": "API_KEY", "exposed": false}]));
    let seen = daemon.shell("box", "echo $API_KEY");
    let digits = seen.trim().strip_prefix("isle-secret-API_KEY-").unwrap();
    assert!(digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()), "{seen}");
    // In every way a command is started, under any name, and the same for the sandbox throughout.
    let own = daemon.exec("box", json!({"command": "echo $GH", "secrets": ["API_KEY=GH"]}));
    assert_eq!(own["stdout"], seen);
    assert_eq!(daemon.succeeds(&["exec", "box", "--secret", "API_KEY=MINE", "--", "printenv", "MINE"]), seen);
    let once = daemon.succeeds(&["run", "--secret", "API_KEY", "--", "printenv", "API_KEY"]);
    assert!(once.starts_with("isle-secret-API_KEY-") && once != seen, "each sandbox has its own: {once}");
    let once = daemon.post("/v1/runs", json!({"command": "echo $API_KEY", "secrets": ["API_KEY"]}));
    assert!(once["stdout"].as_str().unwrap().starts_with("isle-secret-API_KEY-"), "{once}");
    daemon.succeeds(&["create", "made", "--secret", "API_KEY=ONE"]);
    assert!(daemon.shell("made", "echo $ONE").starts_with("isle-secret-API_KEY-"));
    let (mut client, _) = Client::initialized_with(&daemon, REVISION, &["--toolsets", "core,secrets"]);
    let answer = client.call("secret_attach", json!({"sandbox": "model", "secrets": ["API_KEY"]}));
    assert_eq!(answer["structuredContent"]["attached"][0]["name"], "API_KEY", "{answer}");
    let answer = client.call("exec", json!({"sandbox": "model", "command": "echo $API_KEY"}));
    let shown = answer["structuredContent"]["stdout"].as_str().unwrap().to_owned();
    assert!(shown.starts_with("isle-secret-API_KEY-"), "{answer}");
    drop(client);
    daemon.post(
        "/v1/sandboxes/box/jobs",
        json!({"name": "holder", "command": "sleep 300", "secrets": ["API_KEY=B"]}),
    );
    if has(&daemon, "python3") {
        let read = json!({"code": "import os; os.environ['API_KEY']", "language": "python", "context": "c"});
        let answer = code(&daemon, "box", read);
        assert!(answer["results"][0]["text"].as_str().unwrap().contains("isle-secret-API_KEY-"), "{answer}");
    }
    // Taken back: new commands do not have it.
    daemon.succeeds(&["secret", "detach", "made", "API_KEY"]);
    assert_eq!(daemon.shell("made", "echo ${ONE-gone}"), "gone\n");
    // The value is in no file of the daemon, in no record and no log, and in no process.
    until("its events are written", || {
        daemon.get("/v1/events/history?limit=500").to_string().contains("holder")
    });
    for path in ["/v1/audit?limit=500", "/v1/runs?limit=500", "/v1/events/history?limit=500", "/v1/secrets"] {
        assert!(!daemon.get(path).to_string().contains(&secret), "{path}");
    }
    assert_eq!(files_with(&daemon.home().state_dir(), &secret), [] as [String; 0]);
    assert_eq!(processes_showing(&secret), [] as [String; 0]);
    assert!(!daemon.log().contains(&secret));
    // The same search finds what is there: a value that a person had put into the sandbox.
    let exposed = value("exposed");
    set(&daemon, "SEEN", &exposed);
    daemon
        .post("/v1/sandboxes/box/files/write", json!({"files": [{"path": "expected", "content": exposed}]}));
    let same = daemon.exec(
        "box",
        json!({"command": "[ \"$SEEN\" = \"$(cat expected)\" ] && echo same", "expose_secrets": ["SEEN"]}),
    );
    assert_eq!(same["stdout"], "same\n", "{same}");
    daemon.post(
        "/v1/sandboxes/box/jobs",
        json!({"name": "shower", "command": "sleep 300", "expose_secrets": ["SEEN"]}),
    );
    if rustix::process::geteuid().is_root() {
        until("the command shows it", || !processes_showing(&exposed).is_empty());
    }
    for job in ["holder", "shower"] {
        daemon.post(&format!("/v1/runs/box:{job}/kill"), json!({}));
    }
    assert!(!daemon.log().contains(&exposed));
}

#[test]
fn an_exposed_value_is_masked_in_all_that_comes_out() {
    let daemon = TestDaemon::start();
    let secret = format!("{}/ä \"q\"", value("mask"));
    set(&daemon, "KEY", &secret);
    attach(&daemon, "box", json!({"expose": ["KEY"]}));
    let clean = |what: &str, text: &str| {
        assert!(!text.contains(&secret) && !text.contains(&secret[..20]), "{what}: {text}");
    };
    let run = daemon.exec(
        "box",
        json!({"command": "echo \"a $KEY b\"; echo \"$KEY\" >&2; printf %s \"$KEY\" | tee copy > other"}),
    );
    assert_eq!(
        (&run["stdout"], &run["stderr"]),
        (&json!("a [secret KEY] b\n"), &json!("[secret KEY]\n")),
        "{run}"
    );
    // In pieces of one byte.
    let slowly = "printf %s \"$KEY\" | dd bs=1 2>/dev/null; echo .";
    let run = daemon.exec("box", json!({"command": slowly}));
    assert_eq!(run["stdout"], "[secret KEY].\n", "{run}");
    // Encoded, wherever it stands in what is encoded.
    let encoded = daemon.exec("box", json!({"command": "for p in '' x xy; do printf '%s%s' \"$p\" \"$KEY\" | base64 -w0; echo; done; printf %s \"$KEY\" | od -An -tx1 | tr -d ' \\n'; echo"}));
    let text = encoded["stdout"].as_str().unwrap();
    assert_eq!(text.matches("[secret KEY]").count(), 4, "{text}");
    for plain in [STANDARD.encode(&secret), secret.bytes().map(|byte| format!("{byte:02x}")).collect()] {
        assert!(!text.contains(&plain[4..24]), "{text}");
    }
    // The command itself, in its record, the audit and the events.
    let typed = daemon.exec("box", json!({"argv": ["echo", secret]}));
    assert_eq!(typed["stdout"], "[secret KEY]\n");
    let id = typed["run_id"].as_str().unwrap();
    until("its events are written", || daemon.get("/v1/events/history?limit=500").to_string().contains(id));
    for path in [
        "/v1/runs?limit=100",
        "/v1/audit?limit=100",
        "/v1/events/history?limit=500",
        &format!("/v1/runs/{id}/logs"),
    ] {
        clean(path, &daemon.get(path).to_string());
    }
    let history = daemon.succeeds(&["history"]);
    assert!(history.contains("[secret KEY]"), "{history}");
    clean("history", &history);
    // Streams: events of a run, an interactive command, a terminal.
    let output = daemon.succeeds(&["exec", "box", "--", "printenv", "KEY"]);
    assert_eq!(output, "[secret KEY]\n");
    let output = daemon.succeeds(&["run", "--expose-secret", "KEY=OTHER", "--", "printenv", "OTHER"]);
    assert_eq!(output, "[secret KEY]\n");
    let output = daemon.succeeds(&["exec", "box", "--tty", "--", "printenv", "KEY"]);
    assert!(output.contains("[secret KEY]"), "{output}");
    clean("terminal", &output);
    let job = daemon
        .post("/v1/sandboxes/box/jobs", json!({"name": "speaker", "command": "echo \"$KEY\"; echo end"}));
    let path = format!("GET /v1/runs/{}/events", job["run_id"].as_str().unwrap());
    let mut stream = Events::open(&daemon.socket(), &path, &[], "");
    let heard: String = stream.rest().iter().map(|event| event.data.to_string()).collect();
    assert!(heard.contains("[secret KEY]"), "{heard}");
    clean("events of a run", &heard);
    // Files that are read through us, in parts that begin and end anywhere.
    let whole = daemon.get("/v1/sandboxes/box/files/read?path=copy");
    assert_eq!(whole["content"], "[secret KEY]");
    for (offset, limit) in [(3, 10), (0, 12), (secret.len() - 4, 100)] {
        let part =
            daemon.get(&format!("/v1/sandboxes/box/files/read?path=copy&offset={offset}&limit={limit}"));
        assert_eq!(part["content"], "[secret KEY]", "{part}");
    }
    let line = daemon.get("/v1/sandboxes/box/files/read?path=copy&lines=1");
    assert_eq!(line["content"], "[secret KEY]");
    let found = daemon.get("/v1/sandboxes/box/files/search?pattern=s3cr3t");
    assert_eq!(found["matches"][0]["text"], "[secret KEY]", "{found}");
    clean("search", &found.to_string());
    // What code gives back.
    if has(&daemon, "python3") {
        let read = json!({"code": "import os\nraise ValueError(os.environ['KEY'])", "language": "python"});
        let answer = code(&daemon, "box", read).to_string();
        assert!(answer.contains("[secret KEY]"), "{answer}");
        clean("exception", &answer);
        let read =
            json!({"code": "import os\n{'k': os.environ['KEY']}", "language": "python", "context": "c"});
        clean("value", &code(&daemon, "box", read).to_string());
    }
    // Several commands, each with its own part of the output.
    let batch = json!({"commands": [{"command": "echo \"$KEY\""}, {"command": "echo two"}]});
    let batch = daemon.post("/v1/sandboxes/box/commands", batch);
    assert_eq!(batch["stdout"], "[secret KEY]\ntwo\n", "{batch}");
    assert_eq!(
        (&batch["commands"][1]["stdout_offset"], &batch["commands"][1]["stdout_bytes"]),
        (&json!(13), &json!(4)),
        "{batch}"
    );
    // What is kept on disk is masked as well, outside of the sandbox's own files.
    let left: Vec<String> = ["isle.db", "isle.db-wal", "isle.log"]
        .iter()
        .filter(|name| {
            std::fs::read(daemon.home().state_dir().join(name)).is_ok_and(|bytes| holds(&bytes, &secret))
        })
        .map(|name| (*name).to_owned())
        .collect();
    assert_eq!(left, [] as [String; 0]);
    clean("log", &daemon.log());
}

#[test]
fn values_are_put_into_sandboxes_by_those_who_may() {
    let daemon = TestDaemon::start();
    let secret = value("policy");
    set(&daemon, "KEY", &secret);
    let (mut client, _) = Client::initialized_with(&daemon, REVISION, &["--toolsets", "core,secrets"]);
    for (tool, body) in [
        ("secret_attach", json!({"sandbox": "box", "expose": ["KEY"]})),
        ("exec", json!({"sandbox": "box", "command": "true", "expose_secrets": ["KEY"]})),
    ] {
        let answer = client.call(tool, body);
        assert_eq!(answer["isError"], true, "{answer}");
        assert!(answer["content"][0]["text"].as_str().unwrap().contains("POLICY_DENIED"), "{answer}");
    }
    drop((client, daemon));
    let daemon = TestDaemon::start_with(&[("ISLE_EXPOSE_SECRETS", "never")]);
    set(&daemon, "KEY", &secret);
    let error = daemon.refused("POST", "/v1/sandboxes/box/secrets", Some(&json!({"expose": ["KEY"]})));
    assert_eq!(error["code"], "POLICY_DENIED");
    drop(daemon);
    let daemon = TestDaemon::start_with(&[("ISLE_EXPOSE_SECRETS", "anybody")]);
    set(&daemon, "KEY", &secret);
    let (mut client, _) = Client::initialized(&daemon, REVISION);
    let answer = client.call("exec", json!({"command": "echo $KEY", "expose_secrets": ["KEY"]}));
    assert_eq!(answer["structuredContent"]["stdout"], "[secret KEY]\n", "{answer}");
    assert!(!answer.to_string().contains(&secret));
}

#[test]
fn without_its_key_nothing_of_the_vault_is_used_or_changed() {
    let (good, wrong) = ("ab".repeat(32), "cd".repeat(32));
    let mut daemon = TestDaemon::start_with(&[("ISLE_VAULT_KEY", &good)]);
    let secret = value("locked");
    set(&daemon, "KEY", &secret);
    assert!(!daemon.home().state_dir().join("vault.key").exists());
    attach(&daemon, "box", json!({"expose": ["KEY"]}));
    daemon.terminate();
    daemon.try_launch_with(&[("ISLE_VAULT_KEY", &wrong)]).unwrap();
    let listed = daemon.get("/v1/secrets");
    assert!(listed["locked"].as_str().unwrap().contains("another key"), "{listed}");
    assert_eq!(listed["secrets"][0]["name"], "KEY");
    for (path, body) in [
        ("/v1/secrets", json!({"name": "KEY", "value": "new"})),
        ("/v1/secrets", json!({"name": "NEW", "value": "new"})),
        ("/v1/sandboxes/box/secrets", json!({"secrets": ["KEY"]})),
        ("/v1/sandboxes/box/exec", json!({"command": "true", "secrets": ["KEY"]})),
        // It has a value that could not be masked.
        ("/v1/sandboxes/box/exec", json!({"command": "true"})),
    ] {
        assert_eq!(daemon.refused("POST", path, Some(&body))["code"], "VAULT_LOCKED", "{path} {body}");
    }
    daemon.terminate();
    daemon.try_launch_with(&[("ISLE_VAULT_KEY", &good)]).unwrap();
    assert_eq!(daemon.get("/v1/secrets")["secrets"].as_array().unwrap().len(), 1);
    assert_eq!(daemon.shell("box", "echo $KEY"), "[secret KEY]\n");
    // A file of its own is for its owner alone, and never made anew over secrets.
    drop(daemon);
    let mut daemon = TestDaemon::start();
    set(&daemon, "KEY", &secret);
    let path = daemon.home().state_dir().join("vault.key");
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let key = std::fs::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    daemon.terminate();
    daemon.launch();
    let error = daemon.refused("POST", "/v1/secrets", Some(&json!({"name": "KEY", "value": "new"})));
    assert_eq!(error["code"], "VAULT_LOCKED");
    assert!(!path.exists(), "a fresh key opens nothing");
    std::fs::write(&path, key).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    let error = daemon.refused("POST", "/v1/secrets", Some(&json!({"name": "KEY", "value": "new"})));
    assert!(error["message"].as_str().unwrap().contains("others may read"), "{error}");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    set(&daemon, "KEY", &value("again"));
    assert_eq!(daemon.get("/v1/secrets")["secrets"][0]["version"], 2);
}

#[test]
fn secrets_outlive_the_daemon_and_rotation_holds_at_once() {
    let mut daemon = TestDaemon::start();
    let (old, new) = (value("old"), value("new"));
    set(&daemon, "KEY", &old);
    set(&daemon, "OTHER", &value("other"));
    attach(&daemon, "box", json!({"expose": ["KEY"], "secrets": ["OTHER"]}));
    daemon.shell("box", "printf %s \"$KEY\" > old");
    let placeholder = daemon.shell("box", "echo $OTHER");
    let command = "while ! [ -e go ]; do sleep 0.05; done; echo \"$KEY\"";
    let job = daemon.post("/v1/sandboxes/box/jobs", json!({"name": "late", "command": command}));
    daemon.kill();
    daemon.launch();
    assert_eq!(daemon.shell("box", "echo $OTHER"), placeholder, "the same for as long as the sandbox lives");
    assert_eq!(daemon.shell("box", "cat old; echo"), "[secret KEY]\n");
    set(&daemon, "KEY", &new);
    let shown =
        daemon.shell("box", "printf %s \"$KEY\" > new; cmp -s old new || echo differs; cat old new; echo");
    assert_eq!(shown, "differs\n[secret KEY][secret KEY]\n", "the old value is still in the sandbox");
    daemon.shell("box", "touch go");
    let path = format!("/v1/runs/{}/wait", job["run_id"].as_str().unwrap());
    let ended = daemon.post(&path, json!({"timeout": "60s"}));
    assert_eq!(ended["stdout"], "[secret KEY]\n", "a run taken over is masked too: {ended}");
    // Expired, or removed: no command gets it any more, and says so.
    daemon.post("/v1/secrets", json!({"name": "KEY", "value": new, "expires": "1ms"}));
    let run = until_without(&daemon);
    assert!(run["note"].as_str().unwrap().contains("KEY has expired"), "{run}");
    daemon.http("DELETE", "/v1/secrets/KEY", None);
    let run = daemon.exec("box", json!({"command": "echo ${KEY-none}"}));
    assert_eq!(run["stdout"], "none\n");
    assert!(run["note"].as_str().unwrap().contains("no secret KEY"), "{run}");
    // Destroyed: the next sandbox of that name has nothing, and what the workspace kept stays masked.
    daemon.http("DELETE", "/v1/sandboxes/box", None);
    assert_eq!(daemon.shell("box", "echo ${OTHER-none}; cat old; echo"), "none\n[secret KEY]\n");
    daemon.succeeds(&["rm", "--wipe", "box"]);
}

/// A run that was not given the secret.
fn until_without(daemon: &TestDaemon) -> Value {
    crate::harness::until_some("it has expired", || {
        let run = daemon.exec("box", json!({"command": "echo ${KEY-none}"}));
        (run["stdout"] == "none\n").then_some(run)
    })
}

#[test]
fn secrets_of_a_namespace_are_nobody_elses() {
    let (daemon, address) = listening(&[]);
    let (first, second) = (tenant(&daemon, &address, "a"), tenant(&daemon, &address, "a_b"));
    let (mine, yours) = (value("mine"), value("yours"));
    for (caller, text) in [(&first, &mine), (&second, &yours)] {
        let body = json!({"name": "KEY", "value": text, "hosts": ["api.test"]});
        assert_eq!(caller.ask("POST", "/v1/secrets", Some(&body)).status, 200);
    }
    let body = json!({"name": "B_KEY", "value": value("third"), "hosts": ["api.test"]});
    assert_eq!(first.ask("POST", "/v1/secrets", Some(&body)).status, 200);
    assert_eq!(second.get("/v1/secrets")["secrets"].as_array().unwrap().len(), 1);
    assert_eq!(daemon.get("/v1/secrets")["secrets"], json!([]), "the operator works in default");
    let answer = second.ask("DELETE", "/v1/secrets/B_KEY", None);
    assert_eq!(answer.code(), "SECRET_NOT_FOUND");
    let body = json!({"command": "true", "secrets": ["B_KEY"]});
    assert_eq!(second.ask("POST", "/v1/sandboxes/box/exec", Some(&body)).code(), "SECRET_NOT_FOUND");
    for (caller, own) in [(&first, &mine), (&second, &yours)] {
        let path = "/v1/sandboxes/box/files/write";
        let body = json!({"files": [{"path": "expected", "content": own}]});
        assert_eq!(caller.ask("POST", path, Some(&body)).status, 200);
        let command = "[ \"$KEY\" = \"$(cat expected)\" ] && echo same";
        let body = json!({"command": command, "expose_secrets": ["KEY"]});
        let run = caller.ask("POST", "/v1/sandboxes/box/exec", Some(&body)).json();
        assert_eq!(run["stdout"], "same\n", "{run}");
    }
}

#[test]
fn a_child_has_no_secret_that_its_parent_does_not_have() {
    let daemon = TestDaemon::start_with(&[("ISLE_SPAWN_POLICIES", "default = {}"), ("ISLE_DISK", "16M")]);
    for name in ["HELD", "SHOWN", "ELSE"] {
        set(&daemon, name, &value(name));
    }
    attach(&daemon, "default", json!({"secrets": ["HELD"], "expose": ["SHOWN"]}));
    daemon.post("/v1/sandboxes/default/children", json!({"name": "kid"}));
    assert_eq!(
        daemon.shell("kid", "echo ${HELD-none} ${SHOWN-none}"),
        "none none\n",
        "nothing is handed down unasked"
    );
    for body in [json!({"secrets": ["ELSE"]}), json!({"expose": ["HELD"]}), json!({"expose": ["ELSE"]})] {
        let error = daemon.refused("POST", "/v1/sandboxes/kid/secrets", Some(&body));
        assert_eq!(error["code"], "PERMISSION_DENIED", "{body}");
    }
    let body = json!({"command": "true", "secrets": ["ELSE"]});
    assert_eq!(daemon.refused("POST", "/v1/sandboxes/kid/exec", Some(&body))["code"], "PERMISSION_DENIED");
    attach(&daemon, "kid", json!({"secrets": ["HELD", "SHOWN=S"]}));
    let seen = daemon.shell("kid", "echo $HELD $S");
    assert!(seen.starts_with("isle-secret-HELD-") && seen.contains(" isle-secret-SHOWN-"), "{seen}");
    assert_ne!(daemon.shell("default", "echo $HELD").trim(), seen.split(' ').next().unwrap());
    attach(&daemon, "kid", json!({"expose": ["SHOWN"]}));
    assert_eq!(daemon.shell("kid", "echo $SHOWN"), "[secret SHOWN]\n");
    // Taken from the parent, it is taken from the child.
    daemon.succeeds(&["secret", "detach", "default", "HELD", "SHOWN"]);
    assert_eq!(daemon.shell("kid", "echo ${HELD-none} ${SHOWN-none}"), "none none\n");
}

#[test]
fn secrets_come_from_the_daemons_environment_as_the_settings_say_and_are_kept_nowhere() {
    let (mine, team) = (value("environment"), value("team"));
    let config = "[secrets_from_env]\nKEY = \"GIVEN_KEY api.test\"\n\"a_b@KEY\" = \"GIVEN_TEAM api.test\"\n";
    let settings = [
        ("GIVEN_KEY", mine.as_str()),
        ("GIVEN_TEAM", team.as_str()),
        ("ISLE_DISK", "16M"),
        ("ISLE_LISTEN", "127.0.0.1:0"),
    ];
    let daemon = TestDaemon::start_configured(config, &settings);
    let listed = daemon.get("/v1/secrets");
    assert_eq!((&listed["secrets"][0]["name"], &listed["secrets"][0]["version"]), (&json!("KEY"), &json!(0)));
    assert!(listed.get("locked").is_none(), "{listed}");
    let run = daemon.exec("box", json!({"command": "echo $KEY $MINE ${GIVEN_KEY-none}", "secrets": ["KEY"], "expose_secrets": ["KEY=MINE"]}));
    let said = run["stdout"].as_str().unwrap();
    assert!(said.starts_with("isle-secret-KEY-") && said.ends_with(" [secret KEY] none\n"), "{run}");
    for (method, path, body) in [
        ("POST", "/v1/secrets", Some(json!({"name": "KEY", "value": "another"}))),
        ("DELETE", "/v1/secrets/KEY", None),
    ] {
        assert_eq!(daemon.refused(method, path, body.as_ref())["code"], "POLICY_DENIED");
    }
    assert!(!daemon.home().state_dir().join("vault.key").exists());
    for secret in [&mine, &team] {
        assert_eq!(files_with(&daemon.home().state_dir(), secret), [] as [String; 0]);
    }
    // No other namespace has it, however alike its name begins.
    let address = crate::tenants::address_of(&daemon, 0);
    for (namespace, count) in [("a", 0), ("a_b", 1), ("a_b_c", 0)] {
        let caller = tenant(&daemon, &address, namespace);
        assert_eq!(caller.get("/v1/secrets")["secrets"].as_array().unwrap().len(), count, "{namespace}");
    }
}

#[test]
fn a_run_that_is_given_secrets_is_told_once_and_inspecting_shows_their_names() {
    let daemon = TestDaemon::start();
    let (attached, asked) = (value("attached"), value("asked"));
    set(&daemon, "ATTACHED", &attached);
    set(&daemon, "ASKED", &asked);
    daemon.shell("box", "true");
    let told = || daemon.get("/v1/events/history?kind=secret_given")["events"].clone();
    assert_eq!(told(), json!([]), "nobody was given any");
    attach(&daemon, "box", json!({"secrets": ["ATTACHED"]}));
    let run = daemon.exec("box", json!({"command": "true", "expose_secrets": ["ASKED"]}));
    let events = told();
    assert_eq!(events.as_array().unwrap().len(), 1, "{events}");
    assert_eq!((&events[0]["run_id"], &events[0]["sandbox"]), (&run["run_id"], &json!("box")), "{events}");
    assert_eq!(events[0]["data"], json!({"placeholders": ["ATTACHED"], "values": ["ASKED"]}), "{events}");
    let inspected = daemon.get("/v1/inspect?sandbox=box");
    let secrets = &inspected["sandboxes"][0]["secrets"];
    assert_eq!(secrets, &json!([{"name": "ATTACHED", "variable": "ATTACHED", "exposed": false}]));
    let shown = daemon.succeeds(&["inspect", "box"]);
    assert!(shown.contains("ATTACHED as a placeholder"), "{shown}");
    for secret in [&attached, &asked] {
        assert!(!format!("{events}{inspected}{shown}").contains(secret.as_str()));
    }
}
