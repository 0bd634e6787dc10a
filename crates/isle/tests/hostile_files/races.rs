//! Whole trees on their way in and out while the guest exchanges what is in them as fast as it can: files
//! for links, pipes and holes of a terabyte, directories for links, and two directories for each other so
//! that a walk meets the same tree again and again. Every call ends, no byte of the host comes in or out,
//! and nothing is written outside the destination.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Output;
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{Case, finish, per_tier, tiers, until};
use crate::scene::{SECRET, Scene};

/// Exchanges pairs for ever: a file with a link to the secret, a file with a pipe, a file with a second name
/// of another file, a directory with a link to the secret's directory. Where the host's file can be linked
/// to under a second name, that is one of them too.
const SWAPPER: &str = r#"
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
host = sys.argv[1].encode()
os.makedirs("race/dir/below")
for name in ("file", "plain", "one", "two", "dir/x", "dir/below/y", "still"):
    with open("race/" + name, "w") as f: f.write("inside")
os.chdir("race")
os.symlink(host + b"/x", "link")
os.symlink(host, "dirlink")
os.mkfifo("pipe")
os.link("two", "second")
try: os.link(host + b"/x", "hard")
except OSError: os.symlink(host + b"/x", "hard")
open("../ready", "w").close()
pairs = [(b"file", b"link"), (b"plain", b"pipe"), (b"one", b"hard"), (b"two", b"second"), (b"dir", b"dirlink")]
while True:
    for a, b in pairs: libc.renameat2(-100, a, -100, b, 2)
"#;

/// Exchanges small files with files that are one hole of a terabyte.
const HOLES: &str = r#"
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
os.mkdir("race"); os.chdir("race")
pairs = []
for i in range(48):
    a, b = b"small%02d" % i, b"tall%02d" % i
    with open(a, "w") as f: f.write("inside")
    with open(b, "w") as f: f.truncate(1 << 40)
    pairs.append((a, b))
open("../ready", "w").close()
while True:
    for a, b in pairs: libc.renameat2(-100, a, -100, b, 2)
"#;

/// Ninety levels with two names each, one of which holds all the rest. As soon as that one is opened the two
/// are exchanged, so that a walk finds all of it again below the other: there are 2^90 ways down.
const MAZE: &str = r#"
import ctypes, os, struct
libc = ctypes.CDLL(None, use_errno=True)
os.mkdir("race")
with open("race/first", "w") as f: f.write("inside")
os.mkdir("race/maze"); os.chdir("race/maze")
IN_OPEN, IN_ONLYDIR, EXCHANGE = 0x20, 0x01000000, 2
opened = libc.inotify_init()
levels, full = {}, {}
for i in range(90):
    os.mkdir("0"); os.mkdir("1")
    watch = libc.inotify_add_watch(opened, b".", IN_OPEN | IN_ONLYDIR)
    levels[watch], full[watch] = os.open(".", os.O_RDONLY), b"0"
    os.chdir("0")
    # So many that the way through the lowest level that is looked at takes longer than an exchange.
    if i in (28, 89):
        for link in range(2000): os.symlink("x", "a%04d" % link)
os.fchdir(next(iter(levels.values())))
open("../../ready", "w").close()
while True:
    events = os.read(opened, 65536)
    while events:
        watch, mask, _, length = struct.unpack_from("iIII", events)
        name = events[16:16 + length].rstrip(b"\0")
        events = events[16 + length:]
        if watch in levels and name == full[watch]:
            libc.renameat2(levels[watch], b"0", levels[watch], b"1", EXCHANGE)
            full[watch] = b"1" if name == b"0" else b"0"
"#;

/// A daemon that may write below `root`, a sandbox, and a program that races in it.
fn racing(tier: &str, program: &str, attack: impl FnOnce(&Scene)) {
    let scene = Scene::with_root(tier);
    // A path as an argument would be translated in tier `process`; as a part of a word it is not.
    let place = format!("/.{}", scene.host().display());
    let run = scene.start(json!(["python3", "-c", program, place]));
    until("the race has begun", || scene.files("GET", "stat?path=ready", None).status == 200);
    attack(&scene);
    scene.kill(&run);
    scene.assert_host_untouched();
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A command that ended by itself: with what it was asked for, or with an error of ours.
fn ended(output: &Output) -> bool {
    let said = text(&output.stderr);
    assert!(output.status.code().is_some(), "it had to be killed: {said}");
    assert!(output.status.success() || said.contains("error["), "{said}");
    assert!(!said.contains("panicked") && !said.contains(SECRET), "{said}");
    output.status.success()
}

/// Only files with what the guest wrote, and directories; how many files.
fn only_what_is_inside(top: &Path) -> usize {
    let mut files = 0;
    let mut open = vec![top.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                open.push(entry.path());
            } else {
                assert!(kind.is_file(), "{} is {kind:?}", entry.path().display());
                assert_eq!(std::fs::read_to_string(entry.path()).unwrap(), "inside", "{:?}", entry.path());
                files += 1;
            }
        }
    }
    files
}

/// The first bytes of an answer, up to its end or to so many; an answer that pauses for long has failed.
fn answer(scene: &Scene, method: &str, rest: &str, most: usize) -> Vec<u8> {
    let mut stream = UnixStream::connect(scene.daemon.socket()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    write!(
        stream,
        "{method} /v1/sandboxes/box/files/{rest} HTTP/1.1\r\nHost: isle\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut bytes = Vec::new();
    let mut piece = vec![0; 1 << 20];
    while bytes.len() <= most {
        match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => bytes.extend_from_slice(&piece[..count]),
            Err(error) => panic!("{method} {rest}: nothing came after {} bytes: {error}", bytes.len()),
        }
    }
    assert!(bytes.len() <= most, "{method} {rest} sends more than {most} bytes");
    assert!(!bytes.windows(SECRET.len()).any(|window| window == SECRET.as_bytes()), "{method} {rest}");
    bytes
}

/// Every way a tree leaves a sandbox, once; how many of them brought something.
fn pull_every_way(scene: &Scene) -> usize {
    let out = scene.root().join("out");
    let at = out.to_str().unwrap().to_owned();
    let mut brought = 0;
    for arguments in [
        &["cp", "box:race", &at][..],
        &["cp", "box:/workspace/race", &at],
        &["sync", "pull", "box:race", &at],
        &["sync", "pull", "box:race", &at, "--delete"],
    ] {
        let done = ended(&finish(&mut scene.daemon.isle(arguments)));
        brought += usize::from(only_what_is_inside(&out) > 0 && done);
        std::fs::remove_dir_all(&out).ok();
    }
    for (route, body) in [
        ("files/copy_out", json!({"path": "race", "host_path": at, "replace": true})),
        ("sync/pull", json!({"path": "race", "host_path": at})),
    ] {
        let answer = scene.daemon.http("POST", &format!("/v1/sandboxes/box/{route}"), Some(&body));
        assert!(answer.status < 500 && !answer.text().contains(SECRET), "{route}: {}", answer.text());
        brought += usize::from(only_what_is_inside(&out) > 0 && answer.status == 200);
        std::fs::remove_dir_all(&out).ok();
    }
    let archive = answer(scene, "GET", "tree?path=race", 8 << 20);
    brought += usize::from(archive.windows(6).any(|window| window == b"inside"));
    answer(scene, "GET", "manifest?path=race", 8 << 20);
    brought
}

per_tier!(pulling_while_entries_are_swapped_brings_only_files_of_the_guest);

fn pulling_while_entries_are_swapped_brings_only_files_of_the_guest(Case { tier, .. }: Case) {
    racing(tier, SWAPPER, |scene| {
        let brought: usize = (0..4).map(|_| pull_every_way(scene)).sum();
        assert!(brought > 4, "{tier}: what is not swapped is brought ({brought})");
    });
}

per_tier!(pushing_while_directories_are_swapped_never_leaves_the_sandbox);

fn pushing_while_directories_are_swapped_never_leaves_the_sandbox(Case { tier, .. }: Case) {
    racing(tier, SWAPPER, |scene| {
        let from = scene.root().join("from");
        std::fs::create_dir_all(from.join("below")).unwrap();
        for name in ["x", "new", "below/y"] {
            std::fs::write(from.join(name), "pushed").unwrap();
        }
        // Links of the host are not followed into the sandbox either.
        std::os::unix::fs::symlink(scene.host(), from.join("outside")).unwrap();
        std::os::unix::fs::symlink(scene.host().join("x"), from.join("linked")).unwrap();
        let at = from.to_str().unwrap();
        let mut pushed = 0;
        for _ in 0..6 {
            for arguments in [
                &["cp", at, "box:race/dir/tree"][..],
                &["cp", &format!("{at}/x"), "box:race/dir/x"],
                &["cp", &format!("{at}/x"), "box:race/file"],
                &["sync", "push", at, "box:race/dir"],
                &["sync", "push", at, "box:race/dir", "--delete"],
            ] {
                pushed += usize::from(ended(&finish(&mut scene.daemon.isle(arguments))));
                scene.assert_host_untouched();
            }
            for (route, body) in [
                ("files/copy_in", json!({"host_path": at, "path": "race/dir/copied"})),
                ("sync/push", json!({"host_path": at, "path": "race/dir"})),
            ] {
                let path = format!("/v1/sandboxes/box/{route}");
                let answer = scene.daemon.http("POST", &path, Some(&body));
                assert!(answer.status < 500, "{route}: {}", answer.text());
                pushed += usize::from(answer.status == 200);
                scene.assert_host_untouched();
            }
        }
        assert!(pushed > 4, "{tier}: the directory itself is pushed to ({pushed})");
        let came = scene.daemon.shell("box", &format!("grep -r '{SECRET}' /workspace/ || echo none"));
        assert_eq!(came, "none\n", "{tier}: the host's links were followed");
    });
}

#[test]
fn a_file_swapped_for_a_hole_of_a_terabyte_is_not_read_to_its_end() {
    racing("container", HOLES, |scene| {
        for _ in 0..6 {
            // Errors are fine, and so is a file without what it held a moment ago.
            let archive = answer(scene, "GET", "tree?path=race", 8 << 20);
            assert!(!archive.is_empty());
            let told = answer(scene, "GET", "manifest?path=race", 8 << 20);
            assert!(text(&told).contains("small00"), "{}", text(&told));
            let out = scene.root().join("out");
            for arguments in [
                &["cp", "box:race", out.to_str().unwrap()][..],
                &["sync", "pull", "box:race", out.to_str().unwrap()],
            ] {
                ended(&finish(&mut scene.daemon.isle(arguments)));
                std::fs::remove_dir_all(&out).ok();
            }
        }
    });
}

#[test]
fn a_tree_that_grows_while_it_is_walked_is_walked_to_a_bound() {
    // A million entries take their time: in one tier, whose files the daemon itself counts where there is it.
    if let Some(&tier) = tiers().last() {
        racing(tier, MAZE, |scene| {
            assert_eq!(scene.files("GET", "read?path=race/first", None).json()["content"], "inside");
            // Whichever way it is walked, it ends, and the agent serves others meanwhile.
            scene.files("GET", "list?path=race&depth=32&glob=no-such-name", None);
            scene.files("GET", "list?path=race&depth=32&limit=10000", None);
            let searched = scene.files("GET", "search?path=race&pattern=inside&timeout=1s", None);
            assert!(searched.text().contains("first"), "{tier}: {}", searched.text());
            let told = answer(scene, "GET", "manifest?path=race", 1 << 30);
            let is_whole = text(&told).contains("first");
            assert!(is_whole || text(&told).contains("TOO_LARGE"), "{tier}: {} bytes", told.len());
            let looked = scene.daemon.http("GET", "/v1/status?sandbox=box", None);
            assert_eq!(looked.status, 200, "{tier}: {}", looked.text());
            assert_eq!(scene.daemon.shell("box", "cat race/first"), "inside");
        });
    }
}

/// Appends for ever, and begins again before the disk limit.
const GROWING: &str = r#"
import os
os.mkdir("race")
f = open("race/log", "wb", buffering=0)
with open("race/still", "w") as s: s.write("inside")
block = b"x" * 65536
f.write(block)
open("ready", "w").close()
while True:
    f.write(block)
    if os.fstat(f.fileno()).st_size > 32 << 20: os.ftruncate(f.fileno(), 65536); f.seek(65536)
"#;

per_tier!(a_tree_with_a_file_that_grows_without_end_is_pulled);

fn a_tree_with_a_file_that_grows_without_end_is_pulled(Case { tier, .. }: Case) {
    racing(tier, GROWING, |scene| {
        let out = scene.root().join("out");
        let at = out.to_str().unwrap();
        for arguments in
            [&["cp", "box:race", at][..], &["sync", "pull", "box:race", at], &["cp", "box:race/log", at]]
        {
            let done = ended(&finish(&mut scene.daemon.isle(arguments)));
            if arguments[1] != "box:race/log" && done {
                assert_eq!(std::fs::read_to_string(out.join("still")).unwrap(), "inside");
            }
            finish(std::process::Command::new("rm").args(["-rf", "--", at]));
        }
        answer(scene, "GET", "tree?path=race", 48 << 20);
    });
}

/// What stands outside, and must stay as it is.
fn outside(scene: &Scene) {
    scene.assert_host_untouched();
    assert!(!scene.root().join("dangling").exists());
}

fn plant(scene: &Scene, out: &Path) {
    use std::os::unix::fs::symlink;
    std::fs::create_dir_all(out.join("sub")).unwrap();
    for (target, link) in [
        (scene.host().to_owned(), "directory"),
        (scene.host().join("x"), "file"),
        (scene.host().join("x"), "sub/file"),
        (scene.root().join("dangling"), "sub/dangling"),
        (scene.host().to_owned(), ".isle-unpack-00112233445566778899aabb"),
    ] {
        symlink(target, out.join(link)).unwrap();
    }
}

#[test]
fn a_pull_never_writes_through_links_at_its_destination() {
    let scene = Scene::with_root("container");
    scene.daemon.shell(
        "box",
        "mkdir -p t/sub t/directory t/deep; for f in file sub/file sub/dangling fine deep/x; do printf stolen > t/$f; done",
    );
    // With the directory that is a link on the host, and without it.
    for step in ["with", "without"] {
        if step == "without" {
            scene.daemon.shell("box", "printf stolen > t/directory/x; rm -r t/directory");
        } else {
            scene.daemon.shell("box", "printf stolen > t/directory/x");
        }
        for (number, way) in ["cp", "pull", "delete", "copy_out", "sync_pull", "cp-file"].iter().enumerate() {
            let out = scene.root().join(format!("out-{step}-{number}"));
            plant(&scene, &out);
            let at = out.to_str().unwrap().to_owned();
            let answer = match *way {
                // As with `cp`, an existing directory receives it under its own name.
                "cp" => {
                    std::fs::rename(&out, out.with_extension("moved")).unwrap();
                    std::fs::create_dir(&out).unwrap();
                    std::fs::rename(out.with_extension("moved"), out.join("t")).unwrap();
                    ended(&finish(&mut scene.daemon.isle(&["cp", "box:t", &at])))
                }
                "pull" => ended(&finish(&mut scene.daemon.isle(&["sync", "pull", "box:t", &at]))),
                "delete" => {
                    ended(&finish(&mut scene.daemon.isle(&["sync", "pull", "box:t", &at, "--delete"])))
                }
                "copy_out" | "sync_pull" => {
                    let (route, body) = if *way == "copy_out" {
                        ("files/copy_out", json!({"path": "t", "host_path": at, "replace": true}))
                    } else {
                        ("sync/pull", json!({"path": "t", "host_path": at, "delete": true}))
                    };
                    let answer =
                        scene.daemon.http("POST", &format!("/v1/sandboxes/box/{route}"), Some(&body));
                    assert!(answer.status < 500, "{way}: {}", answer.text());
                    answer.status == 200
                }
                _ => {
                    let done = ["file", "sub/file", "sub/dangling"].map(|name| {
                        let to = out.join(name);
                        ended(&finish(&mut scene.daemon.isle(&[
                            "cp",
                            &format!("box:t/{name}"),
                            to.to_str().unwrap(),
                        ])))
                    });
                    let fine = out.join("fine");
                    done.iter().any(|&done| done)
                        && ended(&finish(&mut scene.daemon.isle(&[
                            "cp",
                            "box:t/fine",
                            fine.to_str().unwrap(),
                        ])))
                }
            };
            outside(&scene);
            // Whatever came is a file of its own now, or nothing came at all.
            let top = if *way == "cp" { out.join("t") } else { out };
            let fine = std::fs::read_to_string(top.join("fine")).ok();
            assert_eq!(fine.is_some(), answer, "{step} {way}");
            if answer && *way != "cp-file" {
                for name in ["file", "sub/file"] {
                    let known = std::fs::symlink_metadata(top.join(name)).unwrap();
                    assert!(known.is_file(), "{step} {way}: {name} is still a link");
                }
            }
        }
    }
    // Where nothing is planted, all of it comes.
    let out = scene.root().join("plain");
    scene.daemon.succeeds(&["sync", "pull", "box:t", out.to_str().unwrap()]);
    assert_eq!(std::fs::read_to_string(out.join("deep/x")).unwrap(), "stolen");
    let _: Value = scene.daemon.get("/v1/status");
}

per_tier!(a_file_with_many_names_is_not_read_more_often_than_the_disk_is_large);

fn a_file_with_many_names_is_not_read_more_often_than_the_disk_is_large(Case { tier, .. }: Case) {
    let scene = Scene::new(tier);
    scene.daemon.post("/v1/sandboxes", json!({"sandbox": "small", "tier": tier, "disk": "64M"}));
    let make = "mkdir t few; head -c 8388608 /dev/zero > t/0; for i in $(seq 24); do ln t/0 t/$i; done; ln t/0 few/0; ln t/0 few/1";
    scene.daemon.shell("small", make);
    let told = scene.daemon.http("GET", "/v1/sandboxes/small/files/manifest?path=t", None);
    assert_eq!(told.code(), "TOO_LARGE", "{tier}: {}", told.text());
    let out = scene.daemon.home().path().join("out");
    let pulled = finish(&mut scene.daemon.isle(&["sync", "pull", "small:t", out.to_str().unwrap()]));
    assert!(text(&pulled.stderr).contains("TOO_LARGE"), "{tier}: {}", text(&pulled.stderr));
    // As often as fits is fine.
    scene.daemon.succeeds(&["sync", "pull", "small:few", out.to_str().unwrap()]);
    assert_eq!(std::fs::metadata(out.join("1")).unwrap().len(), 8 << 20);
}
