//! What is no file, or only pretends to be one: pipes, sockets, devices, holes of a terabyte, trees too
//! deep for a path, directories too large for a screen, files that grow while they are read.

use serde_json::json;

use crate::harness::http::try_unix;
use crate::harness::{Case, finish, per_tier, until};
use crate::scene::{Scene, quoted};

const TRAPS: &str = r#"
import os, socket, sys
os.mkfifo("pipe")
if sys.argv[1] == "container":
    s = socket.socket(socket.AF_UNIX); s.bind("socket"); s.close()
    with open("giant", "wb") as f: f.truncate(1 << 40)
os.mkdir("many")
for i in range(int(sys.argv[2])): open("many/%04d" % i, "w").close()
os.mkdir("deep")
top = os.getcwd()
os.chdir("deep")
for i in range(1200):
    os.mkdir("d" * 8); os.chdir("d" * 8)
with open("bottom", "w") as f: f.write("bottom")
os.chdir(top)
with open("good", "w") as f: f.write("good")
"#;

/// Each is a call of its own to whoever copies them, so tier `process` has fewer.
fn many(tier: &str) -> usize {
    if tier == "container" { 5000 } else { 800 }
}

fn traps(tier: &str) -> Scene {
    let scene = Scene::new(tier);
    let many = many(tier).to_string();
    let run = scene.daemon.exec("box", json!({"argv": ["python3", "-c", TRAPS, tier, many]}));
    assert_eq!(run["state"], "completed", "{run}");
    scene
}

fn codes(scene: &Scene, path: &str) -> Vec<String> {
    let quoted = quoted(path.as_bytes());
    let body = json!({"files": [{"path": path, "content": "x", "append": true}]});
    [
        scene.files("GET", &format!("read?path={quoted}"), None),
        scene.files("GET", &format!("content?path={quoted}"), None),
        scene.files("POST", "write", Some(&body)),
        scene.put(path, b"x"),
    ]
    .iter()
    .map(|answer| if answer.status == 200 { "OK".to_owned() } else { answer.code() })
    .collect()
}

per_tier!(what_is_no_file_is_told_and_nobody_waits_for_it);

fn what_is_no_file_is_told_and_nobody_waits_for_it(Case { tier, .. }: Case) {
    let scene = traps(tier);
    assert_eq!(codes(&scene, "pipe"), ["NOT_REGULAR"; 4]);
    assert_eq!(codes(&scene, "/workspace/pipe"), ["NOT_REGULAR"; 4]);
    if tier == "container" {
        assert_eq!(codes(&scene, "socket"), ["NOT_REGULAR"; 4]);
    }
    for device in ["/dev/zero", "/dev/full", "/dev/tty", "/dev/ptmx"] {
        for code in codes(&scene, device) {
            assert!(
                ["NOT_REGULAR", "PERMISSION_DENIED", "INVALID_PATH"].contains(&code.as_str()),
                "{tier} {device}: {code}"
            );
        }
    }
    // The agent has served all of it and goes on.
    assert_eq!(scene.daemon.shell("box", "cat good"), "good");
}

per_tier!(a_whole_workspace_of_traps_is_copied_listed_and_removed);

fn a_whole_workspace_of_traps_is_copied_listed_and_removed(Case { tier, .. }: Case) {
    let scene = traps(tier);
    let copied = finish(&mut scene.daemon.isle(&["--json", "cp", "box:.", "out"]));
    let said = String::from_utf8_lossy(&copied.stderr).into_owned();
    assert!(copied.status.success(), "{tier}: {said}");
    let told: serde_json::Value = serde_json::from_slice(&copied.stdout).unwrap();
    let skipped = told["skipped"].as_array().unwrap();
    assert!(skipped.contains(&json!("pipe")), "{told}");
    assert_eq!(skipped.contains(&json!("giant")), tier == "container", "{told}");
    let out = scene.daemon.home().path().join("out");
    assert_eq!(std::fs::read_to_string(out.join("good")).unwrap(), "good");
    assert_eq!(std::fs::read_dir(out.join("many")).unwrap().count(), many(tier));
    assert!(!out.join("giant").exists());
    finish(std::process::Command::new("rm").args(["-rf", "--"]).arg(&out));

    let listed = scene.files("GET", "list?depth=32&limit=10000", None).json();
    assert!(listed["entries"].as_array().unwrap().len() > many(tier), "{}", listed["truncated"]);
    let few = scene.files("GET", "list?path=many&limit=100", None).json();
    assert_eq!((few["entries"].as_array().unwrap().len(), &few["truncated"]), (100, &json!(true)));
    for path in ["deep", "many", "pipe"] {
        let removed = scene.files("POST", "remove", Some(&json!({"path": path, "recursive": true})));
        assert_eq!(removed.status, 200, "{tier} {path}: {}", removed.text());
    }
    let left = scene.daemon.shell("box", "ls -A");
    assert!(!left.contains("deep") && !left.contains("many") && !left.contains("pipe"), "{left}");
}

per_tier!(a_tree_too_deep_for_any_path_is_wiped_with_its_sandbox);

fn a_tree_too_deep_for_any_path_is_wiped_with_its_sandbox(Case { tier, .. }: Case) {
    let scene = Scene::new(tier);
    // Ten times the longest path.
    let depth = if tier == "container" { 4000 } else { 210 };
    scene.python(&format!("import os\nfor i in range({depth}):\n  os.mkdir('d'*200); os.chdir('d'*200)"));
    // Measuring looks at all of it, too.
    scene.daemon.get("/v1/status?sandbox=box");
    scene.daemon.succeeds(&["rm", "box", "--wipe"]);
    assert_eq!(scene.daemon.shell("box", "ls -A"), "");
}

#[test]
fn a_hole_of_a_terabyte_is_read_in_parts_and_refused_whole() {
    let scene = traps("container");
    let part = scene.files("GET", "read?path=giant&offset=1000000000000&limit=10", None).json();
    assert_eq!(
        (&part["size"], &part["next_offset"]),
        (&json!(1u64 << 40), &json!(1_000_000_000_010u64)),
        "{part}"
    );
    assert_eq!(scene.files("GET", "content?path=giant", None).code(), "TOO_LARGE");
    let said = finish(&mut scene.daemon.isle(&["cp", "box:giant", "out"]));
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.contains("TOO_LARGE") && said.contains("tar"), "{said}");
    // Appending must not fill the hole.
    let body = json!({"files": [{"path": "giant", "content": "end", "append": true}]});
    assert_eq!(scene.files("POST", "write", Some(&body)).status, 200);
    let facts = scene.daemon.shell("box", "stat -c %s giant; tail -c 3 giant; du -k giant | cut -f1");
    let lines: Vec<&str> = facts.lines().collect();
    assert_eq!(lines[0], ((1u64 << 40) + 3).to_string());
    assert!(facts.contains("end") && !facts.ends_with("M\n"), "{facts}");
}

per_tier!(a_file_that_grows_while_it_is_read_ends_where_it_ended_when_it_was_opened);

fn a_file_that_grows_while_it_is_read_ends_where_it_ended_when_it_was_opened(Case { tier, .. }: Case) {
    let scene = Scene::new(tier);
    // Grows by appending, and shrinks behind the reader so that no disk limit ever ends it.
    let run = scene.start(json!([
        "python3",
        "-c",
        "
import os
f = open('log', 'wb', buffering=0)
block = b'x' * 65536
f.write(block)
open('ready', 'w').close()
while True:
    f.write(block)
    if os.fstat(f.fileno()).st_size > 256 << 20: os.ftruncate(f.fileno(), 65536); f.seek(65536)
"
    ]));
    until("it grows", || scene.files("GET", "stat?path=ready", None).status == 200);
    for _ in 0..5 {
        let line = format!("GET /v1/sandboxes/box/files/content?path={}", quoted(b"log"));
        let got = try_unix(&scene.daemon.socket(), &line, &[], b"");
        // A file that shrank meanwhile breaks off: fewer bytes than were promised are an error.
        if let Ok(answer) = got {
            assert!(answer.body.len() <= 260 << 20, "{}", answer.body.len());
        }
    }
    scene.kill(&run);
}
