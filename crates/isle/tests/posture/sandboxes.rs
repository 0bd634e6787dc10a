//! Agents, supervisors and commands of both tiers, named and one-shot, as either guest user.

use serde_json::json;

use crate::expected::{Case, Host, Who, expected};
use crate::harness::{TestDaemon, needs_tier, processes_with, require, tiers, until, until_some};
use crate::look::{Posture, assert_posture, command_line, is_asleep, look, parent};

/// Runs a command that waits, and looks at it and everybody above it up to the agent.
fn family(daemon: &TestDaemon, case: Case, number: u32) -> Vec<(Who, Posture)> {
    let marker = format!("{}{:07}", 83_000 + number, std::process::id());
    let mut body = json!({"argv": ["sleep", marker], "user": case.user, "wait": "0s"});
    let run = if case.named {
        daemon.post("/v1/sandboxes", json!({"sandbox": case.tier, "tier": case.tier}));
        daemon.exec(case.tier, body)
    } else {
        body["tier"] = json!(case.tier);
        daemon.post("/v1/runs", body)
    };
    let daemon_pid = i32::try_from(daemon.pid()).unwrap();
    let command = until_some("the command runs", || {
        let found = processes_with(&format!("sleep {marker}"));
        // Once it sleeps: a program that is still being loaded has its libraries open.
        found.into_iter().find(|&pid| command_line(pid).starts_with("sleep") && is_asleep(pid))
    });
    let mut line = vec![(Who::Command, command)];
    loop {
        let above = parent(line.last().unwrap().1);
        // A supervisor is a copy of its agent and has its name.
        let is_agent = !command_line(parent(above)).starts_with("isle-agent");
        line.push((if is_agent { Who::Agent } else { Who::Supervisor }, above));
        if is_agent {
            break;
        }
    }
    let agent = line.last().unwrap().1;
    until("everybody waits", || line.iter().all(|&(_, pid)| is_asleep(pid)));
    let found = line.iter().map(|&(who, pid)| (who, look(pid, daemon_pid, Some(agent)))).collect();
    let kill = format!("/v1/runs/{}/kill", run["run_id"].as_str().unwrap());
    daemon.post(&kill, json!({"force": true}));
    found
}

fn check(daemon: &TestDaemon, case: Case, number: u32) {
    let host = Host::of(daemon, case.tier);
    let found = family(daemon, case, number);
    let who: Vec<Who> = found.iter().map(|(who, _)| *who).collect();
    match case.tier {
        "container" => assert_eq!(who, [Who::Command, Who::Agent]),
        _ => assert_eq!(who, [Who::Command, Who::Supervisor, Who::Agent]),
    }
    for (who, posture) in found {
        assert_posture(&format!("{who:?} of {case:?}"), &posture, &expected(case, who, &host));
    }
}

#[test]
fn every_process_of_a_named_container_has_exactly_the_expected_posture() {
    let daemon = TestDaemon::start();
    check(&daemon, Case { tier: "container", named: true, user: "sandbox" }, 1);
    check(&daemon, Case { tier: "container", named: true, user: "root" }, 2);
}

#[test]
fn every_process_of_a_one_shot_container_has_exactly_the_expected_posture() {
    let daemon = TestDaemon::start();
    check(&daemon, Case { tier: "container", named: false, user: "sandbox" }, 3);
    check(&daemon, Case { tier: "container", named: false, user: "root" }, 4);
}

#[test]
fn every_process_of_tier_process_has_exactly_the_expected_posture() {
    require!(needs_tier("process"));
    let daemon = TestDaemon::start();
    check(&daemon, Case { tier: "process", named: true, user: "sandbox" }, 5);
    check(&daemon, Case { tier: "process", named: false, user: "sandbox" }, 6);
}

#[test]
fn nothing_of_a_careless_starter_reaches_a_command() {
    // A starter that ignores hang-ups and leaves a file open, under a umask that gives nothing away.
    let mut daemon = TestDaemon::start();
    daemon.kill();
    let secret = daemon.home().write("secret.txt", "of the host");
    daemon.launch_by(&format!(
        "trap '' HUP INT QUIT USR1; umask 077; exec 9<{} 8<&9; exec \"$@\"",
        secret.display()
    ));
    for (number, &tier) in (7..).zip(tiers()) {
        check(&daemon, Case { tier, named: true, user: "sandbox" }, number);
        let seen = daemon
            .shell(tier, "umask; ls -ld \"$HOME\" | cut -c1-10; cat /etc/hosts > /dev/null && echo read");
        assert!(seen.starts_with("0022\n") && seen.ends_with("read\n"), "{seen}");
    }
}
