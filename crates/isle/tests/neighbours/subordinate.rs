//! Subordinate ids on a host with several users: the command `isle doctor` prints is executed, in a mount
//! namespace with an `/etc` of its own, and must be enough and harm nobody.

use std::process::Command;

use crate::harness::{Home, Missing, finish, needs_root, require};

/// Runs a shell script as root with a private copy of `/etc`, in which the user `bee` (uid 54321) exists.
/// `doctor` in it prints the line of a fact as `bee` sees it: good or not, what was found, and the fix.
fn with_own_etc(script: &str) -> Result<String, Missing> {
    needs_root("have an /etc of its own")?;
    const PRELUDE: &str = r#"
        isle=$1; work=$2
        cp -a /etc "$work/etc"; mount --bind "$work/etc" /etc
        sed -i '/:54321:/d' /etc/passwd
        echo 'bee:x:54321:54321::/:/bin/sh' >>/etc/passwd; echo 'bee:x:54321:' >>/etc/group
        echo 'bee:!:20000::::::' >>/etc/shadow
        chmod 755 "$work"
        doctor() {
            setpriv --reuid "${1:-54321}" --regid "${1:-54321}" --clear-groups env -i PATH="$PATH" HOME="$work/none" \
                TMPDIR=/tmp ISLE_STATE_DIR="$work/none/state" ISLE_RUNTIME_DIR="$work/none/run" "$isle" doctor --json |
            python3 -c '
import json, sys
facts = [fact for section in json.load(sys.stdin)["facts"].values() for fact in section]
fact = next(fact for fact in facts if fact["name"] == "subordinate ids")
print(fact["good"], "|", fact["found"], "|", fact.get("fix", ""))'
        }
        apply() { doctor | sed 's/.*| //; s/sudo //g' >"$work/fix"; sh -e "$work/fix"; }
        overlaps() { python3 -c '
import sys
for name in ["/etc/subuid", "/etc/subgid"]:
    ranges = sorted((int(start), int(start) + int(count)) for _, start, count in (line.split(":") for line in open(name) if line.strip()))
    assert all(first[1] <= second[0] for first, second in zip(ranges, ranges[1:])), ranges'; }
    "#;
    let home = Home::new();
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-euc", &format!("{PRELUDE}\n{script}"), "sh"]);
    command.arg(env!("CARGO_BIN_EXE_isle")).arg(home.path());
    let output = finish(&mut command);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    Ok(said)
}

#[test]
fn the_printed_command_gives_a_range_of_its_own() {
    // The first user has the range that tools give out first.
    let said = with_own_etc(
        r"echo ant:100000:65536 >/etc/subuid; echo ant:100000:65536 >/etc/subgid
        doctor; apply; doctor; overlaps; cat /etc/subuid",
    );
    let said = require!(said);
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines[0].starts_with("False") && !lines[0].contains("100000-165535"), "{said}");
    assert!(lines[1].starts_with("True | 65536"), "{said}");
    assert!(said.contains("ant:100000:65536\nbee:"), "{said}");
}

#[test]
fn the_printed_command_works_without_the_files() {
    let said = with_own_etc("rm -f /etc/subuid /etc/subgid; doctor; apply; doctor; overlaps");
    let said = require!(said);
    assert!(said.lines().nth(1).unwrap().starts_with("True | 65536"), "{said}");
}

#[test]
fn a_range_another_user_has_too_is_an_error_with_its_fix() {
    let said = with_own_etc(
        r"printf 'ant:100000:65536\nbee:120000:65536\n' | tee /etc/subuid >/etc/subgid
        doctor; apply; doctor; overlaps; grep ant /etc/subuid",
    );
    let said = require!(said);
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines[0].starts_with("False") && lines[0].contains("also to ant"), "{said}");
    assert!(lines[1].starts_with("True | 65536"), "{said}");
    assert!(said.ends_with("ant:100000:65536\n"), "{said}");
}

#[test]
fn two_users_who_run_their_commands_at_once_get_different_ranges() {
    // Both read the files before either command runs.
    let said = with_own_etc(
        r"echo 'cat:x:54322:54322::/:/bin/sh' >>/etc/passwd; echo 'cat:x:54322:' >>/etc/group
        echo 'cat:!:20000::::::' >>/etc/shadow; : >/etc/subuid; : >/etc/subgid
        doctor | sed 's/.*| //; s/sudo //g' >$work/bee
        doctor 54322 | sed 's/.*| //; s/sudo //g' >$work/cat
        sh -e $work/bee; sh -e $work/cat; overlaps; doctor; doctor 54322",
    );
    let said = require!(said);
    assert_eq!(said.lines().filter(|line| line.starts_with("True | 65536")).count(), 2, "{said}");
}

#[test]
fn ranges_in_several_lines_add_up() {
    let said = with_own_etc(
        r"printf 'bee:200000:40\n54321:300000:40\nbee:200000:40\n' | tee /etc/subuid >/etc/subgid; doctor",
    );
    let said = require!(said);
    assert!(said.starts_with("True | 80 |"), "{said}");
}
