//! `isle try`, as somebody sees it who has just installed Isle.

use serde_json::Value;

use crate::contexts::needs;
use crate::harness::{TestDaemon, finish, require};

#[test]
fn isle_try_shows_a_connection_that_is_denied_and_then_granted() {
    let daemon = TestDaemon::start();
    require!(needs(&daemon, "bash"));
    let tried = finish(&mut daemon.isle(&["try", "--json"]));
    let (said, errors) = (String::from_utf8_lossy(&tried.stdout), String::from_utf8_lossy(&tried.stderr));
    assert!(tried.status.success(), "{said}\n{errors}");
    let record: Value = serde_json::from_str(&said).unwrap();
    let steps = record["steps"].as_array().unwrap();
    let connections: Vec<&Value> = steps
        .iter()
        .filter(|step| step["command"].as_str().unwrap().contains("/dev/tcp/hello.localhost/"))
        .collect();
    let [denied, granted] = connections[..] else { panic!("{record}") };
    let output = |step: &Value| step["output"].to_string();
    assert!(!output(denied).contains("hello from") && output(denied).contains("exit code"), "{denied}");
    assert_eq!(output(granted), "[\"hello from a server on the host\"]", "{granted}");
    assert!(
        steps.iter().any(|step| step["command"].as_str().unwrap().starts_with("isle allow ")),
        "{record}"
    );
    assert!(record["timings"].as_array().unwrap().len() >= 2, "{record}");
    assert!(!daemon.names().contains(&"isle-try".to_owned()), "it is gone again");
}
