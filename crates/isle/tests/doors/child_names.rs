//! Children live under the name of their parent: a guest that spawns takes no name anybody else could mean.

use std::process::Command;

use serde_json::{Value, json};

use crate::harness::{TestDaemon, encoded, finish, until};
use crate::mcp::Client;
use crate::tenants::{address_of, tenant};

const CONFIG: &str = r#"
disk = "16M"

[spawn_policies.work]
child_can_spawn = true
max_concurrent = 5
peer_ports = ["8000"]

[spawn_policies."acme@work"]
max_total = 3

[spawn_policies.prod]
max_total = 3
"#;

fn start() -> TestDaemon {
    let daemon = TestDaemon::start_configured(CONFIG, &[("ISLE_LISTEN", "127.0.0.1:0")]);
    until("the control socket answers", || {
        daemon.exec("work", json!({"command": "isle-ctl ping"}))["state"] == "completed"
    });
    daemon
}

fn ctl(daemon: &TestDaemon, sandbox: &str, arguments: &str) -> Value {
    daemon.exec(sandbox, json!({ "command": format!("isle-ctl {arguments}") }))
}

fn brief(daemon: &TestDaemon, name: &str) -> Value {
    let listed = daemon.get("/v1/sandboxes");
    let sandboxes = listed["sandboxes"].as_array().unwrap();
    sandboxes.iter().find(|one| one["name"] == name).cloned().unwrap_or_default()
}

#[test]
fn a_guest_takes_no_name_of_the_operator() {
    let daemon = start();
    let spawned = ctl(&daemon, "work", "spawn --name prod --memory 64M");
    assert_eq!(spawned["stdout"], "work/prod\n", "{spawned}");
    assert_eq!(ctl(&daemon, "work", "exec prod -- sh -c 'echo of the guest > trap'")["exit_code"], 0);
    assert_eq!(brief(&daemon, "work/prod")["parent"], "work");
    assert_eq!(brief(&daemon, "prod"), Value::Null);
    // The operator's `prod` is another one: made when it is used, and never the guest's.
    daemon.home().write("plan.txt", "secret plan\n");
    let plan = daemon.home().path().join("plan.txt").display().to_string();
    assert_eq!(daemon.shell("prod", "ls"), "");
    daemon.succeeds(&["cp", &plan, "prod:plan.txt"]);
    assert_eq!(daemon.shell("prod", "ls"), "plan.txt\n");
    assert_eq!(ctl(&daemon, "work", "exec prod -- ls")["stdout"], "trap\n", "the guest's has no plan");
    assert_eq!(brief(&daemon, "prod")["parent"], Value::Null);
    // And a child of that name can still be made below another parent.
    let spawned = daemon.post("/v1/sandboxes/prod/children", json!({"name": "prod", "memory": "64M"}));
    assert_eq!(spawned["name"], "prod/prod", "{spawned}");
    // Destroying the bare name destroys no child.
    daemon.succeeds(&["rm", "prod"]);
    assert_eq!(brief(&daemon, "work/prod")["state"], "running");
}

#[test]
fn a_child_is_used_by_its_whole_name_at_every_door() {
    let daemon = start();
    assert_eq!(daemon.succeeds(&["spawn", "work", "--name", "kid", "--memory", "128M"]), "work/kid\n");
    assert_eq!(daemon.succeeds(&["exec", "work/kid", "--", "echo", "hi"]), "hi\n");
    daemon.home().write("file.txt", "text\n");
    let file = daemon.home().path().join("file.txt").display().to_string();
    daemon.succeeds(&["cp", &file, "work/kid:"]);
    assert_eq!(daemon.shell("work/kid", "cat file.txt; echo $ISLE_SANDBOX"), "text\nwork/kid\n");
    let (mut client, _) = Client::initialized_with(&daemon, "2025-11-25", &["--toolsets", "core,children"]);
    let ran = client.call("exec", json!({"sandbox": "work/kid", "command": "echo mcp"}));
    assert_eq!(ran["structuredContent"]["stdout"], "mcp\n", "{ran}");
    assert_eq!(ran["structuredContent"]["sandbox"], "work/kid", "{ran}");
    // Jobs, variables and inspection by the same name.
    daemon.succeeds(&["job", "start", "work/kid", "--name", "nap", "--", "sleep", "600"]);
    daemon.succeeds(&["job", "stop", "work/kid:nap", "--force"]);
    daemon.post("/v1/sandboxes/work%2Fkid/env", json!({"action": "set", "variables": {"A": "1"}}));
    assert_eq!(daemon.shell("work/kid", "echo $A"), "1\n");
    // A grandchild, from outside and from inside, where names are relative to the one who asks.
    assert_eq!(ctl(&daemon, "work/kid", "spawn --name x --memory 64M")["stdout"], "work/kid/x\n");
    assert_eq!(daemon.shell("work/kid/x", "echo deep"), "deep\n");
    for name in ["x", "work/kid/x"] {
        let run = ctl(&daemon, "work/kid", &format!("exec {name} -- echo inside"));
        assert_eq!(run["stdout"], "inside\n", "{name}: {run}");
    }
    let run = ctl(&daemon, "work", "exec x -- true");
    assert_ne!(run["exit_code"], 0, "a grandchild is not a child: {run}");
    // Without a name it is numbered below its parent.
    assert_eq!(daemon.succeeds(&["spawn", "work"]), "work/child-0002\n");
    // Events and the audit log have the whole name, and the actor's.
    let audit = daemon.get("/v1/audit?limit=100")["rows"].as_array().unwrap().clone();
    let row = audit.iter().find(|row| row["action"] == "spawn_child" && row["sandbox"] == "work/kid/x");
    assert_eq!(row.expect("it is there")["actor"], "sandbox:work/kid", "{audit:?}");
    let table = daemon.succeeds(&["ls"]);
    assert!(table.contains("work/kid/x"), "{table}");
    assert_eq!(daemon.succeeds(&["children", "work", "--destroy", "work/kid"]), "work/kid\n");
    assert_eq!(brief(&daemon, "work/kid/x"), Value::Null);
}

#[test]
fn a_name_of_a_child_makes_nothing_and_reaches_no_other() {
    let daemon = start();
    let before = daemon.names();
    for (method, path, body) in [
        ("POST", "/v1/sandboxes/work%2Fnew/exec", Some(json!({"command": "true"}))),
        ("POST", "/v1/sandboxes/nobody%2Fnew/exec", Some(json!({"command": "true"}))),
        ("POST", "/v1/sandboxes/work%2Fnew/code", Some(json!({"code": "1", "language": "python"}))),
        ("GET", "/v1/sandboxes/work%2Fnew/grants", None),
        ("POST", "/v1/sandboxes/work%2Fnew/children", Some(json!({}))),
    ] {
        let error = daemon.refused(method, path, body.as_ref());
        assert_eq!(error["code"], "SANDBOX_NOT_FOUND", "{path}: {error}");
    }
    let error = daemon.refused("POST", "/v1/sandboxes/work%2Fnew/exec", Some(&json!({"command": "true"})));
    assert!(error["next_steps"].to_string().contains("spawn"), "{error}");
    let error = daemon.refused("POST", "/v1/sandboxes", Some(&json!({"sandbox": "work/new"})));
    assert_eq!(error["code"], "INVALID_NAME", "{error}");
    for wrong in ["work/", "/work", "work//x", "a/b/c/d", "work/-x", "work/..", "work/.", "work/x\ny"] {
        let error = daemon.refused("POST", "/v1/sandboxes", Some(&json!({"sandbox": wrong})));
        assert_eq!(error["code"], "INVALID_NAME", "{wrong:?}: {error}");
    }
    for wrong in ["", "-f", "--help", ".", "..", "a/b", "pr\u{43e}d", "a b", "a\u{202e}b", "a\n", "sbx_00"] {
        let name = json!({"name": wrong, "memory": "64M"});
        let answer = daemon.http("POST", "/v1/sandboxes/work/children", Some(&name));
        let made = answer.status == 200;
        assert!(!made || wrong == "sbx_00", "{wrong:?}: {}", answer.text());
    }
    assert_eq!(daemon.names().iter().filter(|name| !before.contains(name)).count(), 1);
    // Names of others' children do not exist.
    daemon.shell("prod", "true");
    ctl(&daemon, "work", "spawn --name secret --memory 64M");
    let output = finish(&mut daemon.isle(&["exec", "prod/secret", "--", "true"]));
    assert!(String::from_utf8_lossy(&output.stderr).contains("SANDBOX_NOT_FOUND"), "{output:?}");
    let acme = tenant(&daemon, &address_of(&daemon, 0), "acme");
    acme.shell("work", "true");
    let answer = acme.ask("POST", "/v1/sandboxes/work%2Fsecret/exec", Some(&json!({"command": "true"})));
    assert_eq!(answer.code(), "SANDBOX_NOT_FOUND", "{}", answer.text());
}

#[test]
fn children_of_an_earlier_version_get_the_name_of_their_parent() {
    let mut daemon = start();
    for (parent, name) in [("work", "kid"), ("work/kid", "x")] {
        daemon.post(
            &format!("/v1/sandboxes/{}/children", encoded(parent)),
            json!({"name": name, "memory": "64M"}),
        );
    }
    daemon.shell("work/kid/x", "echo mine > file");
    daemon.kill();
    // As an earlier version recorded them.
    const REWRITE: &str = "import sqlite3, sys\n\
        db = sqlite3.connect(sys.argv[1])\n\
        for id, name, spec in db.execute('select id, name, spec from sandboxes').fetchall():\n\
        \x20   spec = spec.replace('\"work/kid/x\"', '\"x\"').replace('\"work/kid\"', '\"kid\"')\n\
        \x20   db.execute('update sandboxes set name = ?, spec = ? where id = ?', (name.split('/')[-1], spec, id))\n\
        db.commit()\n\
        print(sorted(name for name, in db.execute('select name from sandboxes')))";
    let database = daemon.home().state_dir().join("isle.db");
    let rewritten = finish(Command::new("python3").args(["-c", REWRITE]).arg(&database));
    let said = String::from_utf8_lossy(&rewritten.stdout).into_owned();
    assert!(said.contains("'kid'") && said.contains("'x'"), "{rewritten:?}");
    daemon.launch();
    assert_eq!(daemon.shell("work/kid/x", "cat file"), "mine\n");
    assert_eq!(brief(&daemon, "work/kid")["parent"], "work");
    assert_eq!(daemon.shell("kid", "ls"), "", "the old name is free");
    daemon.succeeds(&["children", "work", "--destroy", "work/kid"]);
    assert!(daemon.names().contains(&"kid".to_owned()));
}
