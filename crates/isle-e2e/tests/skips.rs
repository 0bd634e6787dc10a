//! A skip is on record with test and reason, and is a failure where nothing may be skipped. The tests that
//! skip are run by the others, in a process of their own.

#![expect(clippy::unwrap_used, reason = "a test that cannot set itself up has failed")]

use std::process::{Command, Output};

use isle_e2e::{Missing, require, skip_part};
use serde_json::Value;

#[test]
#[ignore = "run by the others"]
fn inner_of_the_host() {
    require!(1 > 2, "{} is missing", "arithmetic");
    println!("went on");
}

#[test]
#[ignore = "run by the others"]
fn inner_of_the_user() {
    let root: Result<(), Missing> = Err(Missing::for_user("only root can"));
    require!(root);
    println!("went on");
}

#[test]
#[ignore = "run by the others"]
fn inner_in_part() {
    skip_part!("no {}", "node");
    println!("went on");
}

/// Runs one of those; gives what it printed and what it put on record.
fn run(test: &str, no_skip: &str) -> (Output, Vec<Value>) {
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--ignored", "--nocapture"]);
    command.env("ISLE_TEST_RUN", directory.path()).env("ISLE_NO_SKIP", no_skip);
    let output = command.output().unwrap();
    let records = std::fs::read_to_string(directory.path().join("skips.jsonl")).unwrap_or_default();
    (output, records.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

fn went_on(output: &Output) -> bool {
    String::from_utf8_lossy(&output.stdout).contains("went on")
}

#[test]
fn a_skip_is_on_record_and_ends_its_test() {
    let (output, records) = run("inner_of_the_host", "");
    assert!(output.status.success() && !went_on(&output), "{output:?}");
    assert_eq!(records.len(), 1);
    assert_eq!(records[0]["program"], "skips");
    assert_eq!(records[0]["test"], "inner_of_the_host");
    assert_eq!(records[0]["reason"], "arithmetic is missing");
    assert_eq!((&records[0]["partly"], &records[0]["cause"]), (&false.into(), &"host".into()));
}

#[test]
fn a_skipped_part_is_on_record_and_the_rest_goes_on() {
    let (output, records) = run("inner_in_part", "");
    assert!(output.status.success() && went_on(&output), "{output:?}");
    assert_eq!((&records[0]["partly"], &records[0]["reason"]), (&true.into(), &"no node".into()));
}

#[test]
fn where_nothing_may_be_skipped_a_skip_fails() {
    for test in ["inner_of_the_host", "inner_in_part"] {
        let (output, _) = run(test, "1");
        assert!(!output.status.success(), "{output:?}");
    }
    let (output, records) = run("inner_of_the_user", "1");
    assert!(output.status.success() && !went_on(&output), "another user's run makes up for it: {output:?}");
    assert_eq!(records[0]["cause"], "user");
}
