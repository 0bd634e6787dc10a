//! Rights found by a name: profiles that grant, spawn policies and exemptions are the operator's, whatever a
//! model or a tenant calls its sandboxes, unless the operator marked them for others.

use serde_json::{Value, json};

use crate::asking::{grants, look_up};
use crate::harness::TestDaemon;
use crate::mcp::Client;
use crate::tenants::{Caller, address_of, tenant};

const REVISION: &str = "2025-11-25";

const CONFIG: &str = r#"
default_idle = "1h"
deadline_exempt = ["default", "kept", "acme@spared"]

[network_hosts]
"web.test" = "127.0.0.1"

[profiles.web]
allow = ["web.test"]

[profiles.token]
env = { API_TOKEN = "of the operator" }

[profiles.weak]
allow_downgrade = true

[profiles.small]
pids = 64
env = { KIND = "small" }

[profiles.hidden]
pids = 64
for = ["operator"]

[profiles.shared]
allow = ["web.test"]
for = ["models", "namespace:acme"]

[spawn_policies.work]
max_total = 5

[spawn_policies."acme@builds"]
max_total = 4
"#;

fn start() -> (TestDaemon, String) {
    // Where less is allowed to everybody, a profile that allows it grants nothing: it grants a name then.
    let config = match rustix::process::geteuid().is_root() {
        true => CONFIG.to_owned(),
        false => CONFIG.replace("allow_downgrade = true", "allow = [\"web.test\"]"),
    };
    let daemon = TestDaemon::start_configured(&config, &[("ISLE_LISTEN", "127.0.0.1:0")]);
    let address = address_of(&daemon, 0);
    (daemon, address)
}

fn code(caller: &Caller, path: &str, body: Value) -> Value {
    caller.ask("POST", path, Some(&body)).json()["error"].clone()
}

#[test]
fn a_model_gets_nothing_by_the_name_of_a_profile() {
    let (daemon, _) = start();
    let toolsets = ["--toolsets", "core,lifecycle,jobs"];
    let (mut client, _) = Client::initialized_with(&daemon, REVISION, &toolsets);
    for profile in ["web", "token", "weak", "hidden"] {
        for (tool, arguments) in [
            ("exec", json!({"sandbox": "box", "command": "true", "profile": profile})),
            ("create", json!({"sandbox": "box", "profile": profile})),
        ] {
            let answer = client.call(tool, arguments);
            let said = answer["content"][0]["text"].as_str().unwrap();
            assert!(answer["isError"] == true && said.contains("FORBIDDEN"), "{tool} {profile}: {answer}");
            assert!(said.contains("--profile") && said.contains("for = "), "{answer}");
        }
    }
    assert!(!daemon.names().contains(&"box".to_owned()), "a refusal makes nothing");
    // What grants nothing, and what is marked.
    let ran = client.call("exec", json!({"sandbox": "a", "command": "echo $KIND", "profile": "small"}));
    assert_eq!(ran["structuredContent"]["stdout"], "small\n", "{ran}");
    let looked = json!({"sandbox": "b", "command": look_up("web.test"), "profile": "shared"});
    let ran = client.call("exec", looked);
    assert_eq!(ran["structuredContent"]["stdout"], "found\n", "{ran}");
    // The operator names all of them, and a model works in what the operator made.
    daemon.succeeds(&["create", "c", "--profile", "web"]);
    let ran = client.call("exec", json!({"sandbox": "c", "command": look_up("web.test")}));
    assert_eq!(ran["structuredContent"]["stdout"], "found\n", "{ran}");
    let once = daemon.post("/v1/runs", json!({"command": "echo $API_TOKEN", "profile": "token"}));
    assert!(once["stdout"].as_str().unwrap().contains("operator"), "{once}");
}

#[test]
fn a_tenant_gets_nothing_by_the_name_of_a_profile() {
    let (daemon, address) = start();
    let (acme, other) = (tenant(&daemon, &address, "acme"), tenant(&daemon, &address, "other"));
    for (path, body) in [
        ("/v1/sandboxes", json!({"sandbox": "box"})),
        ("/v1/sandboxes/box/exec", json!({"command": "true"})),
        ("/v1/runs", json!({"command": "true"})),
    ] {
        for profile in ["web", "token", "weak", "hidden", "never"] {
            let mut body = body.clone();
            body["profile"] = json!(profile);
            for (caller, usable) in [(&acme, json!(["shared", "small"])), (&other, json!(["small"]))] {
                let error = code(caller, path, body.clone());
                assert_eq!(error["code"], "PROFILE_NOT_FOUND", "{path} {profile}: {error}");
                assert_eq!(error["details"]["profiles"], usable, "others are not told of: {error}");
            }
        }
        let mut body = body.clone();
        body["profile"] = json!("shared");
        assert_eq!(code(&other, path, body)["code"], "PROFILE_NOT_FOUND", "{path}");
    }
    let looked = json!({"command": look_up("web.test"), "profile": "shared"});
    let ran = acme.ask("POST", "/v1/sandboxes/box/exec", Some(&looked)).json();
    assert_eq!(ran["stdout"], "found\n", "{ran}");
    let plain = json!({"command": "echo $KIND", "profile": "small"});
    let ran = other.ask("POST", "/v1/sandboxes/box/exec", Some(&plain)).json();
    assert_eq!(ran["stdout"], "small\n", "{ran}");
    // The operator, working in that namespace.
    daemon.succeeds(&["--namespace", "other", "create", "made", "--profile", "web"]);
    assert_eq!(grants(&daemon, "default"), Vec::<Value>::new());
}

#[test]
fn a_tenants_sandbox_has_no_policy_of_another_namespace() {
    let (daemon, address) = start();
    let (acme, other) = (tenant(&daemon, &address, "acme"), tenant(&daemon, &address, "other"));
    for caller in [&acme, &other] {
        for sandbox in ["work", "builds"] {
            caller.shell(sandbox, "true");
        }
    }
    daemon.shell("work", "true");
    daemon.shell("builds", "true");
    let spawn = json!({"memory": "64M"});
    for (caller, sandbox) in [(&acme, "work"), (&other, "work"), (&other, "builds")] {
        let error = code(caller, &format!("/v1/sandboxes/{sandbox}/children"), spawn.clone());
        assert_eq!(error["code"], "PERMISSION_DENIED", "{sandbox}: {error}");
        assert!(error["next_steps"].to_string().contains(&format!("@{sandbox}")), "{error}");
        let inside = caller.ask(
            "POST",
            &format!("/v1/sandboxes/{sandbox}/exec"),
            Some(&json!({"command": "test -e /run/isle/ctl.sock || isle-ctl ping"})),
        );
        assert_ne!(inside.json()["exit_code"], 0, "no control socket either: {}", inside.text());
    }
    assert_eq!(
        daemon.refused("POST", "/v1/sandboxes/builds/children", Some(&spawn))["code"],
        "PERMISSION_DENIED"
    );
    assert_eq!(acme.ask("POST", "/v1/sandboxes/builds/children", Some(&spawn)).status, 200);
    daemon.post("/v1/sandboxes/work/children", spawn);
}

#[test]
fn a_tenants_sandbox_is_not_exempt_by_the_name_of_another() {
    let (daemon, address) = start();
    let acme = tenant(&daemon, &address, "acme");
    let idle_end = |made: &Value| made["idle_expires_at"].is_string();
    for (name, ends) in [("kept", true), ("default", true), ("spared", false)] {
        let made = acme.ask("POST", "/v1/sandboxes", Some(&json!({"sandbox": name}))).json();
        assert_eq!(idle_end(&made), ends, "{name}: {made}");
    }
    for (name, ends) in [("kept", false), ("spared", true)] {
        assert_eq!(idle_end(&daemon.post("/v1/sandboxes", json!({"sandbox": name}))), ends, "{name}");
    }
}
