//! Every way of granting, for programs behind the proxy.

use serde_json::json;

use super::{pages, reaching};
use crate::harness::{TestDaemon, finish, per_connection, require};
use crate::servers::{NAMES, make_process, needs};

per_connection!(every_way_of_granting_works_for_programs_behind_the_proxy);

fn every_way_of_granting_works_for_programs_behind_the_proxy() {
    let (_directory, _server, port) = pages();
    let profile = format!(
        "[profiles.fetching]\ntier = \"process\"\nallow_downgrade = true\nallow = [\"web.test:{port}\", \"127.0.0.1:{port}\"]\n"
    );
    let daemon = TestDaemon::start_configured(&format!("{profile}{NAMES}"), &[]);
    require!(make_process(&daemon, "plain"));
    require!(needs(&daemon, "curl"));
    let curl = format!("curl -sSf -m 30 http://web.test:{port}/page");
    let [name, address] = reaching(port);
    // For one run, of a sandbox or of its own; by the command line as by HTTP.
    let grants = ["--allow", name.as_str(), "--allow", address.as_str()];
    let once = [&["run", "--tier", "process", "--allow-downgrade"][..], &grants, &["--", "sh", "-c", &curl]]
        .concat();
    assert_eq!(daemon.succeeds(&once), "the page\n");
    let within = [&["exec", "plain"][..], &grants, &["--", "sh", "-c", &curl]].concat();
    assert_eq!(daemon.succeeds(&within), "the page\n");
    let run = daemon.exec("plain", json!({ "command": curl }));
    assert_eq!(run["state"], "failed", "it ended with its run: {run}");
    // For a sandbox when it is made, and by its profile.
    let made =
        json!({ "sandbox": "made", "tier": "process", "allow_downgrade": true, "allow": [name, address] });
    daemon.post("/v1/sandboxes", made);
    assert_eq!(daemon.shell("made", &curl), "the page\n");
    daemon.post("/v1/sandboxes", json!({ "sandbox": "profiled", "profile": "fetching" }));
    assert_eq!(daemon.shell("profiled", &curl), "the page\n");
    // For all of the namespace, those that run already included.
    daemon.succeeds(&["allow", "--all", &name, &address]);
    assert_eq!(daemon.shell("plain", &curl), "the page\n");
    daemon.succeeds(&["revoke", "--all", &name]);
    assert_eq!(daemon.exec("plain", json!({ "command": curl }))["state"], "failed");
    // What there is, is told.
    let told = daemon.get("/v1/status?sandbox=plain");
    assert!(
        told.to_string()
            .contains("granted destinations are reachable through a proxy (HTTP CONNECT, SOCKS5)"),
        "{told}"
    );
    daemon.shell("box", "true");
    let told = daemon.get("/v1/status?sandbox=box");
    assert!(told.to_string().contains("granted destinations are reachable transparently"), "{told}");
    let doctor = String::from_utf8(finish(&mut daemon.isle(&["doctor", "--json"])).stdout).unwrap();
    assert!(doctor.contains("granted destinations are reachable through a proxy"), "{doctor}");
}
