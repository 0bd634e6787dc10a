//! `isle file`: single files of a sandbox, from the command line.

use crate::harness::{Case, TestDaemon, finish, per_tier};

per_tier!(the_command_line_lists_prints_searches_edits_moves_and_removes_files);

fn the_command_line_lists_prints_searches_edits_moves_and_removes_files(Case { tier, .. }: Case) {
    let daemon = TestDaemon::start();
    daemon.post("/v1/sandboxes", serde_json::json!({"sandbox": "box", "tier": tier}));
    daemon.shell("box", "mkdir -p src; printf 'one\\ntwo\\nthree\\n' > src/a.txt; seq 1 40000 > long");
    let listed = daemon.succeeds(&["file", "ls", "box", "--glob", "*.txt"]);
    assert!(listed.contains("src/a.txt") && !listed.contains("long"), "{listed}");
    assert_eq!(daemon.succeeds(&["file", "cat", "box", "src/a.txt", "--lines", "2-3"]), "two\nthree\n");
    let whole: String = (1..=40_000).map(|number| format!("{number}\n")).collect();
    assert!(daemon.succeeds(&["file", "cat", "box", "long"]) == whole, "every page, once");
    let most = daemon.succeeds(&["file", "cat", "box", "long", "--lines", "2-39999"]);
    let expected: String = (2..=39_999).map(|number| format!("{number}\n")).collect();
    assert!(most == expected, "{} of {} bytes", most.len(), expected.len());
    assert!(daemon.succeeds(&["file", "cat", "box", "long", "--lines", "1-"]) == whole);
    let found = daemon.succeeds(&["file", "grep", "box", "^TW", "-i", "-C", "1", "src"]);
    assert_eq!(found, "a.txt-1- one\na.txt:2:1: two\na.txt-3- three\n");
    let none = finish(&mut daemon.isle(&["file", "grep", "box", "nowhere"]));
    assert_eq!((none.status.code(), none.stdout.len()), (Some(1), 0), "as grep has it");
    let edit = ["file", "edit", "box", "src/a.txt", "--old", "two", "--new", "-2-"];
    assert_eq!(daemon.succeeds(&edit), "src/a.txt: 1 replaced\n");
    let again = finish(&mut daemon.isle(&edit));
    let words = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(!again.status.success() && words.contains("TEXT_NOT_FOUND"), "{words}");
    daemon.succeeds(&["file", "mv", "box", "src/a.txt", "b/c.txt"]);
    assert_eq!(daemon.shell("box", "cat b/c.txt; ls src"), "one\n-2-\nthree\n");
    let facts = daemon.succeeds(&["file", "stat", "box", "b/c.txt"]);
    assert!(facts.contains("kind: file") && facts.contains("size: 14"), "{facts}");
    let kept = finish(&mut daemon.isle(&["file", "rm", "box", "b"]));
    assert!(!kept.status.success(), "a directory goes only when asked for");
    daemon.succeeds(&["file", "rm", "box", "b", "-r"]);
    assert_eq!(daemon.shell("box", "ls"), "long\nsrc\n");
}

#[test]
fn the_command_line_clones_with_a_token_that_is_on_no_command_line() {
    let daemon = TestDaemon::start();
    daemon.shell(
        "box",
        "git init -q -b main origin && cd origin && echo hi > f && git add f && \
         git -c user.name=x -c user.email=x@example.com commit -qm first",
    );
    let clone = ["file", "clone", "box", "file:///workspace/origin", "copy"];
    let told = daemon.succeeds(&clone);
    assert!(told.contains("1 files") && told.contains("first"), "{told}");
    assert_eq!(daemon.shell("box", "cat copy/f"), "hi\n");
    let refused = finish(&mut daemon.isle(&[&clone[..], &["--token-from", "NO_SUCH_VARIABLE"]].concat()));
    let words = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && words.contains("NO_SUCH_VARIABLE"), "{words}");
}
