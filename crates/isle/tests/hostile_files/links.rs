//! Links that lead out: into the host, through `/proc`, by way of a parent directory.

use serde_json::json;

use crate::harness::{Case, per_tier};
use crate::scene::{Scene, quoted};

per_tier!(uploads_below_a_link_of_the_guest_stay_inside);

fn uploads_below_a_link_of_the_guest_stay_inside(Case { tier, .. }: Case) {
    let scene = Scene::new(tier);
    scene.python(&format!(
            "import os\nos.symlink({:?}, 'out')\nos.mkdir('in')\nos.symlink('../out', 'in/out')\nos.symlink('out', 'chain')",
            scene.host().display().to_string()
        ));
    for path in
        ["out/x", "out/new", "in/out/x", "chain/x", "chain/deep/er", "/workspace/out/x", "/workspace/out/new"]
    {
        let body = json!({"files": [{"path": path, "content": "stolen"}]});
        assert_ne!(scene.files("POST", "write", Some(&body)).status, 200, "{tier} {path}");
        assert_ne!(scene.put(path, b"stolen").status, 200, "{tier} {path}");
        let remove = json!({"path": path});
        assert_ne!(scene.files("POST", "remove", Some(&remove)).status, 200, "{tier} {path}");
        assert_ne!(scene.files("GET", &format!("read?path={path}"), None).status, 200, "{tier} {path}");
        scene.assert_host_untouched();
    }
    // What is above the last name is looked up, what is at it is not followed.
    let body = json!({"path": "out"});
    assert_eq!(scene.files("POST", "remove", Some(&body)).status, 200, "{tier}: the link itself goes");
    scene.assert_host_untouched();
}

per_tier!(magic_links_are_never_followed);

fn magic_links_are_never_followed(Case { tier, .. }: Case) {
    let scene = Scene::new(tier);
    let host = scene.host().display().to_string();
    scene.daemon.shell(
        "box",
        "ln -s /proc/self/root root; ln -s /proc/1/cwd cwd; ln -s /proc/self/fd/0 fd; ln -s /dev/stdin in",
    );
    for path in [
        format!("/proc/self/root{host}/x"),
        format!("/proc/1/root{host}/x"),
        format!("/proc/thread-self/root{host}/x"),
        "/proc/self/cwd/good".into(),
        "/proc/self/fd/0".into(),
        "/proc/self/exe".into(),
        "/proc/1/exe".into(),
        "/dev/fd/20".into(),
        "/dev/stdin".into(),
        format!("root{host}/x"),
        format!("/workspace/root{host}/x"),
        "cwd/x".into(),
        "/workspace/cwd/x".into(),
        "fd".into(),
        "/workspace/in".into(),
    ] {
        let query = quoted(path.as_bytes());
        for user in ["sandbox", "root"] {
            for rest in ["read", "content", "stat", "list"] {
                let answer = scene.files("GET", &format!("{rest}?path={query}&user={user}"), None);
                assert_ne!(answer.status, 200, "{tier}: {rest} {path} as {user}: {}", answer.text());
            }
            let body = json!({"files": [{"path": path, "content": "x"}], "user": user});
            assert_ne!(scene.files("POST", "write", Some(&body)).status, 200, "{tier}: write {path}");
        }
    }
    scene.assert_host_untouched();
}

per_tier!(a_working_directory_that_is_a_link_changes_no_rule);

fn a_working_directory_that_is_a_link_changes_no_rule(Case { tier, .. }: Case) {
    let scene = Scene::new(tier);
    scene.python(&format!("import os\nos.symlink({:?}, 'out')", scene.host().display().to_string()));
    let run = scene.daemon.http(
        "POST",
        "/v1/sandboxes/box/exec",
        Some(&json!({"command": "cat x; echo y > new", "cwd": "/workspace/out"})),
    );
    assert!(!run.text().contains(crate::scene::SECRET), "{tier}: {}", run.text());
    let run = scene.daemon.http(
        "POST",
        "/v1/sandboxes/box/exec",
        Some(&json!({"command": "pwd", "cwd": "/workspace/out/made/here"})),
    );
    assert!(run.status >= 400 || run.json()["state"] == "failed", "{tier}: {}", run.text());
    scene.assert_host_untouched();
}
