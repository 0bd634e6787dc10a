//! What the command line says about itself.
use crate::common::Home;

#[test]
fn the_help_lists_every_command() {
    insta::assert_snapshot!(Home::new().transcript(&["--help"]));
}

#[test]
fn the_help_of_run_lists_every_flag() {
    insta::assert_snapshot!(Home::new().transcript(&["run", "--help"]));
}

#[test]
fn the_help_of_exec_shell_and_cp_is_short() {
    let home = Home::new();
    let all: Vec<String> = ["exec", "shell", "cp"].map(|name| home.transcript(&[name, "--help"])).into();
    insta::assert_snapshot!(all.join("\n"));
}

#[test]
fn the_help_of_the_other_commands_is_short() {
    let home = Home::new();
    let names =
        ["status", "rm", "logs", "wait", "kill", "history", "audit", "serve", "config", "completions"];
    let all: Vec<String> = names.map(|name| home.transcript(&[name, "-h"])).into();
    insta::assert_snapshot!(all.join("\n"));
}

#[test]
fn the_help_of_jobs_is_short() {
    let home = Home::new();
    let all = [
        home.transcript(&["batch", "-h"]),
        home.transcript(&["job", "-h"]),
        home.transcript(&["job", "start", "-h"]),
        home.transcript(&["job", "ls", "-h"]),
        home.transcript(&["job", "write", "-h"]),
        home.transcript(&["job", "stop", "-h"]),
        home.transcript(&["attach", "-h"]),
    ];
    insta::assert_snapshot!(all.join("\n"));
}

#[test]
fn there_are_completions_for_every_shell() {
    let home = Home::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = home.isle(&["completions", shell]).output().unwrap();
        assert!(output.status.success());
        let script = String::from_utf8(output.stdout).unwrap();
        assert!(script.contains("allow-downgrade"), "{shell}");
    }
}

#[test]
fn flags_that_do_not_exist_are_refused() {
    let home = Home::new();
    let all = [
        home.transcript(&["run", "--memroy", "1G", "--", "true"]),
        home.transcript(&["frobnicate"]),
        home.transcript(&["kill"]),
        home.transcript(&["rm", "--all", "name"]),
    ];
    insta::assert_snapshot!(all.join("\n"));
}
