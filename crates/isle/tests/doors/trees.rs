//! Trees between host and sandbox: by operation below the host roots, and as archives.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::file_work::in_each_tier;
use crate::harness::http::unix_raw;
use crate::harness::{TestDaemon, finish};
use crate::mcp::Client;

/// A daemon that may use a directory of the host.
pub(crate) fn with_root(settings: &[(&str, &str)]) -> (TestDaemon, TempDir) {
    let root = tempfile::Builder::new().prefix("isle-test-root-").tempdir().unwrap();
    let mut all = vec![("ISLE_HOST_ROOTS", root.path().to_str().unwrap())];
    all.extend_from_slice(settings);
    (TestDaemon::start_with(&all), root)
}

fn write(at: &Path, text: &str) {
    std::fs::create_dir_all(at.parent().unwrap()).unwrap();
    std::fs::write(at, text).unwrap();
}

#[test]
fn trees_and_files_are_copied_in_and_out_below_the_host_roots() {
    let (daemon, root) = with_root(&[]);
    let at = |name: &str| root.path().join(name);
    write(&at("tree/a.txt"), "a");
    write(&at("tree/sub/run.sh"), "#!/bin/sh\necho ran\n");
    std::fs::set_permissions(at("tree/sub/run.sh"), std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::create_dir_all(at("tree/empty")).unwrap();
    symlink("/etc/passwd", at("tree/link")).unwrap();
    in_each_tier(&daemon, |name| {
        let copy = |what: &str, body: Value| daemon.post(&format!("/v1/sandboxes/{name}/files/{what}"), body);
        let carried = copy("copy_in", json!({"host_path": at("tree")}));
        assert_eq!(
            (&carried["files"], &carried["directories"], &carried["bytes"], &carried["skipped_count"]),
            (&json!(2), &json!(2), &json!(20), &json!(1)),
            "{carried}"
        );
        assert_eq!(carried["skipped"][0]["path"], "link");
        assert_eq!(
            daemon.shell(name, "./tree/sub/run.sh; find tree | sort | tr '\\n' ' '"),
            "ran\ntree tree/a.txt tree/empty tree/sub tree/sub/run.sh "
        );
        copy("copy_in", json!({"host_path": at("tree/a.txt"), "path": "deep/er/b.txt"}));
        assert_eq!(
            daemon.shell(name, "cat deep/er/b.txt; touch tree/new; ln -s / tree/out; rm tree/a.txt"),
            "a"
        );
        let out = at(&format!("out-{name}"));
        let carried = copy("copy_out", json!({"path": "tree", "host_path": out}));
        assert_eq!(
            (&carried["files"], &carried["skipped"][0]["path"]),
            (&json!(2), &json!("out")),
            "{carried}"
        );
        assert!(out.join("empty").is_dir() && out.join("new").is_file() && !out.join("out").exists());
        assert_eq!(out.join("sub/run.sh").metadata().unwrap().permissions().mode() & 0o777, 0o755);
        let file = at(&format!("file-{name}"));
        copy("copy_out", json!({"path": "tree/sub/run.sh", "host_path": file}));
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "#!/bin/sh\necho ran\n");
        // A second time only by those who say so, and then what is there besides stays.
        std::fs::write(out.join("kept"), "kept").unwrap();
        for (path, to) in [("tree", &out), ("tree/new", &file)] {
            let body = json!({"path": path, "host_path": to});
            let error = daemon.refused("POST", &format!("/v1/sandboxes/{name}/files/copy_out"), Some(&body));
            assert_eq!(error["code"], "FILE_EXISTS", "{error}");
            copy("copy_out", json!({"path": path, "host_path": to, "replace": true}));
        }
        assert!(out.join("kept").is_file() && std::fs::read(&file).unwrap().is_empty());
    });
    let drafts = std::fs::read_dir(root.path())
        .unwrap()
        .filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().starts_with(".isle-"));
    assert_eq!(drafts.count(), 0);
}

#[test]
fn nothing_of_the_host_is_reached_that_is_not_below_a_root() {
    let (daemon, root) = with_root(&[]);
    let outside = tempfile::Builder::new().prefix("isle-test-outside-").tempdir().unwrap();
    write(&outside.path().join("secret"), "s");
    write(&root.path().join("file"), "f");
    symlink(outside.path(), root.path().join("out")).unwrap();
    symlink("../..", root.path().join("up")).unwrap();
    daemon.shell("box", "mkdir d; echo x > d/x");
    let at = |name: &str| root.path().join(name).to_str().unwrap().to_owned();
    let cases = [
        (outside.path().join("secret").to_str().unwrap().to_owned(), "HOST_PATH_REFUSED"),
        (at("out/secret"), "HOST_PATH_REFUSED"),
        (at("up/etc"), "HOST_PATH_REFUSED"),
        (at("../x"), "INVALID_PATH"),
        ("relative".to_owned(), "INVALID_PATH"),
        (format!("{}x", root.path().display()), "HOST_PATH_REFUSED"),
    ];
    for (path, code) in &cases {
        for (what, body) in
            [("copy_in", json!({"host_path": path})), ("copy_out", json!({"path": "d", "host_path": path}))]
        {
            let error = daemon.refused("POST", &format!("/v1/sandboxes/box/files/{what}"), Some(&body));
            assert_eq!(error["code"], *code, "{what} {path}: {error}");
        }
        let body = json!({"sandbox": "box", "host_path": path});
        assert_eq!(daemon.refused("POST", "/v1/syncs", Some(&body))["code"], *code, "{path}");
    }
    for (what, body, code) in [
        ("copy_in", json!({"host_path": at("missing")}), "FILE_NOT_FOUND"),
        ("copy_out", json!({"path": "missing", "host_path": at("new")}), "FILE_NOT_FOUND"),
        ("copy_out", json!({"path": "d", "host_path": at("no/such/parent")}), "FILE_NOT_FOUND"),
        ("copy_out", json!({"path": "d", "host_path": at("file"), "replace": true}), "NOT_DIRECTORY"),
        ("copy_out", json!({"path": "d", "host_path": root.path(), "replace": true}), "HOST_PATH_REFUSED"),
        ("copy_in", json!({"host_path": at("file"), "path": "d"}), "IS_DIRECTORY"),
    ] {
        let error = daemon.refused("POST", &format!("/v1/sandboxes/box/files/{what}"), Some(&body));
        assert_eq!(error["code"], code, "{what} {body}: {error}");
    }
    let mut left: Vec<_> =
        std::fs::read_dir(root.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["file", "out", "up"]);
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 1);
    // Without a configured root there is none.
    let bare = TestDaemon::start();
    let (mut client, _) = Client::initialized_with(&bare, "2025-11-25", &["--toolsets", "files"]);
    let refused = client.call("copy_in", json!({"host_path": at("file")}));
    let words = refused["content"][0]["text"].as_str().unwrap();
    assert!(words.contains("HOST_PATH_REFUSED") && words.contains("host_roots"), "{words}");
}

#[test]
fn a_model_copies_in_and_out() {
    let (daemon, root) = with_root(&[]);
    write(&root.path().join("in.txt"), "in");
    let (mut client, _) = Client::initialized_with(&daemon, "2025-11-25", &["--toolsets", "core,files"]);
    let copied = client.call("copy_in", json!({"host_path": root.path().join("in.txt")}));
    assert_eq!(copied["structuredContent"]["path"], "/workspace/in.txt", "{copied}");
    client.call("copy_out", json!({"path": "in.txt", "host_path": root.path().join("out.txt")}));
    assert_eq!(std::fs::read_to_string(root.path().join("out.txt")).unwrap(), "in");
}

fn put(daemon: &TestDaemon, query: &str, body: &[u8]) -> crate::harness::http::Answer {
    let line = format!("PUT /v1/sandboxes/box/files/tree?{query}");
    unix_raw(&daemon.socket(), &line, &["Content-Type: application/x-tar"], body)
}

fn tar(directory: &Path, arguments: &[&str]) -> Vec<u8> {
    let made = Command::new("tar").arg("-C").arg(directory).args(arguments).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    made.stdout
}

#[test]
fn archives_of_other_programs_are_taken_and_ours_are_read_by_them() {
    let daemon = TestDaemon::start();
    let place = tempfile::tempdir().unwrap();
    write(&place.path().join("t/a"), "a");
    write(&place.path().join("t/sub").join("n".repeat(150)), "long");
    symlink("a", place.path().join("t/link")).unwrap();
    daemon.shell("box", "true");
    let answer = put(&daemon, "path=in/side", &tar(place.path(), &["-cf", "-", "t"]));
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!((&answer.json()["files"], &answer.json()["path"]), (&json!(2), &json!("/workspace/in/side")));
    assert_eq!(daemon.shell("box", "cat in/side/t/link in/side/t/sub/n*"), "along");
    daemon.shell("box", "mkfifo in/side/pipe");
    let answer = unix_raw(&daemon.socket(), "GET /v1/sandboxes/box/files/tree?path=in", &[], b"");
    assert_eq!(answer.status, 200);
    let back = place.path().join("back");
    std::fs::create_dir(&back).unwrap();
    std::fs::write(place.path().join("ours.tar"), &answer.body).unwrap();
    tar(&back, &["-xf", place.path().join("ours.tar").to_str().unwrap()]);
    assert_eq!(std::fs::read_to_string(back.join("side/t/a")).unwrap(), "a");
    assert_eq!(std::fs::read_to_string(back.join("side/t/sub").join("n".repeat(150))).unwrap(), "long");
}

#[test]
fn a_bad_archive_is_refused_whole() {
    let daemon = TestDaemon::start();
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name);
    write(&at("kept"), "new");
    write(&at("dir/x"), "x");
    symlink("/etc/passwd", at("absolute")).unwrap();
    symlink("../../etc", at("outside")).unwrap();
    std::fs::hard_link(at("kept"), at("hard")).unwrap();
    assert!(Command::new("mkfifo").arg(at("pipe")).status().unwrap().success());
    daemon.shell("box", "echo old > kept; echo old > dir; mkdir taken");
    let archives: Vec<(&str, Vec<u8>, &str)> = vec![
        (
            "a name with ..",
            tar(place.path(), &["-cPf", "-", "kept", "--transform=s,dir/x,../x,", "dir/x"]),
            "ARCHIVE_REFUSED",
        ),
        (
            "an absolute name",
            tar(place.path(), &["-cPf", "-", "kept", "--transform=s,dir/x,/etc/x,", "dir/x"]),
            "ARCHIVE_REFUSED",
        ),
        ("a link to the root", tar(place.path(), &["-cf", "-", "kept", "absolute"]), "ARCHIVE_REFUSED"),
        ("a link outside", tar(place.path(), &["-cf", "-", "kept", "outside"]), "ARCHIVE_REFUSED"),
        ("a hard link", tar(place.path(), &["-cf", "-", "kept", "hard"]), "ARCHIVE_REFUSED"),
        ("a pipe", tar(place.path(), &["-cf", "-", "kept", "pipe"]), "ARCHIVE_REFUSED"),
        ("a directory over a file", tar(place.path(), &["-cf", "-", "kept", "dir"]), "NOT_DIRECTORY"),
        (
            "a file over a directory",
            tar(place.path(), &["-cf", "-", "--transform=s,dir/x,taken,", "kept", "dir/x"]),
            "IS_DIRECTORY",
        ),
        ("half of one", tar(place.path(), &["-cf", "-", "kept"])[..512].to_vec(), "ARCHIVE_REFUSED"),
        ("something else", b"#!/bin/sh\n".repeat(200), "ARCHIVE_REFUSED"),
    ];
    for (what, bytes, code) in archives {
        let answer = put(&daemon, "path=.", &bytes);
        assert_eq!(answer.code(), code, "{what}: {}", answer.text());
        assert!(!answer.json()["error"]["next_steps"].as_array().unwrap().is_empty());
        assert_eq!(
            daemon.shell("box", "cat kept dir; ls -A | tr '\\n' ' '"),
            "old\nold\ndir kept taken ",
            "{what}"
        );
    }
}

#[test]
fn the_command_line_copies_any_name_and_tells_what_it_left_out() {
    let daemon = TestDaemon::start();
    daemon.home().write("tree/a", "a");
    symlink("a", daemon.home().path().join("tree/link")).unwrap();
    std::fs::create_dir(daemon.home().path().join("tree/empty")).unwrap();
    daemon.shell("box", "true");
    let told = finish(&mut daemon.isle(&["--json", "cp", "tree", "box:to"]));
    let told: Value = serde_json::from_slice(&told.stdout).unwrap();
    assert_eq!(
        (&told["files"], &told["bytes"], &told["skipped"]),
        (&json!(1), &json!(1), &json!(["tree/link"]))
    );
    assert_eq!(daemon.shell("box", "ls -A to | tr '\\n' ' '"), "a empty ");
    let said = finish(&mut daemon.isle(&["cp", "box:to", "back"]));
    assert_eq!(String::from_utf8_lossy(&said.stderr), "copied 1 file, 1 B\n");
    // What is in the way is told, and nothing is half done.
    daemon.home().write("clash/a/x", "x");
    let failed = finish(&mut daemon.isle(&["cp", "box:to", "clash"]));
    assert!(failed.status.success(), "an existing directory receives it under its own name");
    daemon.home().write("other/to/a/x", "x");
    let failed = finish(&mut daemon.isle(&["cp", "box:to", "other"]));
    assert!(String::from_utf8_lossy(&failed.stderr).contains("IS_DIRECTORY"), "{failed:?}");
    assert!(!daemon.home().path().join("other/to/empty").exists());
}

#[test]
fn a_transfer_tells_how_far_it_is_over_mcp_and_over_http() {
    let (daemon, root) = with_root(&[]);
    let at = |name: &str| root.path().join(name);
    std::fs::write(at("big"), vec![7u8; 3_000_000]).unwrap();
    std::fs::create_dir(at("tree")).unwrap();
    std::fs::write(at("tree/part"), vec![7u8; 1_000_000]).unwrap();
    let (mut client, _) = Client::initialized_with(&daemon, "2025-11-25", &["--toolsets", "core,files"]);
    for (tool, arguments, word, total) in [
        ("copy_in", json!({"sandbox": "box", "host_path": at("big")}), "copying in", json!(3_000_000.0)),
        ("copy_in", json!({"sandbox": "box", "host_path": at("tree")}), "copying in", Value::Null),
        (
            "copy_out",
            json!({"sandbox": "box", "path": "big", "host_path": at("back")}),
            "copying out",
            json!(3_000_000.0),
        ),
        (
            "copy_out",
            json!({"sandbox": "box", "path": "tree", "host_path": at("tree2")}),
            "copying out",
            Value::Null,
        ),
        (
            "sync_push",
            json!({"sandbox": "box", "path": "pushed", "host_path": at("tree")}),
            "pushing",
            json!(1_000_000.0),
        ),
        (
            "sync_pull",
            json!({"sandbox": "box", "path": "pushed", "host_path": at("pulled")}),
            "pulling",
            json!(1_000_000.0),
        ),
    ] {
        let call = json!({"name": tool, "arguments": arguments, "_meta": {"progressToken": "far"}});
        let result = client.request("tools/call", call)["result"].clone();
        assert_ne!(result["isError"], true, "{tool}: {result}");
        let told: Vec<Value> = client
            .notices
            .drain(..)
            .filter(|notice| notice["method"] == "notifications/progress")
            .map(|notice| notice["params"].clone())
            .collect();
        let first = told.first().unwrap_or_else(|| panic!("{tool} said nothing"));
        assert_eq!((&first["progressToken"], &first["total"]), (&json!("far"), &total), "{tool}: {first}");
        assert!(first["message"].as_str().unwrap().starts_with(word), "{tool}: {first}");
        let steps: Vec<f64> = told.iter().map(|one| one["progress"].as_f64().unwrap()).collect();
        assert!(steps[0] > 0.0 && steps.is_sorted(), "{tool}: {steps:?}");
    }
    let asked = ["Content-Type: application/json", "Accept: text/event-stream"];
    let events = |body: &Value| -> String {
        let line = "POST /v1/sandboxes/box/files/copy_in";
        let answer = unix_raw(&daemon.socket(), line, &asked, body.to_string().as_bytes());
        assert_eq!(answer.header("content-type"), Some("text/event-stream"));
        answer.text()
    };
    let told = events(&json!({"host_path": at("big"), "path": "again"}));
    let (before, last) = told.rsplit_once("event: result\ndata: ").unwrap_or_else(|| panic!("{told}"));
    assert!(before.starts_with("event: progress\ndata: {"), "{told}");
    assert_eq!(serde_json::from_str::<Value>(last.trim()).unwrap()["bytes"], 3_000_000);
    let told = events(&json!({"host_path": at("missing")}));
    assert!(
        told.starts_with("event: error\ndata: {\"error\":{") && told.contains("FILE_NOT_FOUND"),
        "{told}"
    );
}
