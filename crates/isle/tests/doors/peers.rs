//! Sandboxes of one family reach each other by name, on the ports their policy names, and nobody else does.

use serde_json::json;

use crate::contexts::needs;
use crate::harness::{TestDaemon, encoded, per_connection, require, until};

const CONFIG: &str = "[spawn_policies.\"work-*\"]\npeer_ports = [\"8000\"]\nchild_can_spawn = true\n\
                      [spawn_policies.closed]\nmax_total = 2\n";

fn serve(daemon: &TestDaemon, sandbox: &str) {
    let serve = "mkdir -p www && cd www && hostname > /dev/null; echo from $WHO > page && exec python3 -m http.server --bind 127.0.0.1 8000";
    daemon.exec(sandbox, json!({ "command": serve, "env": { "WHO": sandbox }, "wait": "0s" }));
    let waited = daemon.get(&format!("/v1/sandboxes/{}/ports/8000?wait=60s", encoded(sandbox)));
    assert_eq!(waited["listening"], true, "{waited}");
}

fn fetch(daemon: &TestDaemon, from: &str, host: &str) -> serde_json::Value {
    daemon.exec(from, json!({ "command": format!("curl -sS -m 20 http://{host}/page") }))
}

per_connection!(sandboxes_of_one_family_reach_each_other_by_name_where_policy_says_so);

fn sandboxes_of_one_family_reach_each_other_by_name_where_policy_says_so() {
    let daemon = TestDaemon::start_configured(CONFIG, &[]);
    for root in ["work-one", "work-two", "closed"] {
        daemon.shell(root, "true");
    }
    require!(needs(&daemon, "python3"));
    require!(needs(&daemon, "curl"));
    let spawn = |parent: &str, name: &str| {
        daemon.post(
            &format!("/v1/sandboxes/{}/children", encoded(parent)),
            json!({ "name": name, "memory": "128M" }),
        );
    };
    spawn("work-one", "Helper_1");
    spawn("work-one", "sibling");
    spawn("work-one/sibling", "grandchild");
    spawn("work-two", "stranger");
    spawn("closed", "shut");
    serve(&daemon, "work-one/Helper_1");
    serve(&daemon, "work-one");
    // Everybody in the tree, in every direction, without a grant and without settings inside.
    for from in ["work-one", "work-one/sibling", "work-one/sibling/grandchild"] {
        for host in ["helper_1.isle:8000", "Helper_1.work-one.isle:8000"] {
            let run = fetch(&daemon, from, host);
            assert_eq!(run["stdout"], "from work-one/Helper_1\n", "{from} {host}: {run}");
        }
    }
    let run = fetch(&daemon, "work-one/sibling/grandchild", "WORK-ONE.isle.:8000");
    assert_eq!(run["stdout"], "from work-one\n", "{run}");
    let net = || daemon.get("/v1/sandboxes/work-one%2Fsibling/net");
    until("it is in the log", || net()["connections"] == 2);
    let net = net();
    assert_eq!(
        net["peers"],
        json!(["work-one.isle", "helper_1.work-one.isle", "grandchild.sibling.work-one.isle"]),
        "{net}"
    );
    assert_eq!(net["peer_ports"], json!([8000]), "{net}");
    let told = daemon.succeeds(&["net", "work-one/sibling"]);
    assert!(
        told.contains(
            "peers: work-one.isle, helper_1.work-one.isle, grandchild.sibling.work-one.isle on port 8000\n"
        ),
        "{told}"
    );
    // A port the policy does not name, a name nobody has, where nobody listens.
    assert_eq!(fetch(&daemon, "work-one", "helper_1.isle:8001")["exit_code"], 7);
    let run = fetch(&daemon, "work-one", "nobody.isle:8000");
    assert_eq!(run["exit_code"], 6, "{run}");
    assert!(run["violations"].to_string().contains("not_a_peer"), "{run}");
    assert!(run["violations"].to_string().contains("peer_ports"), "{run}");
    assert_eq!(fetch(&daemon, "work-one", "sibling.isle:8000")["state"], "failed");
    // Other families and sandboxes without such a policy, even when they have a network.
    daemon.post("/v1/sandboxes/lonely/grants", json!({ "hosts": ["helper_1.isle:8000", "example.com"] }));
    for from in ["work-two", "work-two/stranger", "lonely", "closed", "closed/shut"] {
        let run = fetch(&daemon, from, "helper_1.isle:8000");
        assert_eq!((&run["exit_code"], &run["stdout"]), (&json!(6), &json!("")), "{from}: {run}");
    }
    let run = fetch(&daemon, "lonely", "helper_1.isle:8000");
    assert!(run["violations"].to_string().contains("not_a_peer"), "a grant does not open a sandbox: {run}");
    // The name goes with its sandbox.
    daemon.http("DELETE", "/v1/children/work-one%2FHelper_1", None);
    assert_eq!(fetch(&daemon, "work-one", "helper_1.isle:8000")["exit_code"], 6);
}
