//! `isle doctor --deep`: the same attacks for everybody, on their own host.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;

use crate::harness::{Home, TestDaemon, finish, needs_tier, needs_user, require, tiers};

#[test]
fn a_deep_look_attacks_every_tier_and_finds_that_each_holds() {
    let daemon = TestDaemon::start();
    let output = finish(&mut daemon.isle(&["doctor", "--deep", "--json"]));
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    let answer: Value = serde_json::from_str(&said).unwrap();
    let found = answer["tiers"].as_array().unwrap();
    let names: Vec<&str> = found.iter().map(|tier| tier["tier"].as_str().unwrap()).collect();
    assert_eq!(names, tiers());
    for tier in found {
        assert_eq!(tier["holds"], true, "{tier:#}");
        let attacks = tier["attacks"].as_array().unwrap();
        assert_eq!(attacks.len(), isle_probe::attacks().count() + 1);
        let open: Vec<&Value> = attacks.iter().filter(|attack| attack["result"] == "open").collect();
        for attack in &open {
            assert!(attack["guarantee"].is_string(), "{attack}");
        }
        assert_eq!(open.iter().any(|attack| attack["name"] == "ns.net"), tier["tier"] == "process");
    }
    assert!(daemon.names().is_empty(), "the sandboxes of the doctor are gone");
}

#[test]
fn a_deep_look_at_one_tier_prints_the_table_and_what_to_change() {
    require!(needs_tier("process"));
    let daemon = TestDaemon::start();
    let text = daemon.succeeds(&["doctor", "--deep", "--tier", "process"]);
    assert!(text.starts_with("ATTACK"), "{text}");
    assert!(!text.contains("tier container:"), "{text}");
    for part in [
        "fs.canary_read",
        "matches its report",
        "open: proc.exists, ns.user, ns.pid",
        "→ use tier `container`",
    ] {
        assert!(text.contains(part), "{part} is not in:\n{text}");
    }
}

/// Somebody takes a limit off while the doctor looks, so that the report claims more than holds.
#[test]
fn a_tier_that_does_not_hold_what_it_claims_is_said_and_the_exit_code_is_1() {
    let daemon = TestDaemon::start();
    let over = AtomicBool::new(false);
    let (output, lifted) = std::thread::scope(|scope| {
        let nemesis = scope.spawn(|| {
            let mut lifted = 0;
            while !over.load(Ordering::Relaxed) {
                for cgroup in daemon.counts().cgroups.iter().filter(|path| path.contains("/sb_")) {
                    lifted += usize::from(std::fs::write(Path::new(cgroup).join("pids.max"), "max").is_ok());
                }
                std::thread::sleep(Duration::from_millis(100));
            }
            lifted
        });
        let output = finish(&mut daemon.isle(&["doctor", "--deep", "--tier", "container"]));
        over.store(true, Ordering::Relaxed);
        (output, nemesis.join().unwrap())
    });
    require!(needs_user(lifted > 0, "this user has no cgroups whose limits could be lifted"));
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let fork = said.lines().find(|line| line.starts_with("res.fork ")).unwrap_or_default();
    assert!(fork.contains("ESCAPED"), "{said}");
}

#[test]
fn a_tier_that_does_not_exist_is_refused_before_anything_is_tried() {
    let home = Home::new();
    let output = finish(&mut home.isle(&["doctor", "--deep", "--tier", "vault"]));
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(said.contains("INVALID_ARGUMENT") && said.contains("process, container"), "{said}");
    let output = finish(&mut home.isle(&["doctor", "--tier", "process"]));
    assert_eq!(output.status.code(), Some(2), "a tier is for the attacks only");
}
