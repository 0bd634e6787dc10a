//! Connections through the proxy that end before their time: with the daemon, and with their grant.

use serde_json::json;

use super::{TUNNEL, ground, reaching};
use crate::harness::{per_connection, processes_with, require, until};
use crate::held::{Way, ends, hold};
use crate::servers::{Server, allow, python};

per_connection!(the_death_of_the_daemon_ends_every_connection_through_the_proxy_and_the_next_daemon_goes_on);

fn the_death_of_the_daemon_ends_every_connection_through_the_proxy_and_the_next_daemon_goes_on() {
    let mut daemon = require!(ground());
    let echo = Server::echo();
    let port = echo.port;
    allow(&daemon, "plain", &reaching(port));
    let marker = hold(&daemon, "plain", Way::Proxy, port, 20);
    daemon.kill();
    until("it has seen the end", || processes_with(&marker).is_empty());
    assert_eq!(echo.heard().len(), 20, "somebody got through");
    daemon.launch();
    // Who is quicker than the agent has a socket still, and nobody at its other end.
    let after = ends(&daemon, "plain");
    let quicker = after[0] == "ECONNRESET" || after[0] == "EPIPE";
    assert!(quicker || after == json!(["EAFNOSUPPORT", "EPERM"]), "{after}");
    let script = format!("{TUNNEL}\nimport json, sys\ntunnel({port})\nprint(json.dumps(True))");
    assert_eq!(python(&daemon, "plain", &script, &[]), true);
}

per_connection!(taking_back_a_grant_ends_connections_through_the_proxy_at_once);

fn taking_back_a_grant_ends_connections_through_the_proxy_at_once() {
    let daemon = require!(ground());
    let echo = Server::echo();
    let hosts = reaching(echo.port);
    allow(&daemon, "plain", &hosts);
    hold(&daemon, "plain", Way::Proxy, echo.port, 20);
    daemon.succeeds(&["revoke", "plain", &hosts[0]]);
    assert_eq!(ends(&daemon, "plain"), json!(["EACCES", "done"]));
    assert_eq!(echo.heard().len(), 20, "somebody got through");
}
