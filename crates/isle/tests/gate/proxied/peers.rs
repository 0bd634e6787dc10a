//! Sandboxes of one family, some of them of tier `process`: what listens in a container is reached through the
//! proxy by its name, and nothing of the host is reached by the name of a sandbox that shares its network.

use serde_json::{Value, json};

use super::{LANGUAGES, WORD};
use crate::harness::{TestDaemon, needs_tier, per_connection, require};
use crate::servers::{Server, make_process, needs};

fn fetch(daemon: &TestDaemon, from: &str, flags: &str, host: &str) -> Value {
    let command = format!("curl -sS -m 20 -w ' %{{http_code}} %{{http_connect}}' {flags} http://{host}/page");
    daemon.exec(from, json!({ "command": command }))
}

per_connection!(sandboxes_behind_the_proxy_reach_their_family_and_nobody_reaches_the_host_by_their_name);

fn sandboxes_behind_the_proxy_reach_their_family_and_nobody_reaches_the_host_by_their_name() {
    // A listener of the host, on the very port that the family may use.
    let host = Server::saying("127.0.0.1:0", WORD);
    let port = host.port;
    let config = format!("[spawn_policies.plain]\npeer_ports = [\"{port}\"]\n");
    let daemon = TestDaemon::start_configured(&config, &[]);
    require!(make_process(&daemon, "plain"));
    require!(needs_tier("container"));
    require!(needs(&daemon, "python3"));
    for (name, tier) in [("kid", "process"), ("server", "container")] {
        let child = json!({ "name": name, "tier": tier, "memory": "128M" });
        daemon.post("/v1/sandboxes/plain/children", child);
    }
    let serve = format!("echo inside > page && exec python3 -m http.server --bind 127.0.0.1 {port}");
    daemon.exec("plain/server", json!({ "command": serve, "wait": "0s" }));
    let waited = daemon.get(&format!("/v1/sandboxes/plain%2Fserver/ports/{port}?wait=60s"));
    assert_eq!(waited["listening"], true, "{waited}");

    // Without a grant: the policy of the family is enough.
    for from in ["plain", "plain/kid"] {
        for flags in LANGUAGES {
            let run = fetch(&daemon, from, flags, &format!("SERVER.isle:{port}"));
            assert!(run["stdout"].as_str().unwrap().starts_with("inside\n 200"), "{from} {flags}: {run}");
        }
    }
    let peers = |name: &str| daemon.get(&format!("/v1/sandboxes/{name}/net"))["peers"].clone();
    assert_eq!((peers("plain"), peers("plain%2Fserver")), (json!(["server.plain.isle"]), Value::Null));

    // What shares the host's network has no ports of its own, and says so to whoever asks.
    for (from, name) in [("plain/kid", "plain"), ("plain", "kid")] {
        let run = fetch(&daemon, from, "", &format!("{name}.isle:{port}"));
        let said = run["stdout"].as_str().unwrap();
        assert!(said.contains("reason: not_a_peer") && said.contains("of tier process"), "{run}");
        assert!(said.ends_with(" 403 000"), "{run}");
        let run = fetch(&daemon, from, "--proxytunnel -i", &format!("{name}.isle:{port}"));
        assert!(run["stdout"].as_str().unwrap().contains("X-Isle-Denied: not_a_peer"), "{run}");
        let run = fetch(&daemon, from, LANGUAGES[2], &format!("{name}.isle:{port}"));
        assert!(run["stderr"].as_str().unwrap().contains("(2)"), "{run}");
        let violations = run["violations"].to_string();
        assert!(violations.contains("not_a_peer") && violations.contains("of tier process"), "{run}");
    }
    let run = fetch(&daemon, "plain/server", "", &format!("plain.isle:{port}"));
    assert_eq!(run["exit_code"], 6, "{run}");
    assert!(run["violations"].to_string().contains("of tier process"), "{run}");
    // Another port, another name.
    for target in [format!("server.isle:{}", port ^ 1), format!("nobody.isle:{port}")] {
        let run = fetch(&daemon, "plain", "", &target);
        let said = run["stdout"].as_str().unwrap();
        assert!(said.contains("reason: not_a_peer") && said.contains("peer_ports"), "{run}");
    }
    assert_eq!(host.heard(), [WORD], "somebody reached the host");
}
