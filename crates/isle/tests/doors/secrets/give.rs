//! Secrets that are given to sandboxes and runs: as placeholders, to those who may have them, and told of.

use serde_json::json;

use super::{REVISION, attach, set, value};
use crate::contexts::{code, has};
use crate::harness::{TestDaemon, until};
use crate::mcp::Client;
use crate::tenants::{listening, tenant};
use crate::traces::{files_with, processes_showing, records};

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
    for (place, text) in records(&daemon, own["run_id"].as_str().unwrap()) {
        assert!(!text.contains(&secret), "{place}");
    }
    assert_eq!(files_with(&daemon.home().state_dir(), &secret), [] as [String; 0]);
    assert_eq!(processes_showing(&secret), [] as [String; 0]);
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
        daemon.shell("default/kid", "echo ${HELD-none} ${SHOWN-none}"),
        "none none\n",
        "nothing is handed down unasked"
    );
    for body in [json!({"secrets": ["ELSE"]}), json!({"expose": ["HELD"]}), json!({"expose": ["ELSE"]})] {
        let error = daemon.refused("POST", "/v1/sandboxes/default%2Fkid/secrets", Some(&body));
        assert_eq!(error["code"], "PERMISSION_DENIED", "{body}");
    }
    let body = json!({"command": "true", "secrets": ["ELSE"]});
    assert_eq!(
        daemon.refused("POST", "/v1/sandboxes/default%2Fkid/exec", Some(&body))["code"],
        "PERMISSION_DENIED"
    );
    attach(&daemon, "default%2Fkid", json!({"secrets": ["HELD", "SHOWN=S"]}));
    let seen = daemon.shell("default/kid", "echo $HELD $S");
    assert!(seen.starts_with("isle-secret-HELD-") && seen.contains(" isle-secret-SHOWN-"), "{seen}");
    assert_ne!(daemon.shell("default", "echo $HELD").trim(), seen.split(' ').next().unwrap());
    attach(&daemon, "default%2Fkid", json!({"expose": ["SHOWN"]}));
    assert_eq!(daemon.shell("default/kid", "echo $SHOWN"), "[secret SHOWN]\n");
    // Taken from the parent, it is taken from the child.
    daemon.succeeds(&["secret", "detach", "default", "HELD", "SHOWN"]);
    assert_eq!(daemon.shell("default/kid", "echo ${HELD-none} ${SHOWN-none}"), "none none\n");
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
    assert!(shown.contains("ATTACHED as placeholder"), "{shown}");
    for secret in [&attached, &asked] {
        assert!(!format!("{events}{inspected}{shown}").contains(secret.as_str()));
    }
}
