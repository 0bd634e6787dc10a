//! Files: written all or none, read in parts, listed in depth.

use serde_json::{Value, json};

use crate::harness::TestDaemon;

fn write(daemon: &TestDaemon, files: Value) -> Value {
    daemon.post("/v1/sandboxes/box/files/write", json!({ "files": files }))
}

#[test]
fn text_and_bytes_are_written_with_parents_and_modes_and_read_back() {
    let daemon = TestDaemon::start();
    let written = write(
        &daemon,
        json!([
            {"path": "a/b/text.txt", "content": "häuser\n"},
            {"path": "/tmp/bytes", "content": "AP8Q", "encoding": "base64", "mode": "600"},
            {"path": "run.sh", "content": "#!/bin/sh\necho ran\n", "mode": "755"},
        ]),
    );
    assert_eq!(written["written"][0], json!({"path": "a/b/text.txt", "size": 8}));
    let text = daemon.get("/v1/sandboxes/box/files/read?path=a/b/text.txt");
    assert_eq!(
        (&text["content"], &text["encoding"], &text["size"]),
        (&json!("häuser\n"), &json!("utf8"), &json!(8))
    );
    let bytes = daemon.get("/v1/sandboxes/box/files/read?path=/tmp/bytes");
    assert_eq!((&bytes["content"], &bytes["encoding"]), (&json!("AP8Q"), &json!("base64")));
    assert_eq!(
        daemon.shell("box", "./run.sh; stat -c '%a %U' /tmp/bytes a/b"),
        "ran\n600 sandbox\n755 sandbox\n"
    );
    write(&daemon, json!([{"path": "a/b/text.txt", "content": "more\n", "append": true}]));
    assert_eq!(daemon.shell("box", "cat a/b/text.txt"), "häuser\nmore\n");
    write(&daemon, json!({"map.txt": "as an object"}));
    assert_eq!(daemon.shell("box", "cat map.txt"), "as an object");
}

#[test]
fn many_files_are_written_all_or_none() {
    let daemon = TestDaemon::start();
    write(&daemon, json!([{"path": "kept", "content": "before"}]));
    daemon.shell("box", "mkdir taken; ln -s /etc out");
    let cases = [
        (
            json!([{"path": "new/one", "content": "1"}, {"path": "kept", "content": "2"}, {"path": "taken", "content": "x"}]),
            "IS_DIRECTORY",
        ),
        (
            json!([{"path": "new/one", "content": "1"}, {"path": "kept", "content": "2"}, {"path": "out/x", "content": "x"}]),
            "INVALID_PATH",
        ),
        (
            json!([{"path": "new/one", "content": "1"}, {"path": "kept/below", "content": "x"}]),
            "NOT_DIRECTORY",
        ),
        (
            json!([{"path": "new/one", "content": "1"}, {"path": "kept", "content": "2"}, {"path": "/usr/x", "content": "x"}]),
            "",
        ),
        (json!([{"path": "new/one", "content": "1"}, {"path": "../x", "content": "x"}]), "INVALID_PATH"),
        (
            json!([{"path": "new/one", "content": "1"}, {"path": "b", "content": "?", "encoding": "base64"}]),
            "INVALID_ARGUMENT",
        ),
        (
            json!([{"path": "new/one", "content": "1"}, {"path": "b", "content": "x", "mode": "999"}]),
            "INVALID_ARGUMENT",
        ),
        (
            json!([{"path": "new/one", "content": "1"}, {"path": "new/one", "content": "2"}]),
            "INVALID_ARGUMENT",
        ),
        (json!([]), "INVALID_ARGUMENT"),
    ];
    for (files, code) in cases {
        let body = json!({ "files": files });
        let error = daemon.refused("POST", "/v1/sandboxes/box/files/write", Some(&body));
        if !code.is_empty() {
            assert_eq!(error["code"], code, "{body}: {error}");
        }
        assert_eq!(
            daemon.shell("box", "find . -mindepth 1 | sort; cat kept"),
            "./kept\n./out\n./taken\nbefore",
            "nothing may have changed after {body}"
        );
    }
}

#[test]
fn a_file_is_read_in_parts_to_the_very_byte() {
    let daemon = TestDaemon::start();
    daemon.shell("box", "seq 1 20000 > numbers");
    let all: String = (1..=20_000).map(|number| format!("{number}\n")).collect();
    let (mut text, mut offset) = (String::new(), 0);
    loop {
        let part =
            daemon.get(&format!("/v1/sandboxes/box/files/read?path=numbers&offset={offset}&limit=9999"));
        assert_eq!((&part["offset"], &part["size"]), (&json!(offset), &json!(all.len())));
        text.push_str(part["content"].as_str().unwrap());
        match part["next_offset"].as_u64() {
            Some(next) => offset = next,
            None => break,
        }
    }
    assert_eq!(text, all);
    let beyond = daemon.get("/v1/sandboxes/box/files/read?path=numbers&offset=99999999");
    assert_eq!((&beyond["content"], &beyond["next_offset"]), (&json!(""), &json!(null)));
    let kernel = daemon.get("/v1/sandboxes/box/files/read?path=/proc/self/comm");
    assert!(!kernel["content"].as_str().unwrap().is_empty(), "files without a size hold something too");
    let wrong = daemon.refused("GET", "/v1/sandboxes/box/files/read?path=/proc/self/comm&limit=0", None);
    assert_eq!(wrong["code"], "INVALID_ARGUMENT");
    daemon.shell("box", "printf '\\377' > binary");
    let wrong = daemon.refused("GET", "/v1/sandboxes/box/files/read?path=binary&encoding=utf8", None);
    assert_eq!(wrong["code"], "INVALID_ARGUMENT");
}

#[test]
fn directories_are_listed_as_deep_as_asked() {
    let daemon = TestDaemon::start();
    daemon.shell("box", "mkdir -p a/b/c; echo 1 > a/one; ln -s one a/link; mkfifo a/pipe; touch a/b/c/deep");
    let list = |query: &str| {
        let listing = daemon.get(&format!("/v1/sandboxes/box/files/list{query}"));
        let mut paths: Vec<String> = listing["entries"]
            .as_array()
            .unwrap()
            .iter()
            .map(|entry| format!("{}:{}", entry["path"].as_str().unwrap(), entry["kind"].as_str().unwrap()))
            .collect();
        paths.sort();
        (paths, listing["truncated"].as_bool().unwrap())
    };
    assert_eq!(list("").0, ["a:directory"]);
    assert_eq!(list("?path=a").0, ["b:directory", "link:symlink", "one:file", "pipe:other"]);
    assert_eq!(list("?path=/workspace/a&depth=2").0.len(), 5);
    assert!(list("?depth=32").0.contains(&"a/b/c/deep:file".to_owned()));
    let (few, truncated) = list("?path=a&limit=2");
    assert_eq!((few.len(), truncated), (2, true));
    for query in ["?depth=0", "?depth=33", "?limit=0", "?limit=10001"] {
        let error = daemon.refused("GET", &format!("/v1/sandboxes/box/files/list{query}"), None);
        assert_eq!(error["code"], "INVALID_ARGUMENT", "{query}");
    }
    let facts = daemon.get("/v1/sandboxes/box/files/stat?path=a/one");
    assert_eq!((&facts["kind"], &facts["size"], &facts["uid"]), (&json!("file"), &json!(2), &json!(1000)));
    daemon.post("/v1/sandboxes/box/files/remove", json!({"path": "a", "recursive": true}));
    assert!(list("").0.is_empty());
}

#[test]
fn files_larger_than_the_json_doors_allow_are_refused_whole() {
    let daemon = TestDaemon::start_with(&[("ISLE_FILE_CAP", "64K")]);
    let body = json!({"files": [{"path": "a", "content": "x".repeat(40_000)}, {"path": "b", "content": "x".repeat(40_000)}]});
    let error = daemon.refused("POST", "/v1/sandboxes/box/files/write", Some(&body));
    assert_eq!(error["code"], "TOO_LARGE");
    assert!(daemon.names().is_empty(), "refused before a sandbox was made");
    daemon.shell("box", "head -c 100000 /dev/zero > big");
    let page = daemon.get("/v1/sandboxes/box/files/read?path=big");
    assert!(page["next_offset"].as_u64().unwrap() <= 65_536, "a larger file comes in pages");
}
