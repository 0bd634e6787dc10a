//! What a run was granted is that run's: jobs and other runs of the same sandbox do not get it, and its end
//! cuts it. What is denied is told to the run whose program it was, and to no other.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::asking::{HOSTS, approve, look_up, request_of, wait};
use crate::harness::{TestDaemon, needs_tier, per_connection, require, until};
use crate::network::Server;

fn start() -> TestDaemon {
    TestDaemon::start_configured(HOSTS, &[])
}

/// Tries until `go` is there, then once more, and says how that ended.
fn after_signal(signal: &str, attempt: &str) -> String {
    format!("while [ ! -e {signal} ]; do sleep 0.05; done; {attempt}; echo \"ended with $?\"")
}

fn background(daemon: &TestDaemon, sandbox: &str, command: &str) -> Value {
    let started = daemon.exec(sandbox, json!({ "command": command, "wait": "0s" }));
    assert_eq!(started["state"], "running", "{started}");
    started
}

fn fetch(port: u16) -> String {
    format!("curl -sS -f -m 20 -o /dev/null http://web.test:{port}/")
}

per_connection!(a_job_does_not_use_what_a_run_was_granted);

fn a_job_does_not_use_what_a_run_was_granted() {
    let (daemon, server) = (start(), Server::http());
    let port = server.port;
    let by_name = background(&daemon, "box", &after_signal("go", &fetch(port)));
    // The address of the name is no way around it, and neither is a direct address.
    let direct = format!("curl -sS -f -m 20 -o /dev/null http://198.18.1.0:{port}/");
    let by_address = background(&daemon, "box", &after_signal("go", &direct));
    let loose = format!("curl -sS -f -m 20 -o /dev/null http://127.0.0.9:{port}/");
    let by_other = background(&daemon, "box", &after_signal("go", &loose));
    let grants = [format!("web.test:{port}/http"), format!("127.0.0.1:{port}")];
    let script = format!("{} && touch go && sleep 600", fetch(port));
    let mut granted = daemon
        .isle(&["exec", "box", "--allow", &grants[0], "--allow", &grants[1], "--", "sh", "-c", &script])
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let denied: Vec<Value> = [&by_name, &by_address, &by_other].map(|run| wait(&daemon, run)).into();
    assert_eq!(server.connections(), 1, "{denied:?}");
    for run in &denied {
        assert!(!run["stdout"].as_str().unwrap().contains("ended with 0"), "{run}");
    }
    assert!(denied[0]["violations"].to_string().contains("web.test"), "{}", denied[0]);
    granted.kill().unwrap();
    granted.wait().unwrap();
    // The same grant, given to the sandbox, is the job's too.
    daemon.post("/v1/sandboxes/box/grants", json!({ "hosts": grants }));
    daemon.shell("box", &fetch(port));
}

per_connection!(the_end_of_a_run_ends_its_grant_and_its_connections);

fn the_end_of_a_run_ends_its_grant_and_its_connections() {
    let (daemon, server) = (start(), Server::echo());
    let port = server.port;
    let grants = [format!("web.test:{port}"), format!("127.0.0.1:{port}")];
    let allow = ["--allow", &grants[0], "--allow", &grants[1]];
    let once = format!("exec 3<>/dev/tcp/web.test/{port}; echo hello >&3; read -r line <&3; echo $line");
    let said = daemon.succeeds(&[&["exec", "box"], &allow[..], &["--", "bash", "-c", &once]].concat());
    assert_eq!(said, "hello\n");
    let before = server.connections();
    let run = daemon.exec("box", json!({ "argv": ["bash", "-c", once] }));
    assert!(!run["stdout"].as_str().unwrap().contains("hello"), "{run}");
    assert_eq!(server.connections(), before);
}

per_connection!(an_approval_for_a_run_is_that_runs);

fn an_approval_for_a_run_is_that_runs() {
    let config = format!("network_ask = \"10m\"\n{HOSTS}");
    let daemon = TestDaemon::start_configured(&config, &[]);
    daemon.shell("box", "true");
    let mut watching = daemon.isle(&["grants", "watch"]).stdout(Stdio::piped()).spawn().unwrap();
    // It follows requests when it shows the first: before that they are denied at once.
    daemon.exec("elsewhere", json!({ "command": look_up("first.test"), "wait": "0s" }));
    let mut shown = String::new();
    BufReader::new(watching.stdout.take().unwrap()).read_line(&mut shown).unwrap();
    assert!(shown.contains("first.test"), "{shown}");
    // One run asks; another waits for a signal, and began later.
    let asks = background(&daemon, "box", &after_signal("ask", &look_up("web.test")));
    let other = background(&daemon, "box", &after_signal("go", "getent hosts web.test > /dev/null"));
    daemon.shell("box", "touch ask");
    until("it asks", || request_of(&daemon, "web.test")["state"] == "pending");
    assert_eq!(request_of(&daemon, "web.test")["run_id"], asks["run_id"], "the run that asked is named");
    approve(&daemon, &request_of(&daemon, "web.test"), json!({ "scope": "run" }));
    let asked = wait(&daemon, &asks);
    assert!(asked["stdout"].as_str().unwrap().contains("found"), "{asked}");
    daemon.shell("box", "touch go");
    // The other one is asked about by itself.
    until("the other asks", || {
        let request = request_of(&daemon, "web.test");
        request["state"] == "pending" && request["run_id"] == other["run_id"]
    });
    daemon.http(
        "POST",
        &format!("/v1/network/requests/{}/deny", crate::asking::id(&request_of(&daemon, "web.test"))),
        None,
    );
    let denied = wait(&daemon, &other);
    assert!(!denied["stdout"].as_str().unwrap().contains("ended with 0"), "{denied}");
    watching.kill().unwrap();
    watching.wait().unwrap();
}

per_connection!(a_denial_is_told_to_the_run_that_was_denied);

fn a_denial_is_told_to_the_run_that_was_denied() {
    let daemon = start();
    daemon.shell("box", "true");
    let attempts = "getent hosts denied.test; curl -sS -m 5 http://192.0.2.7/; unshare -U true";
    let quiet = background(&daemon, "box", "while [ ! -e done ]; do sleep 0.05; done; exit 3");
    let loud = daemon.exec("box", json!({ "command": format!("{attempts}; exit 4") }));
    let told = loud["violations"].to_string();
    assert!(told.contains("denied.test") && told.contains("192.0.2.7"), "{loud}");
    assert!(!told.contains("shared"), "it is known whose these are: {loud}");
    daemon.shell("box", "touch done");
    let quiet = wait(&daemon, &quiet);
    assert_eq!((&quiet["exit_code"], &quiet["violations"]), (&json!(3), &Value::Null), "{quiet}");
    // Events name the run, too.
    let events = crate::events::told(&daemon, "kind=network_denied");
    assert!(events.iter().all(|event| event["run_id"] == loud["run_id"]), "{events:?}");
}

per_connection!(a_denial_in_an_interpreter_is_told_to_the_call_in_it);

fn a_denial_in_an_interpreter_is_told_to_the_call_in_it() {
    let daemon = start();
    require!(crate::contexts::needs(&daemon, "python3"));
    let quiet = background(&daemon, "box", "while [ ! -e done ]; do sleep 0.05; done; exit 3");
    let code = "import socket\ntry: socket.getaddrinfo('denied.test', 80)\nexcept OSError: pass";
    for context in [Value::Null, json!("kept")] {
        let mut body = json!({ "language": "python", "code": code });
        if context.is_string() {
            body["context"] = context.clone();
        }
        let ran = daemon.post("/v1/sandboxes/box/code", body);
        assert!(ran["violations"].to_string().contains("denied.test"), "{context}: {ran}");
    }
    daemon.shell("box", "touch done");
    let quiet = wait(&daemon, &quiet);
    assert_eq!(quiet["violations"], Value::Null, "{quiet}");
}

per_connection!(in_tier_process_a_grant_is_the_runs_as_well);

fn in_tier_process_a_grant_is_the_runs_as_well() {
    require!(needs_tier("process"));
    let (daemon, server) = (start(), Server::http());
    let port = server.port;
    daemon.post("/v1/sandboxes", json!({"sandbox": "plain", "tier": "process", "allow_downgrade": true}));
    let fetch =
        format!("curl -sS -m 20 -o /dev/null -f --proxy http://127.0.0.1:3128 http://web.test:{port}/");
    let job = background(&daemon, "plain", &after_signal("go", &fetch));
    let grants = [format!("web.test:{port}/http"), format!("127.0.0.1:{port}")];
    let script = format!("{fetch} && touch go && sleep 600");
    let mut granted = daemon
        .isle(&["exec", "plain", "--allow", &grants[0], "--allow", &grants[1], "--", "sh", "-c", &script])
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let denied = wait(&daemon, &job);
    assert_eq!(server.connections(), 1, "{denied}");
    assert!(!denied["stdout"].as_str().unwrap().contains("ended with 0"), "{denied}");
    granted.kill().unwrap();
    granted.wait().unwrap();
}
