//! Working on files where they are: edited, searched, found by name, moved; in both tiers.

use serde_json::{Value, json};

use crate::harness::{TestDaemon, tiers};
use crate::mcp::Client;

/// Calls `check` with the name of a sandbox of each tier this host has.
pub(crate) fn in_each_tier(daemon: &TestDaemon, check: impl Fn(&str)) {
    for tier in tiers() {
        daemon.post(
            "/v1/sandboxes",
            json!({"sandbox": format!("a-{tier}"), "tier": tier, "allow_downgrade": true}),
        );
        check(&format!("a-{tier}"));
    }
}

fn edit(daemon: &TestDaemon, sandbox: &str, path: &str, edits: Value) -> Value {
    daemon.post(&format!("/v1/sandboxes/{sandbox}/files/edit"), json!({"path": path, "edits": edits}))
}

#[test]
fn text_is_replaced_exactly_or_nothing_is_changed() {
    let daemon = TestDaemon::start();
    in_each_tier(&daemon, |name| {
        daemon
            .shell(name, "printf 'one\\ntwo\\none\\n' > a; chmod 751 a; mkdir d; ln -s a link; chmod 444 d");
        let edited = edit(
            &daemon,
            name,
            "a",
            json!([{"old": "two\n", "new": "zwei\n"}, {"old": "zwei", "new": "deux"}, {"old": "one", "new": "un", "replace_all": true}]),
        );
        assert_eq!((&edited["replaced"], &edited["size"]), (&json!([1, 1, 2]), &json!(11)));
        assert_eq!(daemon.shell(name, "cat a; stat -c %a a"), "un\ndeux\nun\n751\n");
        let cases = [
            ("a", json!([{"old": "deux", "new": "x"}, {"old": "trois", "new": "x"}]), "TEXT_NOT_FOUND"),
            ("a", json!([{"old": "deux", "new": "x"}, {"old": "un", "new": "x"}]), "TEXT_NOT_UNIQUE"),
            ("a", json!([{"old": "", "new": "x"}]), "INVALID_ARGUMENT"),
            ("a", json!([{"old": "un", "new": "un"}]), "INVALID_ARGUMENT"),
            ("a", json!([]), "INVALID_ARGUMENT"),
            ("missing", json!([{"old": "x", "new": "y"}]), "FILE_NOT_FOUND"),
            ("d", json!([{"old": "x", "new": "y"}]), "IS_DIRECTORY"),
            ("link", json!([{"old": "deux", "new": "y"}]), "INVALID_PATH"),
            ("../a", json!([{"old": "deux", "new": "y"}]), "INVALID_PATH"),
        ];
        for (path, edits, code) in cases {
            let body = json!({"path": path, "edits": edits});
            let error = daemon.refused("POST", &format!("/v1/sandboxes/{name}/files/edit"), Some(&body));
            assert_eq!(error["code"], code, "{body}: {error}");
            assert_eq!(
                daemon.shell(name, "cat a; ls -A | tr '\\n' ' '"),
                "un\ndeux\nun\na d link ",
                "{body}"
            );
        }
        let error = daemon.refused(
            "POST",
            &format!("/v1/sandboxes/{name}/files/edit"),
            Some(&json!({"path": "a", "edits": [{"old": "un", "new": "x"}]})),
        );
        assert_eq!((&error["details"]["lines"], &error["details"]["found"]), (&json!([1, 3]), &json!(2)));
    });
}

#[test]
fn a_file_that_may_not_be_written_or_is_too_large_is_not_edited() {
    let daemon = TestDaemon::start_with(&[("ISLE_FILE_CAP", "64K")]);
    daemon.shell("box", "echo text > mine; head -c 100000 /dev/zero | tr '\\0' x > big; mkfifo pipe");
    let refused = |path: &str, old: &str, new: &str| {
        let body = json!({"path": path, "edits": [{"old": old, "new": new, "replace_all": true}]});
        daemon.refused("POST", "/v1/sandboxes/box/files/edit", Some(&body))["code"].clone()
    };
    assert_eq!(refused("big", "x", "y"), "TOO_LARGE");
    assert_eq!(refused("mine", "t", &"t".repeat(60_000)), "TOO_LARGE");
    assert_eq!(refused("pipe", "t", "x"), "NOT_REGULAR");
    assert_eq!(refused("/etc/hosts", "l", "x"), "PERMISSION_DENIED");
    assert_eq!(daemon.shell("box", "cat mine; wc -c < big"), "text\n100000\n");
}

#[test]
fn a_file_keeps_its_mode_when_it_is_written_anew_or_added_to() {
    let daemon = TestDaemon::start();
    daemon.shell("box", "printf '#!/bin/sh\\n' > run; chmod 755 run");
    let write = |file: Value| daemon.post("/v1/sandboxes/box/files/write", json!({"files": [file]}));
    write(json!({"path": "run", "content": "echo added\n", "append": true}));
    assert_eq!(daemon.shell("box", "./run; stat -c %a run"), "added\n755\n");
    write(json!({"path": "run", "content": "#!/bin/sh\necho anew\n"}));
    assert_eq!(daemon.shell("box", "./run; stat -c %a run"), "anew\n755\n");
    write(json!({"path": "run", "content": "x", "mode": "600"}));
    assert_eq!(daemon.shell("box", "stat -c %a run"), "600\n");
}

#[test]
fn lines_of_a_file_are_read_by_number() {
    let daemon = TestDaemon::start();
    daemon.shell("box", "seq 1 50000 > numbers; printf 'no end' > one");
    let read = |query: &str| daemon.get(&format!("/v1/sandboxes/box/files/read?{query}"));
    let part = read("path=numbers&lines=10-12");
    assert_eq!((&part["content"], &part["offset"]), (&json!("10\n11\n12\n"), &json!(18)));
    assert_eq!((&part["first_line"], &part["next_offset"]), (&json!(10), &json!(27)));
    assert_eq!(read("path=numbers&lines=50000-")["content"], "50000\n");
    assert_eq!(read("path=numbers&lines=50000-")["next_offset"], json!(null));
    assert_eq!(read("path=one&lines=1")["content"], "no end");
    assert_eq!(read("path=one&lines=7-9")["content"], "");
    for bad in ["lines=0", "lines=3-2", "lines=x", "lines=1-2&offset=4"] {
        let error = daemon.refused("GET", &format!("/v1/sandboxes/box/files/read?path=one&{bad}"), None);
        assert_eq!(error["code"], "INVALID_ARGUMENT", "{bad}");
    }
    let (mut client, _) = Client::initialized(&daemon, "2025-11-25");
    let result = client.call("read_file", json!({"sandbox": "box", "path": "numbers", "lines": "40000-"}));
    let page = &result["structuredContent"];
    assert!(page["content"].as_str().unwrap().starts_with("40000\n40001\n"), "{result}");
    let next = page["next_offset"].as_u64().unwrap();
    let rest = client.call("read_file", json!({"sandbox": "box", "path": "numbers", "offset": next}));
    let joined = format!(
        "{}{}",
        page["content"].as_str().unwrap(),
        rest["structuredContent"]["content"].as_str().unwrap()
    );
    let expected: String = (40_000..=50_000).map(|number| format!("{number}\n")).collect();
    assert!(expected.starts_with(&joined) && joined.len() > 30_000, "pages join to the very byte");
}

#[test]
fn files_are_found_by_name_at_any_depth() {
    let daemon = TestDaemon::start();
    in_each_tier(&daemon, |name| {
        daemon.shell(name, "mkdir -p src/deep/er .hid; touch a.py src/b.py src/deep/er/c.py .hid/d.py x.txt; touch $'e\\n.py'; ln -s / src/out");
        let list = |query: &str| -> Vec<String> {
            let found = daemon.get(&format!("/v1/sandboxes/{name}/files/list?{query}"));
            let entries = found["entries"].as_array().unwrap().clone();
            entries.iter().map(|entry| entry["path"].as_str().unwrap().to_owned()).collect()
        };
        assert_eq!(list("glob=*.py"), [".hid/d.py", "a.py", "e\n.py", "src/b.py", "src/deep/er/c.py"]);
        assert_eq!(list("glob=*.py&depth=2"), [".hid/d.py", "a.py", "e\n.py", "src/b.py"]);
        assert_eq!(list("glob=src/**/*.py"), ["src/b.py", "src/deep/er/c.py"]);
        assert_eq!(list("glob=%7Ba,x%7D.*&path=/workspace"), ["a.py", "x.txt"]);
        assert_eq!(list("glob=out"), ["src/out"], "links are shown and not followed");
        let few = daemon.get(&format!("/v1/sandboxes/{name}/files/list?glob=*.py&limit=2"));
        assert_eq!((few["entries"].as_array().unwrap().len(), &few["truncated"]), (2, &json!(true)));
        let error = daemon.refused("GET", &format!("/v1/sandboxes/{name}/files/list?glob=%5Ba"), None);
        assert_eq!(error["code"], "INVALID_ARGUMENT");
    });
}

#[test]
fn files_are_searched_line_by_line_within_bounds() {
    let daemon = TestDaemon::start();
    in_each_tier(&daemon, |name| {
        daemon.shell(
            name,
            "mkdir -p src .git; printf 'one\\nTwo needle\\nthree\\nfour needle\\n' > src/a.py; \
             echo needle > src/b.txt; echo needle > .git/c; printf 'needle\\0binary' > src/bin; \
             ln -s /etc src/out; mkfifo src/pipe; printf 'needle' > \"$(printf 'src/b\\377d')\"; \
             head -c 300000 /dev/zero | tr '\\0' y > src/long; echo ' needle' >> src/long",
        );
        let search = |query: &str| daemon.get(&format!("/v1/sandboxes/{name}/files/search?{query}"));
        let found = search("pattern=needle&glob=*.py&context=1");
        assert_eq!(
            found["matches"],
            json!([
                {"path": "src/a.py", "line": 2, "column": 5, "text": "Two needle", "before": ["one"], "after": ["three"]},
                {"path": "src/a.py", "line": 4, "column": 6, "text": "four needle", "before": ["three"]},
            ])
        );
        assert_eq!((&found["files_searched"], &found["truncated"]), (&json!(1), &json!(false)));
        let all = search("pattern=needle");
        let paths: Vec<&str> =
            all["matches"].as_array().unwrap().iter().map(|one| one["path"].as_str().unwrap()).collect();
        assert_eq!(paths, ["src/a.py", "src/a.py", "src/b.txt", "src/b\u{fffd}d", "src/long"]);
        assert_eq!(all["matches"][3]["path_base64"], "c3JjL2L/ZA==");
        assert!(all["matches"][4]["text"].as_str().unwrap().len() <= 500, "long lines are cut");
        assert_eq!(all["files_skipped"], 1, "{all}");
        assert_eq!(search("pattern=NEEDLE")["matches"], json!([]));
        assert_eq!(
            search("pattern=NEEDLE&ignore_case=true&path=src/b.txt")["matches"][0]["path"],
            "src/b.txt"
        );
        assert_eq!(search("pattern=%5E(one%7Cthree)%24")["matches"].as_array().unwrap().len(), 2);
        assert_eq!(search("pattern=e.d&literal=true")["matches"], json!([]));
        let few = search("pattern=needle&limit=2");
        assert_eq!((&few["stopped_by"], few["matches"].as_array().unwrap().len()), (&json!("matches"), 2));
        assert_eq!(search("pattern=needle&path=/workspace/.git")["matches"][0]["path"], "c");
        for (bad, code) in [
            ("pattern=(", "INVALID_ARGUMENT"),
            ("pattern=", "INVALID_ARGUMENT"),
            ("pattern=x&limit=0", "INVALID_ARGUMENT"),
            ("pattern=x&context=11", "INVALID_ARGUMENT"),
            ("pattern=x&glob=%7B", "INVALID_ARGUMENT"),
            ("pattern=x&timeout=2h", "INVALID_ARGUMENT"),
            ("pattern=x&path=missing", "FILE_NOT_FOUND"),
            ("pattern=x&path=src/out", "INVALID_PATH"),
            ("pattern=x&path=src/pipe", "NOT_REGULAR"),
        ] {
            let error = daemon.refused("GET", &format!("/v1/sandboxes/{name}/files/search?{bad}"), None);
            assert_eq!(error["code"], code, "{bad}");
        }
    });
}

#[test]
fn an_expression_made_to_take_for_ever_does_not() {
    let daemon = TestDaemon::start();
    daemon.shell("box", "head -c 400000 /dev/zero | tr '\\0' a > a; echo b >> a");
    let found = daemon.get("/v1/sandboxes/box/files/search?pattern=(a*)*(a*)*(a%7Caa)*c");
    assert_eq!((&found["matches"], &found["truncated"]), (&json!([]), &json!(false)));
    let error = daemon.refused(
        "GET",
        "/v1/sandboxes/box/files/search?pattern=((a%7B1000%7D)%7B1000%7D)%7B1000%7D",
        None,
    );
    assert_eq!(error["code"], "INVALID_ARGUMENT");
}

#[test]
fn a_file_is_moved_and_never_over_another_unasked() {
    let daemon = TestDaemon::start();
    in_each_tier(&daemon, |name| {
        daemon.shell(name, "echo 1 > a; echo 2 > b; mkdir -p d/in full; touch full/x");
        daemon.post(&format!("/v1/sandboxes/{name}/files/write"), json!({"files": {"/tmp/there": "t\n"}}));
        let url = format!("/v1/sandboxes/{name}/files/move");
        daemon.post(&url, json!({"from": "a", "to": "new/er/c"}));
        daemon.post(&url, json!({"from": "d", "to": "e"}));
        daemon.post(&url, json!({"from": "/tmp/there", "to": "here"}));
        assert_eq!(daemon.shell(name, "cat new/er/c here; ls -d e/in"), "1\nt\ne/in\n");
        let gone = daemon.refused("GET", &format!("/v1/sandboxes/{name}/files/stat?path=/tmp/there"), None);
        assert_eq!(gone["code"], "FILE_NOT_FOUND");
        for (from, to, replace, code) in [
            ("b", "here", false, "FILE_EXISTS"),
            ("b", "full", true, "IS_DIRECTORY"),
            ("e", "full", true, "FILE_EXISTS"),
            ("missing", "made/for/nothing", false, "FILE_NOT_FOUND"),
            ("b", "here/below", false, "NOT_DIRECTORY"),
            ("e", "e/in/side", false, "INVALID_ARGUMENT"),
            ("b", "../out", false, "INVALID_PATH"),
        ] {
            let body = json!({"from": from, "to": to, "replace": replace});
            let error = daemon.refused("POST", &url, Some(&body));
            assert_eq!(error["code"], code, "{body}: {error}");
        }
        daemon.post(&url, json!({"from": "b", "to": "here", "replace": true}));
        assert_eq!(daemon.shell(name, "cat here; ls -A | tr '\\n' ' '"), "2\ne full here new ");
    });
}

#[test]
fn a_model_edits_searches_moves_and_removes_files() {
    let daemon = TestDaemon::start();
    let (mut client, _) = Client::initialized_with(&daemon, "2025-11-25", &["--toolsets", "core,files"]);
    let mut call = |tool: &str, arguments: Value| client.call(tool, arguments)["structuredContent"].clone();
    call("write_files", json!({"files": [{"path": "a.txt", "content": "alpha\nbeta\n"}]}));
    let edited = call("edit_file", json!({"path": "a.txt", "edits": [{"old": "beta", "new": "gamma"}]}));
    assert_eq!(edited["replaced"], json!([1]));
    assert_eq!(call("search_files", json!({"pattern": "^g"}))["matches"][0]["line"], 2);
    assert_eq!(call("move_file", json!({"from": "a.txt", "to": "b.txt"}))["to"], "b.txt");
    assert_eq!(call("list_files", json!({"glob": "*.txt"}))["entries"][0]["path"], "b.txt");
    assert_eq!(call("stat_file", json!({"path": "b.txt"}))["size"], 12);
    assert_eq!(call("remove_file", json!({"path": "b.txt"}))["removed"], "b.txt");
    let error = client.call("edit_file", json!({"path": "b.txt", "edits": [{"old": "x", "new": "y"}]}));
    assert_eq!(error["isError"], true, "{error}");
    assert!(error["content"][0]["text"].as_str().unwrap().contains("FILE_NOT_FOUND"), "{error}");
}
