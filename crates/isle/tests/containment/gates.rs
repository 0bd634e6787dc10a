//! The gates: nothing gets out of tier `container`; out of tier `process` gets exactly what its report
//! names, and that is what needs namespaces, a user of its own or cgroups. As root and as an ordinary
//! user: whoever runs the tests.

use std::collections::BTreeSet;

use isle_probe::Verdict;
use serde_json::Value;

use crate::harness::{TestDaemon, needs_tier, processes_with, require, until};
use crate::range::{Range, Results, assert_complete, seen, with};
use crate::table;

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn column(tier: &str) -> String {
    format!("{tier}, {}", if is_root() { "root" } else { "user" })
}

/// Lines of a report that do not hold, with the attacks each names. What is watched well enough for every
/// attack of the suite holds.
fn misses(report: &[Value]) -> Vec<(&str, Vec<&str>)> {
    report
        .iter()
        .filter(|line| match line["status"].as_str().unwrap() {
            "enforced" => false,
            "watched" => line["open"].as_array().is_some_and(|open| !open.is_empty()),
            _ => true,
        })
        .map(|line| {
            let open =
                line["open"].as_array().into_iter().flatten().map(|name| name.as_str().unwrap()).collect();
            (line["key"].as_str().unwrap(), open)
        })
        .collect()
}

/// Exactly what is named gets through.
fn assert_exact(results: &Results, report: &[Value], left_out: &[&str]) {
    let named: BTreeSet<&str> = misses(report)
        .into_iter()
        .filter(|(key, _)| !left_out.contains(key))
        .flat_map(|(_, open)| open)
        .collect();
    let escaped: BTreeSet<&str> = with(results, Verdict::Escaped).into_iter().collect();
    let untold: Vec<&str> = escaped.difference(&named).copied().collect();
    assert!(untold.is_empty(), "got out, and no report says so: {:#?}", seen(results, &untold));
    let untrue: Vec<&str> = named.difference(&escaped).copied().collect();
    assert!(untrue.is_empty(), "the report says these get out: {:#?}", seen(results, &untrue));
}

fn assert_nothing_is_left(range: &Range, daemon: &TestDaemon, sandbox: &str) {
    let mark = range.canary.mark();
    daemon.succeeds(&["exec", sandbox, "--", "/workspace/isle-probe", "leave", &mark]);
    until("what a command left behind is gone", || processes_with(&mark).is_empty());
}

#[test]
fn nothing_gets_out_of_a_container() {
    let range = Range::new();
    let daemon = range.daemon();
    let report = range.create(&daemon, "report", "container");
    let results = range.one_shot(&daemon, &["--tier=container"]);
    assert_complete(&results, &[]);
    let escaped = with(&results, Verdict::Escaped);
    assert!(escaped.is_empty(), "{:#?}", seen(&results, &escaped));
    for (key, _) in misses(&report) {
        // An ordinary user's named sandboxes have a directory, which is watched from time to time.
        assert!(!is_root() && key == "disk_limit", "{key} is missing");
    }
    // The disk of a one-shot is limited for everybody.
    assert_exact(&results, &report, &["disk_limit"]);
    table::check(&column("container"), &results);
}

#[test]
fn nothing_gets_out_of_a_named_container_nor_does_its_root() {
    let range = Range::new();
    let daemon = range.daemon();
    let report = range.create(&daemon, "box", "container");
    // Where its disk is only watched, a full one would stop the sandbox and the test with it.
    let skipped: Vec<String> = misses(&report)
        .into_iter()
        .filter(|(key, _)| *key == "disk_limit")
        .flat_map(|(_, open)| open)
        .map(str::to_owned)
        .collect();
    let skip = format!("--skip={}", skipped.join(","));
    let results = range.named(&daemon, "box", &[], std::slice::from_ref(&skip));
    assert_complete(&results, &skipped);
    assert_exact(&results, &report, &["disk_limit"]);
    assert_nothing_is_left(&range, &daemon, "box");

    let mut as_root = range.named(&daemon, "box", &["--user=root"], &[skip]);
    assert_complete(&as_root, &skipped);
    // Guest root has five capabilities that count in its own namespace, and is the agent's user there.
    for name in ["proc.caps", "proc.kill_runtime"] {
        assert_eq!(as_root.remove(name).unwrap().0, Verdict::Escaped, "{name}");
    }
    assert_exact(&as_root, &report, &["disk_limit"]);
}

#[test]
fn out_of_a_process_sandbox_gets_exactly_what_its_report_names() {
    require!(needs_tier("process"));
    let range = Range::new();
    let daemon = range.daemon();
    let report = range.create(&daemon, "box", "process");
    for (key, open) in misses(&report) {
        let of_namespaces = ["namespaces", "own_root", "disk_limit"].contains(&key);
        let of_users = ["private_ids", "file_attributes", "no_signals_out"].contains(&key);
        assert!(of_namespaces || (!is_root() && of_users), "{key} is missing");
        assert!(!open.is_empty(), "{key} is missing and names no attack");
    }
    let results = range.named(&daemon, "box", &[], &[]);
    assert_complete(&results, &[]);
    assert_exact(&results, &report, &[]);
    assert_nothing_is_left(&range, &daemon, "box");
    table::check(&column("process"), &results);
}

/// Nothing is delegated to most ordinary users, and a host may not show its cgroups to root either.
#[test]
fn without_cgroups_nobody_in_a_container_takes_more_than_the_limits_not_even_its_root() {
    const WITHOUT: &str =
        r#"exec unshare --mount -- sh -c 'mount -t tmpfs none /sys/fs/cgroup && exec "$@"' sh "$@""#;
    let range = Range::new();
    let mut daemon = range.daemon();
    if is_root() {
        daemon.terminate();
        daemon.launch_by(WITHOUT);
    }
    let report = range.create(&daemon, "box", "container");
    let taken: Vec<&str> = isle_probe::attacks()
        .map(|attack| attack.name)
        .filter(|name| name.starts_with("res."))
        .filter(|name| !["res.disk", "res.inodes"].contains(name))
        .collect();
    let only = format!("--only={}", taken.join(","));
    for user in ["--user=sandbox", "--user=root"] {
        let results = range.named(&daemon, "box", &[user], std::slice::from_ref(&only));
        assert_eq!(results.len(), taken.len());
        assert!(with(&results, Verdict::NotTestable).is_empty(), "{results:#?}");
        assert_exact(&results, &report, &["disk_limit"]);
    }
}

/// What is granted where a gate is to stand.
const GRANTED: &[&str] = &["granted.test:443", "*.wide.test:22,80,443"];
const LOOK: &str = "getent hosts granted.test a.wide.test | grep -c ^198.18.";

/// A gate stands in such a sandbox: names are answered, ports listen, a stream leads to the daemon.
#[test]
fn nothing_gets_out_of_a_container_that_was_granted_something() {
    let range = Range::new();
    let daemon = range.daemon();
    let report = range.create(&daemon, "report", "container");
    let mut flags = vec!["--tier=container".to_owned()];
    flags.extend(GRANTED.iter().map(|host| format!("--allow={host}")));
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let look = [&["run"][..], &flags, &["--", "sh", "-c", LOOK]].concat();
    assert_eq!(daemon.succeeds(&look), "2\n", "the gate stands");
    let results = range.one_shot(&daemon, &flags);
    assert_complete(&results, &[]);
    let escaped = with(&results, Verdict::Escaped);
    assert!(escaped.is_empty(), "{:#?}", seen(&results, &escaped));
    // The disk of a one-shot is limited for everybody.
    assert_exact(&results, &report, &["disk_limit"]);
    table::check(&column("container with a grant"), &results);
}

fn of_the_network() -> Vec<&'static str> {
    isle_probe::attacks()
        .map(|attack| attack.name)
        .filter(|name| name.starts_with("net.") || name.starts_with("ns.") || name.starts_with("surf."))
        .collect()
}

/// Programs there get something that looks like a socket. It is none of the host's.
#[test]
fn a_grant_opens_nothing_else_in_a_process_sandbox() {
    require!(needs_tier("process"));
    let range = Range::new();
    let daemon = range.daemon();
    for name in ["closed", "open"] {
        range.create(&daemon, name, "process");
    }
    daemon.post("/v1/sandboxes/open/grants", serde_json::json!({ "hosts": GRANTED }));
    let look = "python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", 3128))' && echo stands";
    assert_eq!(daemon.shell("open", look), "stands\n", "the gate");
    let attacks = of_the_network();
    let only = [format!("--only={}", attacks.join(","))];
    let [closed, open] = ["closed", "open"].map(|name| range.named(&daemon, name, &[], &only));
    for name in attacks {
        assert_eq!(open[name].0, closed[name].0, "{name}: {:?}, {:?}", open[name], closed[name]);
    }
}

/// Nor does root of such a sandbox, who may try more of what has to do with networks.
#[test]
fn the_root_of_a_container_that_was_granted_something_does_not_get_out() {
    let range = Range::new();
    let daemon = range.daemon();
    let report = range.create(&daemon, "box", "container");
    daemon.post("/v1/sandboxes/box/grants", serde_json::json!({ "hosts": GRANTED }));
    assert_eq!(daemon.shell("box", LOOK), "2\n", "the gate stands");
    let attacks = of_the_network();
    let only = format!("--only={}", attacks.join(","));
    let results = range.named(&daemon, "box", &["--user=root"], &[only]);
    assert_eq!(results.len(), attacks.len());
    assert!(with(&results, Verdict::NotTestable).is_empty(), "{results:#?}");
    assert_exact(&results, &report, &["disk_limit"]);
}
