//! Files that are written, changed, moved and carried.

use isle_fail::Point;
use serde_json::json;

use super::Scene;
use crate::ground::{Ground, Told};

pub(crate) const WRITE: Scene = Scene {
    name: "write",
    prepare: |ground| drop(ground.daemon.shell("box", "echo old > a; echo old > b")),
    act: |ground| {
        let files = json!([{"path": "a", "content": "new\n"}, {"path": "b", "content": "new\n"}]);
        ground.ask("POST /v1/sandboxes/box/files/write", Some(&json!({"files": files})))
    },
    settle: |_| {},
    check: |ground, told| {
        let found = ground.daemon.shell("box", "cat a b; ls -A");
        let allowed: &[&str] = match told {
            Told::Done(_) => &["new\nnew\na\nb\n"],
            Told::Refused(_) | Told::Nothing => &["old\nold\na\nb\n", "new\nnew\na\nb\n"],
        };
        assert!(allowed.contains(&found.as_str()), "{found}");
    },
    last: Point::WriteAudited,
    keeps: &[],
};

pub(crate) const REMOVE: Scene = Scene {
    name: "remove a file",
    prepare: |ground| drop(ground.daemon.shell("box", "echo old > a; echo old > b")),
    act: |ground| ground.ask("POST /v1/sandboxes/box/files/remove", Some(&json!({"path": "a"}))),
    settle: |_| {},
    check: |ground, told| {
        let found = ground.daemon.shell("box", "ls -A");
        assert!(found == "b\n" || (found == "a\nb\n" && !matches!(told, Told::Done(_))), "{found}");
    },
    last: Point::RemoveAudited,
    keeps: &[],
};

pub(crate) const EDIT: Scene = Scene {
    name: "edit a file",
    prepare: |ground| drop(ground.daemon.shell("box", "echo old old > a")),
    act: |ground| {
        let edits = json!([{"old": "old", "new": "new", "replace_all": true}]);
        ground.ask("POST /v1/sandboxes/box/files/edit", Some(&json!({"path": "a", "edits": edits})))
    },
    settle: |_| {},
    check: |ground, told| {
        let found = ground.daemon.shell("box", "cat a; ls -A");
        assert!(
            found == "new new\na\n" || (found == "old old\na\n" && !matches!(told, Told::Done(_))),
            "{found}"
        );
    },
    last: Point::EditAudited,
    keeps: &[],
};

pub(crate) const MOVE: Scene = Scene {
    name: "move a file",
    prepare: |ground| drop(ground.daemon.shell("box", "rm -rf d; echo old > a")),
    act: |ground| ground.ask("POST /v1/sandboxes/box/files/move", Some(&json!({"from": "a", "to": "d/b"}))),
    settle: |_| {},
    check: |ground, told| {
        let found = ground.daemon.shell("box", "find . -type f");
        assert!(found == "./d/b\n" || (found == "./a\n" && !matches!(told, Told::Done(_))), "{found}");
    },
    last: Point::MoveAudited,
    keeps: &[],
};

/// A root that operations may use, the same for every daemon of a scene.
pub(super) fn host_root(ground: &Ground) -> std::path::PathBuf {
    ground.file("root")
}

pub(super) fn prepare_host(ground: &mut Ground) {
    let root = host_root(ground);
    std::fs::remove_dir_all(&root).ok();
    std::fs::create_dir_all(root.join("tree")).unwrap();
    std::fs::write(root.join("tree/a"), "new").unwrap();
    std::fs::write(root.join("tree/b"), "new").unwrap();
    ground.daemon.shell("box", "rm -rf tree; mkdir -p from; echo out > from/x");
}

pub(crate) const UNPACK: Scene = Scene {
    name: "copy a tree in",
    prepare: prepare_host,
    act: |ground| {
        let from = host_root(ground).join("tree");
        ground.ask("POST /v1/sandboxes/box/files/copy_in", Some(&json!({"host_path": from})))
    },
    settle: |_| {},
    check: |ground, told| {
        let found = ground.daemon.shell("box", "find . -path './tree*' | sort");
        let whole = found == "./tree\n./tree/a\n./tree/b\n";
        assert!(whole || (found.is_empty() && !matches!(told, Told::Done(_))), "{found}");
    },
    last: Point::UnpackAudited,
    keeps: &[],
};

pub(crate) const COPY_OUT: Scene = Scene {
    name: "copy a tree out",
    prepare: prepare_host,
    act: |ground| {
        let to = host_root(ground).join("out");
        let body = json!({"path": "from", "host_path": to});
        ground.ask("POST /v1/sandboxes/box/files/copy_out", Some(&body))
    },
    settle: |_| {},
    check: |ground, told| {
        let out = host_root(ground).join("out");
        let whole = std::fs::read_to_string(out.join("x")).is_ok_and(|text| text == "out\n");
        assert!(whole || (!out.exists() && !matches!(told, Told::Done(_))), "half of a tree is there");
        // Whatever a daemon that died has left is swept away by the next copy.
        let body = json!({"path": "from", "host_path": host_root(ground).join("again")});
        ground.daemon.post("/v1/sandboxes/box/files/copy_out", body);
        let left = std::fs::read_dir(host_root(ground)).unwrap().map(|entry| entry.unwrap().file_name());
        let drafts: Vec<_> = left.filter(|name| name.to_string_lossy().starts_with(".isle-")).collect();
        assert!(drafts.is_empty(), "{drafts:?}");
    },
    last: Point::CopyOutAudited,
    keeps: &[],
};

pub(crate) const PRUNE: Scene = Scene {
    name: "remove what is named",
    prepare: |ground| drop(ground.daemon.shell("box", "mkdir -p d; touch d/a kept")),
    act: |ground| ground.ask_raw("POST /v1/sandboxes/box/files/prune?path=.", b"d/a\0d\0"),
    settle: |_| {},
    check: |ground, told| {
        let found = ground.daemon.shell("box", "find . -type f -o -name d | sort | tr '\\n' ' '");
        let all = found == "./d ./d/a ./kept ";
        assert!(found == "./kept " || (all && !matches!(told, Told::Done(_))), "{found}");
    },
    last: Point::PruneAudited,
    keeps: &[],
};

pub(crate) const SYNC: Scene = Scene {
    name: "start a live sync",
    prepare: prepare_host,
    act: |ground| {
        let body = json!({"sandbox": "box", "host_path": host_root(ground).join("tree"), "path": "tree"});
        ground.ask("POST /v1/syncs", Some(&body))
    },
    settle: |_| {},
    check: |ground, told| {
        let found = ground.daemon.shell("box", "find . -path './tree*' | sort");
        let whole = found == "./tree\n./tree/a\n./tree/b\n";
        assert!(whole || (found.is_empty() && !matches!(told, Told::Done(_))), "{found}");
        // One that was refused does not go on; one that was on record when the daemon died does.
        let syncs = ground.daemon.get("/v1/syncs");
        let going = syncs["syncs"].as_array().unwrap().iter().filter(|sync| sync["state"] != "ended").count();
        assert!(going == 0 || !matches!(told, Told::Refused(_)), "{syncs}");
        assert!(going == 1 || !matches!(told, Told::Done(_)), "{syncs}");
        for sync in syncs["syncs"].as_array().unwrap() {
            ground.daemon.http("DELETE", &format!("/v1/syncs/{}", sync["sync"].as_str().unwrap()), None);
        }
    },
    last: Point::SyncAudited,
    keeps: &[],
};
