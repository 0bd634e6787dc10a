//! Children from inside: the control socket of a sandbox and its client, `isle-ctl`.

use serde_json::{Value, json};

use crate::harness::{TestDaemon, needs_tier, per_connection, require, until};

fn daemon(policies: &str) -> TestDaemon {
    let daemon = TestDaemon::start_with(&[("ISLE_SPAWN_POLICIES", policies), ("ISLE_DISK", "16M")]);
    ready(&daemon, "default");
    daemon
}

/// Makes a sandbox and waits until its control socket is listened to.
fn ready(daemon: &TestDaemon, sandbox: &str) {
    until("the control socket answers", || {
        daemon.exec(sandbox, json!({"command": "isle-ctl ping"}))["state"] == "completed"
    });
}

fn ctl(daemon: &TestDaemon, sandbox: &str, arguments: &str) -> Value {
    daemon.exec(sandbox, json!({ "command": format!("isle-ctl {arguments}") }))
}

/// The answer to `isle-ctl --json`.
fn answer(daemon: &TestDaemon, sandbox: &str, arguments: &str) -> Value {
    let run = ctl(daemon, sandbox, &format!("--json {arguments}"));
    serde_json::from_str(run["stdout"].as_str().unwrap()).unwrap_or_else(|_| panic!("{run}"))
}

fn code(answer: &Value) -> &str {
    assert!(answer["error"]["message"].as_str().is_some_and(|text| text.len() > 8), "{answer}");
    answer["error"]["code"].as_str().unwrap()
}

per_connection!(a_sandbox_splits_its_work_from_inside);

fn a_sandbox_splits_its_work_from_inside() {
    let daemon = daemon("default = {}");
    assert_eq!(ctl(&daemon, "default", "ping")["stdout"], "ok: default\n");
    assert_eq!(ctl(&daemon, "default", "spawn --name kid --memory 64M --cpus 1")["stdout"], "default/kid\n");
    let run = ctl(&daemon, "default", "exec kid -- sh -c 'echo out; echo err >&2; exit 7'");
    assert_eq!(
        (&run["stdout"], &run["stderr"], &run["exit_code"]),
        (&json!("out\n"), &json!("err\n"), &json!(7)),
        "{run}"
    );
    let run = ctl(&daemon, "default", "exec kid --workdir /tmp -- pwd");
    assert_eq!((&run["stdout"], &run["exit_code"]), (&json!("/tmp\n"), &json!(0)), "{run}");
    assert_eq!(ctl(&daemon, "default", "exec kid -- sh -c 'kill -9 $$'")["exit_code"], 137);
    let run = ctl(&daemon, "default", "exec kid --timeout 1s -- sleep 600");
    assert!(run["exit_code"] != 0 && run["stderr"].as_str().unwrap().contains("timed out"), "{run}");
    let table = ctl(&daemon, "default", "list");
    assert!(table["stdout"].as_str().unwrap().contains("kid") && table["exit_code"] == 0, "{table}");
    let listed = answer(&daemon, "default", "list");
    assert_eq!(listed["result"]["children"][0]["memory"], "64M", "{listed}");
    assert_eq!(listed["result"]["concurrent"], json!({"used": 1, "limit": 3}), "{listed}");
    let run = ctl(&daemon, "default", "run --memory 64M -- sh -c 'echo once; exit 3'");
    assert_eq!((&run["stdout"], &run["exit_code"]), (&json!("once\n"), &json!(3)), "{run}");
    assert_eq!(daemon.names(), ["default", "default/kid"], "it is gone afterwards");
    assert_eq!(ctl(&daemon, "default", "destroy kid")["stdout"], "default/kid\n");
    assert_eq!(daemon.names(), ["default"]);
    let audit = daemon.get("/v1/audit?limit=50");
    let rows = audit["rows"].as_array().unwrap();
    let spawned =
        rows.iter().find(|row| row["action"] == "spawn_child" && row["sandbox"] == "default/kid").unwrap();
    assert_eq!(
        (&spawned["door"], &spawned["actor"]),
        (&json!("guest"), &json!("sandbox:default")),
        "{spawned}"
    );
}

per_connection!(a_sandbox_without_a_root_of_its_own_splits_its_work_the_same_way);

fn a_sandbox_without_a_root_of_its_own_splits_its_work_the_same_way() {
    require!(needs_tier("process"));
    let mut daemon = daemon("plain = {}\ndefault = {}");
    let plain = json!({"sandbox": "plain", "tier": "process", "allow_downgrade": true, "disk": "64M"});
    daemon.post("/v1/sandboxes", plain);
    ready(&daemon, "plain");
    let run = ctl(&daemon, "plain", "spawn --name kid --memory 64M --cpus 1");
    assert_eq!(run["stdout"], "plain/kid\n", "{run}");
    assert_eq!(run.get("violations"), None, "asking is no offence: {run}");
    let run = ctl(&daemon, "plain", "exec kid -- sh -c 'echo out; exit 7'");
    assert_eq!((&run["stdout"], &run["exit_code"]), (&json!("out\n"), &json!(7)), "{run}");
    assert_eq!(code(&answer(&daemon, "plain", "exec default -- true")), "NOT_FOUND");
    // Also for a program that closes what it inherits; and nobody has sockets because of it.
    const SCRIPT: &str = "import socket, subprocess\n\
        print(subprocess.run(['isle-ctl', 'ping'], capture_output=True, text=True).stdout, end='')\n\
        try: socket.socket(socket.AF_UNIX)\n\
        except OSError: print('no sockets')\n";
    let run = daemon.exec("plain", json!({"argv": ["python3", "-c", SCRIPT]}));
    assert_eq!(run["stdout"], "ok: plain\nno sockets\n", "{run}");
    let change = "echo x > \"$(command -v isle-ctl)\" || rm -f \"$(command -v isle-ctl)\" || isle-ctl ping";
    assert_eq!(
        daemon.exec("plain", json!({"command": change}))["stdout"],
        "ok: plain\n",
        "it cannot be changed"
    );
    daemon.kill();
    daemon.launch();
    ready(&daemon, "plain");
    let crowd = "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do isle-ctl ping > out.$i 2>&1 & done; wait; cat out.*";
    let said = daemon.shell("plain", crowd);
    assert!(said.lines().all(|line| line == "ok: plain" || line.contains("LIMIT_REACHED")), "{said}");
    assert!(said.contains("ok: plain"), "{said}");
    // Without leave the call is refused as every other.
    let bare = json!({"sandbox": "bare", "tier": "process", "allow_downgrade": true});
    daemon.post("/v1/sandboxes", bare);
    assert_eq!(daemon.shell("bare", "command -v isle-ctl; true"), "");
    daemon.succeeds(&["rm", "plain", "bare", "default"]);
}

per_connection!(a_sandbox_reaches_its_own_children_and_nothing_else);

fn a_sandbox_reaches_its_own_children_and_nothing_else() {
    let daemon = daemon("'*' = { child_can_spawn = true }");
    ready(&daemon, "other");
    assert_eq!(ctl(&daemon, "other", "spawn --name theirs --memory 64M")["exit_code"], 0);
    ctl(&daemon, "default", "spawn --name mine --memory 64M");
    for name in ["theirs", "other/theirs", "other", "default", "nobody"] {
        for command in ["exec NAME -- true", "destroy NAME"] {
            let refused = answer(&daemon, "default", &command.replace("NAME", name));
            assert_eq!(code(&refused), "NOT_FOUND", "{command} {name}");
        }
    }
    let listed = answer(&daemon, "default", "list");
    assert_eq!(listed["result"]["children"].as_array().unwrap().len(), 1, "{listed}");
    assert_eq!(
        code(&answer(&daemon, "default", "spawn --name mine")),
        "INVALID_REQUEST",
        "the name is taken"
    );
    assert_eq!(daemon.names(), ["default", "default/mine", "other", "other/theirs"]);
    ready(&daemon, "default/mine");
    assert_eq!(
        ctl(&daemon, "default/mine", "spawn --name grandchild --memory 64M")["stdout"],
        "default/mine/grandchild\n"
    );
    assert_eq!(
        code(&answer(&daemon, "default", "exec grandchild -- true")),
        "NOT_FOUND",
        "its child's child"
    );
    let without = daemon.shell("default/mine/grandchild", "ls -d /run/isle 2>&1 || true; echo $PATH");
    assert!(!without.contains("\n/run/isle\n") && !without.contains(":/run/isle"), "{without}");
}

per_connection!(refusals_come_with_the_codes_of_the_socket);

fn refusals_come_with_the_codes_of_the_socket() {
    let daemon = daemon("default = { max_concurrent = 1 }");
    assert_eq!(code(&answer(&daemon, "default", "spawn --image other")), "PERMISSION_DENIED");
    assert_eq!(code(&answer(&daemon, "default", "spawn --memory 1M")), "INVALID_REQUEST");
    ctl(&daemon, "default", "spawn --name kid --memory 64M");
    assert_eq!(code(&answer(&daemon, "default", "spawn")), "LIMIT_REACHED");
    assert_eq!(code(&answer(&daemon, "default", "run -- true")), "LIMIT_REACHED");
    let run = ctl(&daemon, "default", "spawn");
    assert!(run["exit_code"] == 1 && run["stderr"].as_str().unwrap().contains("LIMIT_REACHED"), "{run}");
    for wrong in
        ["spwan", "exec kid", "exec -- true", "spawn --tier process", "ping extra", "spawn --cpus many"]
    {
        let run = ctl(&daemon, "default", wrong);
        assert!(run["exit_code"] == 2 && run["stderr"].as_str().unwrap().contains("Usage"), "{wrong}: {run}");
    }
    assert!(ctl(&daemon, "default", "--help")["stdout"].as_str().unwrap().contains("Usage"));
    assert_eq!(daemon.names(), ["default", "default/kid"]);
}

per_connection!(whatever_is_written_to_the_socket_is_answered_or_ends_the_connection);

fn whatever_is_written_to_the_socket_is_answered_or_ends_the_connection() {
    let daemon = daemon("default = {}");
    const SCRIPT: &str = r#"
import json, socket
def connect():
    s = socket.socket(socket.AF_UNIX); s.settimeout(60); s.connect("/run/isle/ctl.sock"); return s
def ask(line):
    s = connect(); s.sendall(line); s.shutdown(socket.SHUT_WR)
    return s.makefile("rb").read()
for line in [b"\n", b"{}\n", b"nonsense\n", b"\xff\xfe\n", b'{"id":1,"method":"reset"}\n', b'{"id":2,"method":"spawn","params":{"parent":"x"}}\n', b"[" * 5000 + b"\n"]:
    print(json.loads(ask(line))["error"]["code"])
print(json.loads(ask(b'{"id":"half","method":"ping"}'))["id"])
print(json.loads(ask(b"x" * 70000 + b"\n"))["error"]["code"])
s = connect(); s.sendall(b'{"id":1,"method":"ping"}\n{"id":2,"method":"ping"}\n')
f = s.makefile("rb"); print(json.loads(f.readline())["id"], json.loads(f.readline())["id"]); s.close(); f.close()
"#;
    daemon.post("/v1/sandboxes/default/files/write", json!({"files": [{"path": "t.py", "content": SCRIPT}]}));
    let out = daemon.shell("default", "python3 t.py");
    let words: Vec<&str> = out.lines().collect();
    assert_eq!(words[..7], ["INVALID_REQUEST"; 7], "{out}");
    assert_eq!(words[7..], ["half", "INVALID_REQUEST", "1 2"], "{out}");
    const CROWD: &str = r#"
import json, socket, time
def connect():
    s = socket.socket(socket.AF_UNIX); s.settimeout(60); s.connect("/run/isle/ctl.sock"); return s
held = []
for _ in range(8):
    s = connect(); f = s.makefile("rwb"); f.write(b'{"method":"ping"}\n'); f.flush(); assert b'"ok":true' in f.readline(); held.append((s, f))
print(json.loads(connect().makefile("rb").readline())["error"]["code"])
for s, f in held: f.close(); s.close()
for _ in range(600):
    f = connect().makefile("rwb"); f.write(b'{"method":"ping"}\n'); f.flush()
    if b'"ok":true' in f.readline(): print("free again"); break
    time.sleep(0.1)
"#;
    daemon.post("/v1/sandboxes/default/files/write", json!({"files": [{"path": "c.py", "content": CROWD}]}));
    assert_eq!(daemon.shell("default", "python3 c.py"), "LIMIT_REACHED\nfree again\n");
}

per_connection!(the_socket_is_for_the_sandbox_user_and_the_client_cannot_be_changed);

fn the_socket_is_for_the_sandbox_user_and_the_client_cannot_be_changed() {
    let daemon = daemon("default = {}");
    let facts =
        daemon.shell("default", "stat -c '%a %u %F' /run/isle/ctl.sock; stat -c '%a' /run/isle/isle-ctl");
    assert_eq!(facts, "600 1000 socket\n755\n");
    let mounts = daemon.shell("default", "grep ' /run' /proc/self/mountinfo | cut -d' ' -f5,6");
    let (place, options) = mounts.trim_end().split_once(' ').unwrap();
    let options: Vec<&str> = options.split(',').collect();
    assert_eq!(place, "/run/isle/isle-ctl", "and no other: {mounts}");
    assert!(["ro", "nosuid", "nodev"].iter().all(|option| options.contains(option)), "{mounts}");
    let refused = daemon.exec(
        "default",
        json!({"command": "echo x > /run/isle/isle-ctl; rm -f /run/isle/isle-ctl; isle-ctl ping", "user": "root"}),
    );
    assert_eq!(refused["stdout"], "ok: default\n", "{refused}");
    assert!(refused["stderr"].as_str().unwrap().contains("isle-ctl"), "{refused}");
}

per_connection!(without_leave_there_is_no_socket_and_no_client);

fn without_leave_there_is_no_socket_and_no_client() {
    let daemon = TestDaemon::start_with(&[("ISLE_SPAWN_POLICIES", "quiet = { inject_ctl = false }")]);
    for sandbox in ["default", "quiet"] {
        let seen = daemon.shell(sandbox, "ls -A /run; command -v isle-ctl; echo $PATH");
        assert!(!seen.contains("isle"), "{seen}");
    }
    daemon.post("/v1/sandboxes/quiet/children", json!({"memory": "64M"}));
}

per_connection!(a_sandbox_keeps_its_socket_when_the_daemon_dies_and_whoever_waited_is_told);

fn a_sandbox_keeps_its_socket_when_the_daemon_dies_and_whoever_waited_is_told() {
    let mut daemon = daemon("default = {}");
    ctl(&daemon, "default", "spawn --name kid --memory 64M");
    let waiting = "touch waiting; isle-ctl exec kid -- sh -c 'touch going; sleep 78512'; echo code $?";
    let job = daemon.post("/v1/sandboxes/default/jobs", json!({"command": waiting, "name": "waits"}));
    let run = job["run_id"].as_str().unwrap().to_owned();
    until("it waits", || daemon.exec("default/kid", json!({"command": "test -e going"}))["exit_code"] == 0);
    daemon.kill();
    daemon.launch();
    let ended = daemon.post(&format!("/v1/runs/{run}/wait"), json!({"timeout": "60s"}));
    assert_eq!(ended["stdout"], "code 1\n", "{ended}");
    assert!(ended["stderr"].as_str().unwrap().contains("the daemon disconnected"), "{ended}");
    ready(&daemon, "default");
    assert_eq!(ctl(&daemon, "default", "exec kid -- echo still")["stdout"], "still\n");
}

per_connection!(what_nobody_waits_for_any_more_is_ended);

fn what_nobody_waits_for_any_more_is_ended() {
    let daemon = daemon("default = {}");
    ctl(&daemon, "default", "spawn --name kid --memory 64M");
    daemon.exec("default", json!({"command": "timeout 1 isle-ctl exec kid -- sleep 78513"}));
    until("its end", || {
        let listed = answer(&daemon, "default", "list");
        listed["result"]["children"][0]["running_runs"] == 0
    });
}
