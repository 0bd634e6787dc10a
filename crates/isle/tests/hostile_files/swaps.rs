//! Reading, writing, copying, listing and removing while the guest exchanges files for links as fast as it
//! can. Whatever the moment, an operation sees the guest's own file or refuses.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use serde_json::json;

use crate::harness::{Watchdog, finish, needs_tier, require, tiers, until};
use crate::scene::{SECRET, Scene};

/// Exchanges two pairs of names for ever: a file with a link to the secret, and a directory with a link
/// to the secret's directory.
const SWAPPER: &str = r#"
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
host = sys.argv[1].encode()
for name, text in ((b"file", b"inside"), (b"dir/x", b"inside")):
    os.makedirs(os.path.dirname(b"race/" + name), exist_ok=True)
    with open(b"race/" + name, "wb") as f: f.write(text)
os.symlink(host + b"/x", b"race/link")
os.symlink(host, b"race/dirlink")
os.chdir("race")
open("../ready", "w").close()
while True:
    for a, b in ((b"file", b"link"), (b"dir", b"dirlink")):
        libc.renameat2(-100, a, -100, b, 2)
"#;

const ROUNDS: usize = 120;

/// Both forms of a path mean the same file, found by different rules.
const PREFIXES: [&str; 2] = ["race", "/workspace/race"];

fn with_swapper(tier: &str, attack: impl FnOnce(&Scene)) {
    let scene = Scene::new(tier);
    // A path as an argument would be translated in tier `process`; as a part of a word it is not.
    let place = format!("/.{}", scene.host().display());
    let run = scene.start(json!(["python3", "-c", SWAPPER, place]));
    until("the swapping has begun", || scene.files("GET", "stat?path=ready", None).status == 200);
    attack(&scene);
    scene.kill(&run);
    scene.assert_host_untouched();
}

fn reading(tier: &str) {
    with_swapper(tier, |scene| {
        let (mut read, mut refused) = (0, 0);
        for round in 0..ROUNDS {
            let prefix = PREFIXES[round % 2];
            for rest in [
                format!("read?path={prefix}/file"),
                format!("content?path={prefix}/file"),
                format!("read?path={prefix}/dir/x"),
                format!("content?path={prefix}/dir/x"),
                format!("stat?path={prefix}/dir/x"),
                format!("list?path={prefix}&depth=3"),
                format!("list?path={prefix}/dir"),
            ] {
                let answer = scene.files("GET", &rest, None);
                if answer.status == 200 {
                    read += 1
                } else {
                    refused += 1
                }
                if answer.status == 200 && !rest.starts_with("list") && !rest.starts_with("stat") {
                    assert!(answer.text().contains("inside"), "{rest}: {}", answer.text());
                }
            }
        }
        assert!(read > 0, "the file itself can be read");
        assert!(refused > 0, "the links were met too ({read} answers)");
    });
}

#[test]
fn reading_while_files_are_swapped_never_leaves_a_container() {
    reading("container");
}

#[test]
fn reading_while_files_are_swapped_never_leaves_tier_process() {
    require!(needs_tier("process"));
    reading("process");
}

fn writing(tier: &str) {
    with_swapper(tier, |scene| {
        let mut written = 0;
        for round in 0..ROUNDS {
            let prefix = PREFIXES[round % 2];
            let body = json!({"files": [
                {"path": format!("{prefix}/dir/x"), "content": "inside"},
                {"path": format!("{prefix}/dir/new/y"), "content": "inside"},
                {"path": format!("{prefix}/file"), "content": "inside", "append": round % 3 == 0},
            ]});
            written += usize::from(scene.files("POST", "write", Some(&body)).status == 200);
            written += usize::from(scene.put(&format!("{prefix}/dir/z"), b"inside").status == 200);
            let remove = json!({"path": format!("{prefix}/dir/new"), "recursive": true});
            scene.files("POST", "remove", Some(&remove));
            let remove = json!({"path": format!("{prefix}/dirlink/x")});
            scene.files("POST", "remove", Some(&remove));
        }
        assert!(written > 0, "the directory itself can be written to");
        scene.assert_host_untouched();
        // The whole of it, while it goes on.
        let remove = json!({"path": "race", "recursive": true});
        scene.files("POST", "remove", Some(&remove));
    });
}

#[test]
fn writing_and_removing_while_directories_are_swapped_never_leaves_a_container() {
    writing("container");
}

#[test]
fn writing_and_removing_while_directories_are_swapped_never_leaves_tier_process() {
    require!(needs_tier("process"));
    writing("process");
}

fn copying(tier: &str) {
    with_swapper(tier, |scene| {
        let out = scene.daemon.home().path().join("out");
        for round in 0..6 {
            let from = format!("box:{}", PREFIXES[round % 2]);
            let copied = finish(&mut scene.daemon.isle(&["cp", &from, "out"]));
            let said = String::from_utf8_lossy(&copied.stderr).into_owned();
            // A directory may be gone from under the copy; a file that is not one is skipped.
            assert!(copied.status.success() || said.contains("error["), "{said}");
            let mut open = vec![out.clone()];
            while let Some(directory) = open.pop() {
                for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
                    let kind = entry.file_type().unwrap();
                    assert!(!kind.is_symlink(), "a link was copied: {}", entry.path().display());
                    if kind.is_dir() {
                        open.push(entry.path());
                    } else {
                        let text = std::fs::read_to_string(entry.path()).unwrap();
                        assert_eq!(text, "inside", "{}", entry.path().display());
                    }
                }
            }
            let from = finish(&mut scene.daemon.isle(&["cp", &format!("{from}/file"), "-"]));
            assert!(!String::from_utf8_lossy(&from.stdout).contains(SECRET));
            std::fs::remove_dir_all(&out).ok();
        }
    });
}

#[test]
fn copying_out_while_files_are_swapped_brings_no_link_and_no_secret_of_a_container() {
    copying("container");
}

#[test]
fn copying_out_while_files_are_swapped_brings_no_link_and_no_secret_of_tier_process() {
    require!(needs_tier("process"));
    copying("process");
}

#[test]
fn a_model_that_reads_while_files_are_swapped_sees_no_secret() {
    with_swapper(tiers()[tiers().len() - 1], |scene| {
        let mut child =
            scene.daemon.isle(&["mcp"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let _watch = Watchdog::over(&child);
        let mut stdin = child.stdin.take().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"}});
        let mut ask = |id: usize, method: &str, params: serde_json::Value| {
            writeln!(stdin, "{}", json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
                .unwrap();
            lines.next().unwrap().unwrap()
        };
        ask(0, "initialize", hello);
        let mut read = 0;
        for round in 1..=ROUNDS {
            let path = format!("{}/{}", PREFIXES[round % 2], ["file", "dir/x"][round / 2 % 2]);
            let answer = ask(
                round,
                "tools/call",
                json!({"name": "read_file", "arguments": {"sandbox": "box", "path": path}}),
            );
            assert!(!answer.contains(SECRET), "{answer}");
            read += usize::from(answer.contains("inside"));
            let listed = ask(
                1000 + round,
                "tools/call",
                json!({"name": "list_files", "arguments": {"sandbox": "box", "path": "race", "depth": 2}}),
            );
            assert!(!listed.contains(SECRET), "{listed}");
        }
        assert!(read > 0);
        drop(stdin);
        child.wait().unwrap();
    });
}

#[test]
fn the_race_is_real_a_plain_reader_loses_it() {
    // Proves the attack: who opens by path meets the secret.
    let scene = Scene::new("container");
    let inside = scene.daemon.home().path().join("plain");
    std::fs::create_dir(&inside).unwrap();
    let mut swapper = std::process::Command::new("python3")
        .args(["-c", SWAPPER, scene.host().to_str().unwrap()])
        .current_dir(&inside)
        .spawn()
        .unwrap();
    let _watch = Watchdog::over(&swapper);
    until("the plain reader reads the secret", || {
        std::fs::read_to_string(inside.join("race/file")).is_ok_and(|text| text == SECRET)
    });
    swapper.kill().unwrap();
    swapper.wait().unwrap();
}
