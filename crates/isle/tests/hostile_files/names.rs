//! Names that are commands to a terminal, lines of their own, or no text at all.

use std::os::unix::ffi::OsStrExt;

use serde_json::{Value, json};

use crate::harness::{Case, finish, per_tier};
use crate::scene::Scene;

/// Escape sequences, a new line, a bell, text that turns around, invisible joiners, no UTF-8, quotes.
const NAMES: [&[u8]; 9] = [
    b"red\x1b[31m\x1b]0;title\x07",
    b"two\nlines",
    b"carriage\rreturn",
    "evil\u{202e}txt.exe".as_bytes(),
    "zero\u{200b}width\u{feff}".as_bytes(),
    b"not\xff\xfeutf8",
    b"csi\xc2\x9b31m",
    b"quote\"back\\slash",
    b"--force",
];

fn make(scene: &Scene) {
    let names: Vec<String> = NAMES.iter().map(|name| format!("bytes({:?})", name.to_vec())).collect();
    scene.python(&format!(
        "import os\nos.mkdir('names'); os.chdir('names')\nfor name in [{}]:\n  open(name, 'w').write('inside')\n  os.symlink(name, b'to-' + name)",
        names.join(", ")
    ));
}

/// Nothing that a terminal would obey or that would hide or turn text.
fn assert_harmless(what: &str, bytes: &[u8]) {
    let text = std::str::from_utf8(bytes).unwrap_or_else(|error| panic!("{what} is no text: {error}"));
    let bad = |character: char| {
        character.is_control() && character != '\n'
            || ('\u{202a}'..='\u{202e}').contains(&character)
            || ('\u{2066}'..='\u{2069}').contains(&character)
    };
    assert!(!text.contains(bad), "{what} would reach the terminal as it is: {text:?}");
}

per_tier!(names_are_listed_exactly_in_json_and_written_out_for_people);

fn names_are_listed_exactly_in_json_and_written_out_for_people(Case { tier, .. }: Case) {
    let scene = Scene::new(tier);
    make(&scene);
    let listed: Value = scene.files("GET", "list?path=names", None).json();
    let entries = listed["entries"].as_array().unwrap();
    assert_eq!(entries.len(), 2 * NAMES.len(), "{listed}");
    for name in NAMES {
        let found = entries.iter().any(|entry| match std::str::from_utf8(name) {
            Ok(text) => entry["path"] == text && entry["path_base64"].is_null(),
            Err(_) => {
                entry["path_base64"].is_string() && entry["path"].as_str().unwrap().contains('\u{fffd}')
            }
        });
        assert!(found, "{:?} in {listed}", String::from_utf8_lossy(name));
    }
    // The same through the command line's JSON.
    let shown =
        finish(&mut scene.daemon.isle(&["call", "list_files", r#"{"sandbox": "box", "path": "names"}"#]));
    serde_json::from_slice::<Value>(&shown.stdout).unwrap();
    assert_harmless("the answer of `isle call`", &shown.stdout);

    // Copying tells what it left out.
    let copied = finish(&mut scene.daemon.isle(&["cp", "box:names", "out"]));
    assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
    assert_harmless("what `isle cp` says", &copied.stderr);
    let out = scene.daemon.home().path().join("out");
    assert_eq!(
        std::fs::read_dir(&out).unwrap().count(),
        NAMES.len(),
        "all of them, byte for byte, and none of the links"
    );

    for name in NAMES {
        assert_eq!(std::fs::read(out.join(std::ffi::OsStr::from_bytes(name))).unwrap(), b"inside");
    }

    // Pulled, and pushed back, they are what they were.
    let again = scene.daemon.home().path().join("again");
    let pulled = finish(&mut scene.daemon.isle(&["sync", "pull", "box:names", again.to_str().unwrap()]));
    assert!(pulled.status.success(), "{}", String::from_utf8_lossy(&pulled.stderr));
    assert_harmless("what `isle sync pull` says", &pulled.stderr);
    assert_eq!(std::fs::read_dir(&again).unwrap().count(), NAMES.len());
    let link = again.join(std::ffi::OsStr::from_bytes(b"link\x1b[31m\n\xff"));
    std::os::unix::fs::symlink("nowhere", link).unwrap();
    for arguments in [
        &["sync", "push", again.to_str().unwrap(), "box:pushed"][..],
        &["cp", again.to_str().unwrap(), "box:copied"],
    ] {
        let pushed = finish(&mut scene.daemon.isle(arguments));
        assert!(pushed.status.success(), "{}", String::from_utf8_lossy(&pushed.stderr));
        assert_harmless(&format!("what {arguments:?} says"), &pushed.stderr);
    }
    let compared = "diff -r --no-dereference pushed copied && ls -A pushed | wc -l >/dev/null; find pushed -type f -print0 | tr -cd '\\0' | wc -c";
    assert_eq!(scene.daemon.shell("box", compared).trim(), NAMES.len().to_string(), "{tier}");
    // A file where a directory is due is told by its name, which is written out.
    for name in NAMES {
        let at = again.join(std::ffi::OsStr::from_bytes(name));
        std::fs::remove_file(&at).unwrap();
        std::fs::create_dir(&at).unwrap();
    }
    let refused = finish(&mut scene.daemon.isle(&["sync", "pull", "box:names", again.to_str().unwrap()]));
    assert!(!refused.status.success());
    assert_harmless("a conflict", &refused.stderr);

    // Errors that name a file.
    for name in NAMES.iter().filter_map(|name| std::str::from_utf8(name).ok()) {
        let failed = finish(&mut scene.daemon.isle(&["cp", &format!("box:names/{name}/below"), "nowhere"]));
        assert!(!failed.status.success());
        assert_harmless("an error about a name", &failed.stderr);
    }
}

#[test]
fn commands_and_sandboxes_with_such_words_do_not_reach_the_terminal_either() {
    let scene = Scene::new("container");
    for name in NAMES.iter().filter_map(|name| std::str::from_utf8(name).ok()) {
        scene.daemon.exec("box", json!({"argv": ["true", name]}));
    }
    for arguments in [&["history"][..], &["audit"], &["ls"], &["status", "box"], &["logs", "no\x1b[31msuch"]]
    {
        let shown = finish(&mut scene.daemon.isle(arguments));
        assert_harmless(&format!("the output of {arguments:?}"), &shown.stdout);
        assert_harmless(&format!("the words of {arguments:?}"), &shown.stderr);
    }
    let log = scene.daemon.log();
    assert!(!log.contains('\x1b') && !log.contains('\u{202e}'), "the daemon's log");
}
