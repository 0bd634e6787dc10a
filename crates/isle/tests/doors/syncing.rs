//! Directories made alike, once and for as long as both are there.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::{Value, json};

use crate::file_work::in_each_tier;
use crate::harness::{TestDaemon, finish, until};
use crate::mcp::Client;
use crate::trees::with_root;

fn run(daemon: &TestDaemon, arguments: &[&str]) -> Value {
    let mut all = vec!["--json", "sync"];
    all.extend_from_slice(arguments);
    serde_json::from_str(&daemon.succeeds(&all)).unwrap()
}

fn listing(daemon: &TestDaemon, name: &str, path: &str) -> String {
    daemon.shell(name, &format!("cd {path} && find . -mindepth 1 | sort | tr '\\n' ' '"))
}

#[test]
fn a_push_sends_what_differs_and_leaves_out_what_git_ignores() {
    let daemon = TestDaemon::start();
    for (path, text) in [
        ("p/.gitignore", "*.log\n/target/\n.venv\n"),
        ("p/a.txt", "a"),
        ("p/src/main.rs", "fn main() {}"),
        ("p/src/.gitignore", "!keep.log\n"),
        ("p/src/keep.log", "kept"),
        ("p/src/x.log", "x"),
        ("p/target/debug/big", "big"),
        ("p/.venv/bin/python", "p"),
        ("p/.git/config", "c"),
        ("p/note.tmp", "t"),
    ] {
        daemon.home().write(path, text);
    }
    std::fs::create_dir_all(daemon.home().path().join("p/empty")).unwrap();
    in_each_tier(&daemon, |name| {
        let target = format!("{name}:w");
        let dry = run(&daemon, &["push", "p", &target, "--exclude", "*.tmp", "--dry-run"]);
        assert_eq!((&dry["files"], &dry["dry_run"]), (&json!(5), &json!(true)), "{dry}");
        let first = run(&daemon, &["push", "p", &target, "--exclude", "*.tmp"]);
        assert_eq!((&first["files"], &first["unchanged"]), (&json!(5), &json!(0)), "{first}");
        assert_eq!((&first["exclude"], &first["bytes"]), (&json!(["*.tmp"]), &json!(1 + 12 + 21 + 10 + 4)));
        assert_eq!(
            listing(&daemon, name, "w"),
            "./.gitignore ./a.txt ./empty ./src ./src/.gitignore ./src/keep.log ./src/main.rs "
        );
        // Only what differs, by content: a new time alone is no difference.
        daemon.shell(name, "cd w; touch a.txt; echo changed > src/main.rs; echo mine > mine; mkdir target; echo t > target/mine");
        let again = run(&daemon, &["push", "p", &target, "--exclude", "*.tmp"]);
        assert_eq!(
            (&again["files"], &again["unchanged"], &again["extra"]),
            (&json!(1), &json!(4), &json!(1)),
            "{again}"
        );
        assert_eq!(daemon.shell(name, "cat w/src/main.rs w/mine"), "fn main() {}mine\n");
        let exact = run(&daemon, &["push", "p", &target, "--exclude", "*.tmp", "--delete"]);
        assert_eq!((&exact["files"], &exact["removed"]), (&json!(0), &json!(1)), "{exact}");
        assert_eq!(
            daemon.shell(name, "cat w/target/mine; ls w/mine 2>/dev/null | wc -l"),
            "t\n0\n",
            "what is ignored is left alone on both sides"
        );
        let git = run(&daemon, &["push", "p", &target, "--git", "--ignored"]);
        assert_eq!(git["files"], 5, "{git}");
        assert_eq!(daemon.shell(name, "cat w/.git/config w/.venv/bin/python"), "cp");
    });
    // A file where a directory is, is nobody's to remove unasked.
    daemon.shell("box", "mkdir -p w/a.txt; touch w/a.txt/x");
    let refused = finish(&mut daemon.isle(&["sync", "push", "p", "box:w"]));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("FILE_EXISTS"), "{refused:?}");
    assert_eq!(listing(&daemon, "box", "w"), "./a.txt ./a.txt/x ");
    daemon.succeeds(&["sync", "push", "p", "box:w", "--delete"]);
    assert_eq!(daemon.shell("box", "cat w/a.txt"), "a");
    for bad in [
        &["sync", "push", "missing", "box"][..],
        &["sync", "push", "p", "b/x"],
        &["sync", "push", "p", "box:../x"],
        &["sync", "push", "p", "box", "--exclude", "[z-a]"],
    ] {
        assert!(!finish(&mut daemon.isle(bad)).status.success(), "{bad:?}");
    }
}

#[test]
fn a_pull_fetches_what_differs_by_the_sandboxs_own_rules() {
    let daemon = TestDaemon::start();
    in_each_tier(&daemon, |name| {
        daemon.shell(
            name,
            "mkdir -p d/node_modules/x d/e .git; echo 1 > d/a; echo 2 > d/run; chmod 755 d/run; \
             echo node_modules > .gitignore; echo h > .git/HEAD; touch d/node_modules/x/y; ln -s /etc d/out",
        );
        let to = format!("to-{name}");
        let at = |path: &str| daemon.home().path().join(&to).join(path);
        let first = run(&daemon, &["pull", name, &to]);
        assert_eq!((&first["files"], &first["skipped"]), (&json!(3), &json!(["d/out"])), "{first}");
        assert_eq!(std::fs::read_to_string(at("d/a")).unwrap(), "1\n");
        assert_eq!(at("d/run").metadata().unwrap().permissions().mode() & 0o777, 0o755);
        assert!(at("d/e").is_dir() && !at("d/node_modules").exists() && !at(".git").exists());
        std::fs::write(at("extra"), "x").unwrap();
        std::fs::create_dir(at("d/node_modules")).unwrap();
        daemon.shell(name, "echo 3 > d/a; rm d/run");
        let again = run(&daemon, &["pull", name, &to]);
        assert_eq!(
            (&again["files"], &again["extra"], &again["unchanged"]),
            (&json!(1), &json!(2), &json!(1)),
            "{again}"
        );
        let exact = run(&daemon, &["pull", name, &to, "--delete"]);
        assert_eq!(exact["removed"], 2, "{exact}");
        assert!(!at("extra").exists() && !at("d/run").exists() && at("d/node_modules").is_dir());
        assert_eq!(std::fs::read_to_string(at("d/a")).unwrap(), "3\n");
    });
    let missing = finish(&mut daemon.isle(&["sync", "pull", "nobody", "x"]));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("SANDBOX_NOT_FOUND"), "{missing:?}");
    assert!(!daemon.home().path().join("x").exists());
}

fn settled(daemon: &TestDaemon, name: &str, command: &str, expected: &str) {
    until(&format!("{command} gives {expected:?}"), || {
        let run = daemon.exec(name, json!({ "command": command }));
        run["stdout"] == expected
    });
}

/// What editors do: a new file, moved over the old one.
fn replace(at: &Path, text: &str) {
    let draft = at.with_extension("swp");
    std::fs::write(&draft, text).unwrap();
    std::fs::rename(&draft, at).unwrap();
}

fn follows(daemon: &TestDaemon, root: &Path, name: &str, poll: bool) {
    let host = root.join(format!("live-{name}-{poll}"));
    std::fs::create_dir_all(host.join("sub/empty")).unwrap();
    std::fs::write(host.join(".gitignore"), "*.swp\n").unwrap();
    std::fs::write(host.join("sub/a"), "1").unwrap();
    let path = format!("live-{poll}");
    daemon.shell(name, &format!("mkdir -p {path}; echo mine > {path}/mine"));
    let started =
        daemon.post("/v1/syncs", json!({"sandbox": name, "host_path": host, "path": path, "poll": poll}));
    assert_eq!(started["state"], if poll { "polling" } else { "watching" }, "{started}");
    assert_eq!(
        daemon.shell(name, &format!("cd {path}; cat sub/a mine; ls -d sub/empty")),
        "1mine\nsub/empty\n"
    );
    std::fs::write(host.join("sub/a"), "2").unwrap();
    settled(daemon, name, &format!("cat {path}/sub/a"), "2");
    replace(&host.join("sub/a"), "3");
    settled(daemon, name, &format!("cat {path}/sub/a; ls {path}/sub"), "3a\nempty\n");
    std::fs::create_dir_all(host.join("new/deep")).unwrap();
    std::fs::write(host.join("new/deep/x"), "x").unwrap();
    settled(daemon, name, &format!("cat {path}/new/deep/x"), "x");
    std::fs::remove_dir(host.join("sub/empty")).unwrap();
    std::fs::remove_dir_all(host.join("new")).unwrap();
    settled(
        daemon,
        name,
        &format!("cd {path}; find . -mindepth 1 | sort | tr '\\n' ' '"),
        "./.gitignore ./mine ./sub ./sub/a ",
    );
    // A file becomes a directory, and the host counts where both have changed.
    std::fs::remove_file(host.join("sub/a")).unwrap();
    std::fs::create_dir(host.join("sub/a")).unwrap();
    std::fs::write(host.join("sub/a/b"), "b").unwrap();
    settled(daemon, name, &format!("cat {path}/sub/a/b"), "b");
    daemon.shell(name, &format!("echo theirs > {path}/sub/a/b"));
    std::fs::write(host.join("sub/a/b"), "ours").unwrap();
    settled(daemon, name, &format!("cat {path}/sub/a/b"), "ours");
    let status = daemon.get(&format!("/v1/status?sandbox={name}"));
    let sync = status["detail"]["syncs"]
        .as_array()
        .unwrap()
        .iter()
        .find(|sync| sync["sync"] == started["sync"])
        .unwrap()
        .clone();
    assert!(sync["files_sent"].as_u64().unwrap() >= 6 && sync["removed"].as_u64().unwrap() >= 3, "{sync}");
    let id = started["sync"].as_str().unwrap();
    let stopped = daemon.http("DELETE", &format!("/v1/syncs/{id}"), None).json();
    assert_eq!(stopped["state"], "ended", "{stopped}");
    assert_eq!(daemon.refused("DELETE", &format!("/v1/syncs/{id}"), None)["code"], "SYNC_NOT_FOUND");
}

#[test]
fn a_sandbox_follows_a_directory_of_the_host() {
    let (daemon, root) = with_root(&[]);
    in_each_tier(&daemon, |name| follows(&daemon, root.path(), name, false));
}

#[test]
fn a_sandbox_follows_also_where_the_host_does_not_tell() {
    let (daemon, root) = with_root(&[]);
    daemon.shell("box", "true");
    follows(&daemon, root.path(), "box", true);
}

#[test]
fn a_live_sync_ends_with_its_sandbox_and_never_brings_it_back() {
    let (daemon, root) = with_root(&[]);
    std::fs::write(root.path().join("a"), "1").unwrap();
    let host = root.path().to_str().unwrap();
    daemon.shell("box", "true");
    let id = daemon.succeeds(&["sync", "start", host, "box:w"]).trim().to_owned();
    let taken = json!({"sandbox": "box", "host_path": host, "path": "/workspace/w"});
    assert_eq!(daemon.refused("POST", "/v1/syncs", Some(&taken))["code"], "ALREADY_EXISTS");
    assert!(daemon.succeeds(&["sync", "ls"]).contains("watching"));
    daemon.http("DELETE", "/v1/sandboxes/box", None);
    std::fs::write(root.path().join("a"), "2").unwrap();
    until("the sync is over", || {
        let syncs = daemon.get("/v1/syncs");
        syncs["syncs"][0]["sync"] == id.as_str() && syncs["syncs"][0]["state"] == "ended"
    });
    assert!(daemon.names().is_empty(), "the sandbox is not made again");
    assert_eq!(daemon.shell("box", "cat w/a"), "1", "nor is another one of that name written to");
    let (mut client, _) = Client::initialized_with(&daemon, "2025-11-25", &["--toolsets", "files"]);
    let started = client.call("sync_start", json!({"sandbox": "box", "host_path": host, "path": "m"}));
    let id = started["structuredContent"]["sync"].clone();
    assert_eq!(daemon.shell("box", "cat m/a"), "2");
    assert_eq!(client.call("sync_stop", json!({"sync": id}))["structuredContent"]["state"], "ended");
    daemon.succeeds(&["sync", "ls"]);
    for (bad, code) in [
        (json!({"sandbox": "box", "host_path": host, "exclude": ["[z-a]"]}), "INVALID_ARGUMENT"),
        (json!({"sandbox": "box", "host_path": root.path().join("a")}), "NOT_DIRECTORY"),
        (json!({"sandbox": "box", "host_path": root.path().join("missing")}), "FILE_NOT_FOUND"),
        (json!({"sandbox": "box", "host_path": host, "path": "m/a/below"}), "NOT_DIRECTORY"),
    ] {
        let error = daemon.refused("POST", "/v1/syncs", Some(&bad));
        assert_eq!(error["code"], code, "{bad}: {error}");
    }
}

#[test]
fn a_live_sync_is_taken_up_again_by_the_next_daemon_and_a_stopped_one_is_not() {
    let (mut daemon, root) = with_root(&[]);
    std::fs::write(root.path().join("a"), "1").unwrap();
    let host = root.path().to_str().unwrap().to_owned();
    daemon.shell("box", "true");
    let start = |daemon: &TestDaemon, path: &str| {
        let body = json!({"sandbox": "box", "host_path": host, "path": path, "exclude": ["*.tmp"]});
        daemon.post("/v1/syncs", body)["sync"].as_str().unwrap().to_owned()
    };
    let (kept, stopped) = (start(&daemon, "kept"), start(&daemon, "stopped"));
    daemon.http("DELETE", &format!("/v1/syncs/{stopped}"), None);
    for orderly in [false, true] {
        if orderly {
            daemon.terminate();
        } else {
            daemon.kill();
        }
        let text = if orderly { "after an orderly end" } else { "after a crash" };
        std::fs::write(root.path().join("a"), text).unwrap();
        std::fs::write(root.path().join("b.tmp"), text).unwrap();
        daemon.launch();
        settled(&daemon, "box", "cat kept/a", text);
        let syncs = daemon.get("/v1/syncs");
        assert_eq!(syncs["syncs"].as_array().unwrap().len(), 1, "{syncs}");
        assert_eq!(syncs["syncs"][0]["sync"], kept.as_str(), "{syncs}");
    }
    std::fs::write(root.path().join("a"), "while it runs").unwrap();
    settled(&daemon, "box", "cat kept/a", "while it runs");
    assert_eq!(daemon.shell("box", "ls kept; cat stopped/a"), "a\n1", "excluded and stopped stay so");
    // A directory that is no longer among the roots is not followed any more.
    daemon.kill();
    let elsewhere = tempfile::tempdir().unwrap();
    daemon.try_launch_with(&[("ISLE_HOST_ROOTS", elsewhere.path().to_str().unwrap())]).unwrap();
    assert_eq!(daemon.get("/v1/syncs")["syncs"], json!([]));
}

#[test]
fn a_model_pushes_and_pulls_below_the_host_roots_only() {
    let (daemon, root) = with_root(&[]);
    let at = |name: &str| root.path().join(name);
    for (path, text) in [
        ("p/.gitignore", "*.log\n"),
        ("p/a.txt", "a"),
        ("p/src/deep/b.txt", "b"),
        ("p/x.log", "x"),
        ("p/.venv/bin/python", "p"),
        ("p/.git/config", "c"),
    ] {
        std::fs::create_dir_all(at(path).parent().unwrap()).unwrap();
        std::fs::write(at(path), text).unwrap();
    }
    in_each_tier(&daemon, |name| {
        let sync = |what: &str, body: Value| daemon.post(&format!("/v1/sandboxes/{name}/sync/{what}"), body);
        let push = json!({"host_path": at("p"), "path": "w", "exclude": [".venv"]});
        let mut dry = push.clone();
        dry["dry_run"] = json!(true);
        let said = sync("push", dry);
        assert_eq!((&said["files"], &said["dry_run"]), (&json!(3), &json!(true)), "{said}");
        assert_eq!(daemon.shell(name, "ls -A"), "", "nothing was done");
        let said = sync("push", push.clone());
        assert_eq!(
            (&said["files"], &said["bytes"], &said["excluded"]),
            (&json!(3), &json!(8), &json!(3)),
            "{said}"
        );
        assert_eq!(listing(&daemon, name, "w"), "./.gitignore ./a.txt ./src ./src/deep ./src/deep/b.txt ");
        // Again, only what differs; what is only there stays unless it is said.
        daemon.shell(name, "cd w; echo other > a.txt; echo mine > mine; echo l > l.log");
        let said = sync("push", push.clone());
        let counts =
            |said: &Value| ["files", "unchanged", "extra", "removed"].map(|key| said[key].as_u64().unwrap());
        assert_eq!(counts(&said), [1, 2, 1, 0], "{said}");
        // Back to the host, in a directory that is not there yet.
        daemon.shell(name, "cd w; rm a.txt; mkdir a.txt; echo in > a.txt/in");
        let out = at(&format!("out-{name}"));
        let pull = json!({"host_path": out, "path": "w"});
        assert_eq!(counts(&sync("pull", pull.clone())), [4, 0, 0, 0]);
        assert!(out.join("a.txt/in").is_file() && out.join("mine").is_file() && !out.join("l.log").exists());
        // A file in the place of a directory is replaced only by those who say so.
        let refused = daemon.refused("POST", &format!("/v1/sandboxes/{name}/sync/push"), Some(&push));
        assert_eq!(refused["code"], "FILE_EXISTS", "{refused}");
        let mut forced = push;
        forced["delete"] = json!(true);
        let said = sync("push", forced);
        assert_eq!(
            (&said["files"], &said["removed"], &said["extra"]),
            (&json!(1), &json!(3), &json!(0)),
            "{said}"
        );
        assert_eq!(daemon.shell(name, "cat w/a.txt w/l.log"), "al\n", "what is ignored stays there too");
        let mut again = pull;
        again["delete"] = json!(true);
        sync("pull", again);
        assert_eq!(std::fs::read_to_string(out.join("a.txt")).unwrap(), "a");
        assert!(!out.join("mine").exists());
    });
    let outside = daemon.refused(
        "POST",
        "/v1/sandboxes/box/sync/pull",
        Some(&json!({"host_path": "/etc/isle-test", "path": "w"})),
    );
    assert_eq!(outside["code"], "HOST_PATH_REFUSED", "{outside}");
    let bad = json!({"host_path": at("p"), "exclude": ["[z-a]"]});
    assert_eq!(
        daemon.refused("POST", "/v1/sandboxes/none/sync/push", Some(&bad))["code"],
        "INVALID_ARGUMENT"
    );
    let missing = json!({"host_path": at("nowhere")});
    assert_eq!(
        daemon.refused("POST", "/v1/sandboxes/none/sync/push", Some(&missing))["code"],
        "FILE_NOT_FOUND"
    );
    assert!(!daemon.names().contains(&"none".to_owned()), "nothing was made for it");
}
