//! Variables of a sandbox that stay, through every door and in both tiers.

use serde_json::{Value, json};

use crate::contexts::{both_tiers, code, has};
use crate::harness::{TestDaemon, finish};
use crate::mcp::Client;

fn env(daemon: &TestDaemon, sandbox: &str, arguments: Value) -> Value {
    daemon.post(&format!("/v1/sandboxes/{sandbox}/env"), arguments)
}

fn set(daemon: &TestDaemon, sandbox: &str, variables: Value) -> Value {
    env(daemon, sandbox, json!({"action": "set", "variables": variables}))
}

#[test]
fn variables_are_seen_by_every_later_command_context_and_job() {
    let daemon = TestDaemon::start();
    for sandbox in both_tiers(&daemon) {
        let python = has(&daemon, "python3");
        // An interpreter that is warm already must not keep what it started with.
        if python {
            code(&daemon, sandbox, json!({"code": "1", "language": "python"}));
        }
        let answer = set(
            &daemon,
            sandbox,
            json!({"COLOUR": "blue", "LINES": "one\ntwo 'three' \"four\" $HOME", "N": 7}),
        );
        assert_eq!(answer["changed"], json!(["COLOUR", "LINES", "N"]), "{answer}");
        assert!(answer["variables"][0].get("value").is_none(), "{answer}");
        let shown = daemon.shell(sandbox, r#"printf '%s|' "$COLOUR" "$LINES" "$N""#);
        assert_eq!(shown, "blue|one\ntwo 'three' \"four\" $HOME|7|");
        let job = daemon.exec(sandbox, json!({"command": "echo $COLOUR", "wait": "0s"}));
        let path = format!("/v1/runs/{}/wait", job["run_id"].as_str().unwrap());
        assert_eq!(daemon.post(&path, json!({"timeout": "60s"}))["stdout"], "blue\n");
        let given = json!({"command": "echo $COLOUR $N", "env": {"COLOUR": "red"}});
        assert_eq!(daemon.exec(sandbox, given)["stdout"], "red 7\n", "the call's own are stronger");
        assert_eq!(daemon.succeeds(&["exec", sandbox, "--", "printenv", "COLOUR"]), "blue\n");
        let shell = json!({"code": "echo $COLOUR", "language": "shell", "context": "s"});
        assert_eq!(code(&daemon, sandbox, shell.clone())["stdout"], "blue\n");
        if python {
            let read = json!({"code": "import os; print(os.environ['COLOUR'])", "language": "python"});
            assert_eq!(code(&daemon, sandbox, read.clone())["stdout"], "blue\n");
            // What an interpreter reads when it starts counts as well.
            set(&daemon, sandbox, json!({"PYTHONHASHSEED": "0", "PYTHONPATH": "/workspace/lib"}));
            daemon.shell(sandbox, "mkdir -p lib && echo 'value = 41' > lib/brought_along.py");
            let import = json!({"code": "import brought_along, sys\nprint(brought_along.value + 1, sys.flags.hash_randomization)", "language": "python"});
            assert_eq!(code(&daemon, sandbox, import)["stdout"], "42 0\n");
        }
        // A context that is there keeps what it has; the next one starts with what holds then.
        set(&daemon, sandbox, json!({"COLOUR": "green"}));
        assert_eq!(code(&daemon, sandbox, shell)["stdout"], "blue\n");
        let later = json!({"code": "echo $COLOUR", "language": "shell", "context": "t"});
        assert_eq!(code(&daemon, sandbox, later)["stdout"], "green\n");
        let answer = env(&daemon, sandbox, json!({"action": "unset", "names": ["COLOUR", "NEVER_SET"]}));
        assert_eq!(answer["changed"], json!(["COLOUR"]), "{answer}");
        assert_eq!(daemon.shell(sandbox, "echo ${COLOUR-none} $N"), "none 7\n");
    }
    let (mut client, _) = Client::initialized(&daemon, "2025-11-25");
    let seen = client.call("exec", json!({"sandbox": "box", "command": "echo $N"}));
    assert_eq!(seen["structuredContent"]["stdout"], "7\n", "{seen}");
    assert_eq!(
        daemon.post("/v1/runs", json!({"command": "echo ${N-none}"}))["stdout"],
        "none\n",
        "a one-shot"
    );
}

#[test]
fn variables_outlive_the_daemon_and_the_sandbox_until_it_is_wiped() {
    let mut daemon = TestDaemon::start();
    set(&daemon, "box", json!({"KEPT": "a\nb"}));
    daemon.kill();
    daemon.launch();
    assert_eq!(daemon.shell("box", "echo \"$KEPT\""), "a\nb\n");
    let listed = env(&daemon, "box", json!({"action": "list"}));
    assert_eq!(listed["variables"], json!([{"name": "KEPT", "value": "a\nb", "looks_secret": false}]));
    daemon.succeeds(&["rm", "box"]);
    assert_eq!(env(&daemon, "box", json!({"action": "list"}))["variables"][0]["name"], "KEPT");
    assert_eq!(
        daemon.shell("box", "echo \"$KEPT\""),
        "a\nb\n",
        "they belong to the name, as the workspace does"
    );
    daemon.succeeds(&["rm", "--wipe", "box"]);
    let error = daemon.refused("POST", "/v1/sandboxes/box/env", Some(&json!({"action": "list"})));
    assert_eq!(error["code"], "SANDBOX_NOT_FOUND");
    assert_eq!(daemon.shell("box", "echo ${KEPT-gone}"), "gone\n");
}

#[test]
fn the_command_line_sets_lists_and_unsets_variables() {
    let daemon = TestDaemon::start();
    assert_eq!(
        daemon.succeeds(&["env", "box", "set", "A=1", "B=x=y", "DB_PASSWORD=swordfish"]),
        "A\nB\nDB_PASSWORD\n"
    );
    let listed = daemon.succeeds(&["env", "box", "ls"]);
    assert!(listed.contains("x=y") && !listed.contains("swordfish"), "{listed}");
    assert_eq!(daemon.shell("box", "echo $A $B $DB_PASSWORD"), "1 x=y swordfish\n");
    assert_eq!(daemon.succeeds(&["env", "box", "unset", "A"]), "A\n");
    let json = daemon.succeeds(&["env", "box", "ls", "--json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["variables"].as_array().unwrap().len(), 2, "{json}");
    let missing = finish(&mut daemon.isle(&["env", "box", "set", "NOT_SET_IN_THIS_SHELL"]));
    assert!(!missing.status.success());
    let audit = daemon.get("/v1/audit?limit=20");
    let rows: Vec<&Value> =
        audit["rows"].as_array().unwrap().iter().filter(|row| row["action"] == "env").collect();
    assert_eq!(rows.len(), 2, "{audit}");
    assert!(!audit.to_string().contains("swordfish"), "{audit}");
    assert!(rows[1]["detail"].to_string().contains("DB_PASSWORD"), "{audit}");
}

#[test]
fn bad_variables_are_refused_and_change_nothing() {
    let daemon = TestDaemon::start();
    set(&daemon, "box", json!({"A": "1"}));
    let cases = [
        (json!({"action": "set", "variables": {"A": "2", "1B": "x"}}), "INVALID_NAME"),
        (json!({"action": "set", "variables": {"A": "2", "B-C": "x"}}), "INVALID_NAME"),
        (json!({"action": "set", "variables": {"A": "2", "LD_PRELOAD": "/x.so"}}), "INVALID_ARGUMENT"),
        (json!({"action": "set", "variables": {"A": "2", "GLIBC_TUNABLES": "x"}}), "INVALID_ARGUMENT"),
        (json!({"action": "set", "variables": {"A": "2", "B": "x\u{0}"}}), "INVALID_ARGUMENT"),
        (json!({"action": "set", "variables": {"A": "2", "B": "x".repeat(100_000)}}), "TOO_LARGE"),
        (
            json!({"action": "set", "variables": (0..300).map(|n| (format!("V{n}"), json!("x"))).collect::<serde_json::Map<_, _>>()}),
            "TOO_LARGE",
        ),
        (json!({"action": "set"}), "INVALID_ARGUMENT"),
        (json!({"action": "set", "names": ["A"]}), "INVALID_ARGUMENT"),
        (json!({"action": "unset"}), "INVALID_ARGUMENT"),
        (json!({"action": "unset", "names": ["A", "A B"]}), "INVALID_NAME"),
        (json!({"action": "list", "names": ["A"]}), "INVALID_ARGUMENT"),
        (json!({"action": "erase"}), "INVALID_ARGUMENT"),
        (json!({}), "INVALID_ARGUMENT"),
    ];
    for (body, code) in cases {
        let error = daemon.refused("POST", "/v1/sandboxes/box/env", Some(&body));
        assert_eq!(error["code"], code, "{body}: {error}");
    }
    for action in ["list", "unset"] {
        let body = json!({"action": action, "names": (action == "unset").then_some(["A"])});
        let error = daemon.refused("POST", "/v1/sandboxes/nobody/env", Some(&body));
        assert_eq!(error["code"], "SANDBOX_NOT_FOUND");
    }
    assert_eq!(daemon.names(), ["box"]);
    let listed = env(&daemon, "box", json!({"action": "list"}));
    assert_eq!(listed["variables"], json!([{"name": "A", "value": "1", "looks_secret": false}]));
}

#[test]
fn names_that_look_like_secrets_are_told_or_refused_as_configured() {
    let daemon = TestDaemon::start();
    let answer = set(&daemon, "box", json!({"API_KEY": "x", "KEYBOARD": "us"}));
    let warning = answer["warnings"][0].as_str().unwrap();
    assert!(warning.contains("API_KEY") && !warning.contains("KEYBOARD"), "{answer}");
    let run = daemon.exec("box", json!({"command": "true", "env": {"MY_TOKEN": "x"}}));
    assert!(run["note"].as_str().is_some_and(|note| note.contains("MY_TOKEN")), "{run}");
    let run = daemon.exec("box", json!({"command": "true", "env": {"MAX_TOKENS": "x"}}));
    assert!(run.get("note").is_none(), "{run}");
    // A person at the command line is told as well, beside what the command prints.
    for start in [&["exec", "box"][..], &["run"]] {
        for (variable, told) in [
            ("MAX_TOKENS", ""),
            (
                "MY_TOKEN",
                "isle: MY_TOKEN looks like a secret: everything in the sandbox can read the environment\n",
            ),
        ] {
            let variable = format!("{variable}=x");
            let rest = ["--env", &variable, "--", "echo", "done"];
            let output = finish(&mut daemon.isle(&[start, &rest].concat()));
            let said = [output.stdout, output.stderr].map(|said| String::from_utf8(said).unwrap());
            assert_eq!(said, ["done\n", told], "{start:?} {variable}");
            assert_eq!(output.status.code(), Some(0));
        }
    }
    drop(daemon);

    let daemon = TestDaemon::start_with(&[("ISLE_SECRET_NAMES", "refuse")]);
    let body = json!({"action": "set", "variables": {"A": "1", "API_KEY": "x"}});
    let error = daemon.refused("POST", "/v1/sandboxes/box/env", Some(&body));
    assert_eq!(error["code"], "POLICY_DENIED", "{error}");
    let given = json!({"command": "true", "env": {"MY_TOKEN": "x"}});
    for path in ["/v1/sandboxes/box/exec", "/v1/runs"] {
        assert_eq!(daemon.refused("POST", path, Some(&given))["code"], "POLICY_DENIED");
    }
    assert!(daemon.names().is_empty(), "nothing was made for it");
    assert_eq!(daemon.get("/v1/runs?limit=5")["runs"], json!([]));
}

#[test]
fn a_model_sets_variables_checks_code_and_resets_by_its_tools() {
    let daemon = TestDaemon::start();
    let (mut client, _) =
        Client::initialized_with(&daemon, "2025-11-25", &["--toolsets", "core,environment"]);
    let variables = json!({"sandbox": "box", "action": "set", "variables": {"A": "1"}});
    assert_eq!(client.call("env", variables)["structuredContent"]["changed"], json!(["A"]));
    let wrong = client.call("env", json!({"sandbox": "box", "action": "set", "variables": {"LD_X": "1"}}));
    assert_eq!(wrong["isError"], true, "{wrong}");
    let checked = client.call("validate", json!({"sandbox": "box", "code": "echo (", "language": "shell"}));
    assert_eq!(checked["structuredContent"]["verdict"], "reject", "{checked}");
    client.call("exec", json!({"sandbox": "box", "command": "touch ~/gone"}));
    assert_eq!(client.call("reset", json!({"sandbox": "box"}))["isError"], false);
    let left = client.call("exec", json!({"sandbox": "box", "command": "ls ~; echo $A"}));
    assert_eq!(left["structuredContent"]["stdout"], "1\n", "{left}");
    let refused = client.call("install", json!({"sandbox": "box", "packages": ["--pre"]}));
    assert!(refused["isError"] == true && refused.to_string().contains("INVALID_ARGUMENT"), "{refused}");
}
