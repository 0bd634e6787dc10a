//! Agents that do not answer: stopped from outside, and attacked from inside the way that once stopped them.
//! Every call about such a sandbox ends, nobody else waits, and it is used again when its agent answers.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::parts::first_process;
use crate::harness::{Case, TestDaemon, needs_user, per_tier, processes_with, require, until, until_some};

/// An agent that stands still until this is dropped.
struct Frozen(Pid);

impl Frozen {
    /// The agent of the sandbox in which a job sleeps for so long.
    fn agent_of(daemon: &TestDaemon, sandbox: &str, marker: &str) -> Self {
        daemon.exec(sandbox, json!({"command": format!("sleep {marker}"), "wait": "0s"}));
        let sleeper =
            until_some("it sleeps", || processes_with(&format!("sleep {marker} ")).first().copied());
        let agent = Pid::from_raw(first_process(sleeper)).unwrap();
        kill_process(agent, Signal::STOP).unwrap();
        Self(agent)
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        // Gone is as good.
        kill_process(self.0, Signal::CONT).ok();
    }
}

fn marker(number: u32) -> String {
    format!("{number}{:07}", std::process::id())
}

fn state(daemon: &TestDaemon, sandbox: &str) -> Value {
    daemon.get(&format!("/v1/status?sandbox={sandbox}"))["sandboxes"][0]["state"].clone()
}

fn unanswered(daemon: &TestDaemon, method: &str, path: &str, body: Option<&Value>) {
    let error = daemon.refused(method, path, body);
    assert_eq!(error["code"], "SANDBOX_UNRESPONSIVE", "{method} {path}: {error}");
    assert_eq!(error["retryable"], true, "{error}");
}

#[test]
fn calls_to_an_agent_that_does_not_answer_end_and_it_comes_back() {
    let daemon = TestDaemon::start();
    daemon.shell("box", "echo kept > file");
    daemon.shell("other", "true");
    let frozen = Frozen::agent_of(&daemon, "box", &marker(61301));

    unanswered(&daemon, "POST", "/v1/sandboxes/box/exec", Some(&json!({"command": "true"})));
    // From here on it is known, and nothing has to wait.
    assert_eq!(state(&daemon, "box"), "unresponsive");
    let listed = daemon.succeeds(&["ls"]);
    assert!(listed.contains("unresponsive"), "{listed}");
    unanswered(&daemon, "GET", "/v1/sandboxes/box/files/read?path=file", None);
    unanswered(&daemon, "POST", "/v1/sandboxes/box/exec", Some(&json!({"argv": ["true"]})));
    unanswered(&daemon, "POST", "/v1/sandboxes/box/code", Some(&json!({"code": "print(1)"})));
    unanswered(&daemon, "POST", "/v1/sandboxes/box/pause", Some(&json!({})));
    let inspected = daemon.get("/v1/inspect?sandbox=box");
    assert_eq!(inspected["sandboxes"][0]["state"], "unresponsive", "{inspected}");
    let run = inspected["sandboxes"][0]["running"][0]["run_id"].as_str().unwrap().to_owned();
    unanswered(&daemon, "POST", &format!("/v1/runs/{run}/kill"), Some(&json!({})));
    // Nobody else waits for it.
    assert_eq!(daemon.shell("other", "echo fine"), "fine\n");
    let metrics = daemon.http("GET", "/metrics", None).text();
    assert!(metrics.lines().any(|line| line.contains("unresponsive") && line.ends_with(" 1")), "{metrics}");

    drop(frozen);
    until("it is used again", || state(&daemon, "box") == "running");
    assert_eq!(daemon.shell("box", "cat file"), "kept\n");
    let told = daemon.get("/v1/events/history?sandbox=box&kind=sandbox_unresponsive&kind=sandbox_responsive");
    let kinds: Vec<_> = told["events"].as_array().unwrap().iter().map(|event| &event["kind"]).collect();
    assert_eq!(kinds.len(), 2, "{told}");
}

#[test]
fn a_timeout_is_kept_when_the_agent_does_not_answer() {
    let daemon = TestDaemon::start();
    daemon.shell("box", "echo kept > file");
    let marker = marker(61302);
    let command = json!({"command": format!("sleep {marker}"), "timeout": "1s", "wait": "0s"});
    // Stopped before its time is up: a job of another marker shows where the agent is.
    let frozen = Frozen::agent_of(&daemon, "box", &format!("1{marker}"));
    let answer = daemon.http("POST", "/v1/sandboxes/box/exec", Some(&command));
    let run = answer.json()["run_id"].as_str().unwrap().to_owned();
    until("the daemon ends it", || daemon.get(&format!("/v1/runs/{run}/logs"))["state"] == "timed_out");
    let note = daemon.post(&format!("/v1/runs/{run}/wait"), json!({}))["note"].to_string();
    assert!(note.contains("did not answer") && note.contains("whole sandbox was killed"), "{note}");
    until("nothing of it is left", || processes_with(&marker).is_empty());
    drop(frozen);
    assert_eq!(daemon.shell("box", "cat file"), "kept\n", "the next call makes it anew");
}

#[test]
fn an_interactive_command_ends_when_the_agent_does_not_answer() {
    let daemon = TestDaemon::start();
    // The first is killed when the time of its command is up, so each has its own.
    let _timed = Frozen::agent_of(&daemon, "timed", &marker(61303));
    let _plain = Frozen::agent_of(&daemon, "plain", &marker(61305));
    for arguments in
        [&["exec", "timed", "--timeout", "1s", "--", "true"][..], &["exec", "plain", "--", "true"]]
    {
        let output = crate::harness::finish(&mut daemon.isle(arguments));
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{arguments:?}: {text}");
    }
}

#[test]
fn a_sandbox_whose_agent_does_not_answer_is_destroyed() {
    let daemon = TestDaemon::start();
    daemon.shell("other", "true");
    let before = daemon.counts();
    let marker = marker(61304);
    let _frozen = Frozen::agent_of(&daemon, "box", &marker);
    assert_eq!(daemon.succeeds(&["rm", "box", "--wipe"]), "box\n");
    until("nothing of it is left", || processes_with(&marker).is_empty());
    until("what it left is removed", || {
        let after = daemon.counts();
        (after.cgroups, after.directories, after.sockets, after.mounts)
            == (
                before.cgroups.clone(),
                before.directories.clone(),
                before.sockets.clone(),
                before.mounts.clone(),
            )
    });
    assert_eq!(daemon.shell("box", "echo fresh"), "fresh\n");
}

#[test]
fn a_restart_serves_callers_while_agents_do_not_answer() {
    let mut daemon = TestDaemon::start();
    daemon.shell("other", "true");
    let names: Vec<String> = (0..3).map(|number| format!("box{number}")).collect();
    let mut frozen: Vec<Frozen> = Vec::new();
    for (number, name) in (61310..).zip(&names) {
        daemon.shell(name, "echo kept > file");
        frozen.push(Frozen::agent_of(&daemon, name, &marker(number)));
    }
    daemon.kill();
    daemon.launch();
    assert_eq!(daemon.shell("other", "echo fine"), "fine\n");
    for name in &names {
        assert_eq!(state(&daemon, name), "unresponsive");
    }
    unanswered(&daemon, "POST", "/v1/sandboxes/box0/exec", Some(&json!({"command": "true"})));
    assert_eq!(daemon.succeeds(&["rm", "box1"]), "box1\n");
    drop(frozen);
    for name in ["box0", "box2"] {
        until("it is used again", || state(&daemon, name) == "running");
        assert_eq!(daemon.shell(name, "cat file"), "kept\n");
    }
    assert_eq!(daemon.shell("box1", "cat file"), "kept\n", "its workspace stayed");
}

/// Makes a socket whose last close waits for an hour, and sends it wherever a guest can send one.
const LINGER: &str = r#"
import array, errno, os, socket, struct, threading, time
def lingering():
    l = socket.socket(); l.bind(("127.0.0.1", 0)); l.listen()
    c = socket.create_connection(l.getsockname())
    c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 3600))
    c.setblocking(False)
    try:
        while True: c.send(b"x" * 65536)
    except BlockingIOError: pass
    return l, c
kept = []
def message(through, bytes, descriptor, count):
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [descriptor] * count))]
    while True:
        try: return through.sendmsg([bytes], rights)
        except OSError as error:
            # The kernel counts what is in flight for a user of the host, who may have other sandboxes.
            if error.errno != errno.ETOOMANYREFS: raise
            time.sleep(0.01)
def send(through, bytes, count=1):
    l, c = lingering(); kept.append(l)
    try: message(through, bytes, c.fileno(), count); done = "sent"
    except OSError as error: done = error.__class__.__name__
    # Where the agent did not get it, closing it here would wait.
    if done != "sent": c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 0, 0))
    # So would it where the agent was faster: then this copy is the last one, and only this thread waits.
    threading.Thread(target=c.close, daemon=True).start()
    return done
"#;

/// What a guest in an interpreter does must leave its sandbox answering.
fn survives(daemon: &TestDaemon, code: &str, expected: &str) {
    let body = json!({"code": format!("{LINGER}\n{code}"), "language": "python", "context": "attack"});
    let run = daemon.post("/v1/sandboxes/box/code", body);
    assert_eq!(run["stdout"], expected, "{run}");
    assert_eq!(daemon.shell("box", "echo alive"), "alive\n");
    assert_eq!(state(daemon, "box"), "running");
}

#[test]
fn a_lingering_socket_sent_to_the_agent_does_not_stop_it() {
    let daemon = TestDaemon::start();
    require!(daemon.needs_program("box", "python3"));
    let code = "print([send(socket.socket(fileno=os.dup(n)), b'Z\\0\\0\\0\\0') for n in (3,)])";
    survives(&daemon, code, "['BrokenPipeError']\n");
    // Calls without a context have channels of their own.
    let once = "s = socket.socket(fileno=os.dup(3)); print(send(s, b'Z\\0\\0\\0\\0'))";
    let body = json!({"code": format!("{LINGER}\n{once}"), "language": "python"});
    let run = daemon.post("/v1/sandboxes/box/code", body);
    assert_eq!(run["stdout"], "BrokenPipeError\n", "{run}");
    assert_eq!(daemon.shell("box", "echo alive"), "alive\n");
}

#[test]
fn descriptors_sent_to_the_control_socket_do_not_stop_the_agent() {
    let daemon = TestDaemon::start_with(&[("ISLE_SPAWN_POLICIES", "box = {}")]);
    until("the control socket answers", || {
        daemon.exec("box", json!({"command": "isle-ctl ping"}))["state"] == "completed"
    });
    require!(daemon.needs_program("box", "python3"));
    let code = r#"
path = "/run/isle/ctl.sock"
def connect():
    s = socket.socket(socket.AF_UNIX); s.connect(path); kept.append(s); return s
print([send(connect(), b"{}\n"), send(connect(), b"no end of line", 253)])
s = connect()
for number in range(40): message(s, b"x", 1, 253)
for one in kept: one.close()
"#;
    survives(&daemon, code, "['sent', 'sent']\n");
}

#[test]
fn a_copied_socket_that_lingers_does_not_stop_the_agent() {
    let daemon = TestDaemon::start();
    require!(daemon.needs_program("box", "python3"));
    // Connects to an address while another thread closes the number, behind which is a socket that lingers.
    let code = r#"
for number in range(40):
    l, c = lingering(); kept.append(l)
    c.setblocking(True)
    def close(c=c, pause=0.0002 * (number % 10)): time.sleep(pause); os.close(c.detach())
    # One that closes it last waits itself.
    threading.Thread(target=close, daemon=True).start()
    try: c.connect(("192.0.2.1", 80))
    except OSError: pass
print("done")
"#;
    survives(&daemon, code, "done\n");
}

#[test]
fn stopping_children_before_they_execute_does_not_stop_the_agent() {
    let daemon = TestDaemon::start();
    require!(daemon.needs_program("box", "python3"));
    // Stops every process of the guest user it finds, over and over.
    let attack = "import os,signal\nprint('ready', flush=True)\nwhile True:\n  try: os.kill(-1, signal.SIGSTOP)\n  except OSError: pass";
    let run = daemon.post(
        "/v1/sandboxes/box/code",
        json!({"code": attack, "language": "python", "context": "attack", "wait": "1s"}),
    );
    let run = run["run_id"].as_str().unwrap();
    for _ in 0..10 {
        // It may be stopped before or after it executes; either way the agent answers.
        let body = json!({"argv": ["true"], "timeout": "1s", "wait": "20s"});
        let answer = daemon.http("POST", "/v1/sandboxes/box/exec", Some(&body));
        assert!(answer.status == 200 || answer.code() == "BUSY", "{}", answer.text());
        assert_eq!(state(&daemon, "box"), "running");
    }
    daemon.post(&format!("/v1/runs/{run}/kill"), json!({"force": true}));
    until("the sandbox is as before", || {
        let body = json!({"command": "true", "timeout": "5s"});
        daemon.http("POST", "/v1/sandboxes/box/exec", Some(&body)).json()["state"] == "completed"
    });
}

#[test]
fn root_of_a_sandbox_that_stops_children_before_they_execute_does_not_stop_the_agent() {
    let daemon = TestDaemon::start();
    require!(daemon.needs_program("box", "python3"));
    // Reaches children of the agent from the moment they are cloned.
    let attack = "import os,signal\nprint('ready', flush=True)\nwhile True:\n  try: os.kill(-1, signal.SIGSTOP)\n  except OSError: pass";
    let body = json!({"argv": ["python3", "-c", attack], "user": "root", "wait": "1s"});
    let run = daemon.exec("box", body)["run_id"].as_str().unwrap().to_owned();
    until("the attack runs", || {
        daemon.get(&format!("/v1/runs/{run}/logs?stream=stdout"))["stdout"]["text"] == "ready\n"
    });
    for number in 0..12 {
        let user = if number % 4 == 0 { "root" } else { "sandbox" };
        let body = json!({"argv": ["true"], "user": user, "timeout": "1s", "wait": "20s"});
        let answer = daemon.http("POST", "/v1/sandboxes/box/exec", Some(&body));
        assert!(answer.status == 200 || answer.code() == "BUSY", "{}", answer.text());
        assert_eq!(state(&daemon, "box"), "running");
    }
    daemon.post(&format!("/v1/runs/{run}/kill"), json!({"force": true}));
    assert_eq!(daemon.post(&format!("/v1/runs/{run}/wait"), json!({}))["state"], "killed");
    let told = daemon.get("/v1/events/history?sandbox=box&kind=sandbox_unresponsive");
    assert_eq!(told["events"].as_array().map(Vec::len), Some(0), "{told}");
    // Nothing of a start that failed is left, and what is started now says how it ended.
    let ended = daemon.exec("box", json!({"command": "echo fine; exit 3", "user": "root"}));
    assert_eq!((&ended["stdout"], &ended["exit_code"]), (&json!("fine\n"), &json!(3)), "{ended}");
    let missing = json!({"argv": ["no-such-program"]});
    assert_eq!(daemon.refused("POST", "/v1/sandboxes/box/exec", Some(&missing))["code"], "COMMAND_NOT_FOUND");
    for _ in 0..20 {
        assert_eq!(daemon.shell("box", "echo fine"), "fine\n");
    }
    assert_eq!(daemon.shell("box", "set -- /proc/[0-9]*; echo $#"), "2\n", "agent and shell");
}

#[test]
fn a_stopped_fork_server_is_replaced() {
    let daemon = TestDaemon::start();
    require!(daemon.needs_program("box", "python3"));
    let call = || {
        let body = json!({"code": "print(1)", "language": "python", "timeout": "15s", "wait": "30s"});
        daemon.post("/v1/sandboxes/box/code", body)
    };
    assert_eq!(call()["stdout"], "1\n");
    // The shell is spared, and stops everybody else of its user: the server and its child in waiting.
    for _ in 0..2 {
        daemon.shell("box", "kill -s STOP -- -1; true");
        let run = call();
        assert_eq!(run["stdout"], "1\n", "{run}");
    }
    assert_eq!(daemon.shell("box", "grep -c 'State:.T' /proc/[0-9]*/status | grep -c ':1$' || true"), "0\n");
}

#[test]
fn a_file_under_a_lease_is_said_to_be_in_use() {
    let daemon = TestDaemon::start();
    require!(daemon.needs_program("box", "python3"));
    daemon.shell("box", "echo leased > leased; echo free > free");
    let attack = "import fcntl,os,time,signal
signal.signal(signal.SIGIO, signal.SIG_IGN)
f=os.open('leased', os.O_RDWR)
fcntl.fcntl(f, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print('held', flush=True)
time.sleep(600)";
    let run = daemon.exec("box", json!({"argv": ["python3", "-c", attack], "wait": "0s"}));
    let id = run["run_id"].as_str().unwrap();
    until("the lease is held", || {
        daemon.get(&format!("/v1/runs/{id}/logs?stream=stdout"))["stdout"]["text"] == "held\n"
    });
    let read = daemon.refused("GET", "/v1/sandboxes/box/files/read?path=leased", None);
    assert_eq!(read["code"], "BUSY", "{read}");
    assert!(read["message"].as_str().unwrap().contains("lease"), "{read}");
    let edit = json!({"path": "leased", "edits": [{"old": "leased", "new": "changed"}]});
    let edited = daemon.refused("POST", "/v1/sandboxes/box/files/edit", Some(&edit));
    assert_eq!(edited["code"], "BUSY", "{edited}");
    assert_eq!(daemon.get("/v1/sandboxes/box/files/read?path=free")["content"], "free\n");
}

#[test]
fn a_lease_on_a_program_delays_nobody_for_long() {
    let daemon = TestDaemon::start();
    require!(daemon.needs_program("box", "python3"));
    daemon.shell("box", "printf '#!/bin/sh\\necho ran\\n' > leased; chmod +x leased");
    let attack = "import fcntl,os,time,signal\nsignal.signal(signal.SIGIO, signal.SIG_IGN)\nf=os.open('/workspace/leased', os.O_RDWR)\nfcntl.fcntl(f, fcntl.F_SETLEASE, fcntl.F_WRLCK)\nprint('held', flush=True)\ntime.sleep(600)";
    let run = daemon.post(
        "/v1/sandboxes/box/code",
        json!({"code": attack, "language": "python", "context": "attack", "wait": "2s"}),
    );
    let id = run["run_id"].as_str().unwrap();
    until("the lease is held", || {
        daemon.get(&format!("/v1/runs/{id}/logs?stream=stdout"))["stdout"]["text"] == "held\n"
    });
    let body = json!({"argv": ["/workspace/leased"], "timeout": "30s"});
    let delayed = daemon.refused("POST", "/v1/sandboxes/box/exec", Some(&body));
    assert_eq!(delayed["code"], "BUSY", "{delayed}");
    assert_eq!(daemon.shell("box", "echo alive"), "alive\n");
    assert_eq!(state(&daemon, "box"), "running");
}

per_tier!(a_sandbox_whose_watched_memory_nobody_watches_is_killed);

fn a_sandbox_whose_watched_memory_nobody_watches_is_killed(Case { tier, .. }: Case) {
    let daemon = TestDaemon::start();
    let number = if tier == "container" { 61320 } else { 61321 };
    let (frozen, neighbour) = (format!("frozen-{tier}"), format!("awake-{tier}"));
    for name in [&frozen, &neighbour] {
        daemon.post("/v1/sandboxes", json!({"sandbox": name, "tier": tier}));
        daemon.shell(name, "echo kept > file");
    }
    let how = daemon.guarantee(&frozen, "memory_limit")["status"].clone();
    require!(needs_user(how == "watched", format!("the memory limit of tier {tier} is {how}, not watched"),));
    let awake = marker(number + 10);
    daemon.exec(&neighbour, json!({"command": format!("sleep {awake}"), "wait": "0s"}));
    let marker = marker(number);
    let stopped = Frozen::agent_of(&daemon, &frozen, &marker);
    // Nobody asks for anything: the daemon notices by itself.
    until("all of it is killed", || processes_with(&marker).is_empty());
    let told = daemon.get(&format!("/v1/events/history?sandbox={frozen}&kind=sandbox_unresponsive"));
    assert_eq!(told["events"].as_array().unwrap().len(), 1, "{told}");
    drop(stopped);
    // One whose agent answers keeps running, and the killed one is made again with its workspace.
    assert!(!processes_with(&awake).is_empty(), "{tier}: a neighbour was killed too");
    assert_eq!(state(&daemon, &neighbour), "running");
    assert_eq!(daemon.shell(&frozen, "cat file"), "kept\n");
}
