//! One operation each, through the real door: what is there before, the call, and what must be so
//! afterwards, given what the caller was told.

use std::sync::atomic::{AtomicUsize, Ordering};

use isle_fail::Point;
use serde_json::{Value, json};

use crate::deadline_scenes::{EXTEND, PAUSE, RESUME, SWEEP, USE};
use crate::ground::{Ground, Told, assert_usable};
use crate::harness::until;

#[path = "child_scenes.rs"]
pub(crate) mod children;
#[path = "mirror_scenes.rs"]
pub(crate) mod mirror;
#[path = "network_scenes.rs"]
pub(crate) mod network;
#[path = "webhook_scenes.rs"]
pub(crate) mod webhooks;

/// One operation.
#[derive(Debug)]
pub(crate) struct Scene {
    pub(crate) name: &'static str,
    /// Makes what the operation needs.
    pub(crate) prepare: fn(&mut Ground),
    /// Calls it.
    pub(crate) act: fn(&Ground) -> Told,
    /// Brings to its end what it leaves going on.
    pub(crate) settle: fn(&Ground),
    /// Compares what was told with what is.
    pub(crate) check: fn(&Ground, &Told),
    /// What is passed last, maybe after the answer.
    pub(crate) last: Point,
    /// Workspaces that may be there without a sandbox.
    pub(crate) keeps: &'static [&'static str],
}

/// All of them.
pub(crate) const SCENES: &[Scene] = &[
    CREATE,
    CREATE_PROCESS,
    EXEC,
    TURN,
    INPUT,
    ATTACH,
    ONE_SHOT,
    ONE_SHOT_PROCESS,
    WRITE,
    REMOVE,
    EDIT,
    MOVE,
    UNPACK,
    COPY_OUT,
    PRUNE,
    mirror::PUSH,
    mirror::PULL,
    SYNC,
    DESTROY,
    WIPE,
    WIPE_PROCESS,
    WIPE_KEPT,
    RESET,
    RESET_EMPTIED,
    ENV,
    EXTEND,
    USE,
    PAUSE,
    RESUME,
    SWEEP,
    children::SPAWN,
    children::CASCADE,
    children::DESTROY_CHILD,
    children::RESET_COUNT,
    children::BRIDGE,
    GRANT,
    TRUST,
    network::NAMESPACE,
    network::APPROVE,
    network::DENY,
    SECRET,
    SECRET_REMOVE,
    SECRET_USE,
    SECRET_DESTROY,
    webhooks::ADD,
    webhooks::DELIVER,
    webhooks::REMOVE,
];

fn create(ground: &Ground, settings: Value) -> Told {
    ground.ask("POST /v1/sandboxes", Some(&settings))
}

fn check_created(ground: &Ground, told: &Told) {
    let there = ground.names().contains("box");
    assert!(there || !matches!(told, Told::Done(_)), "it was acknowledged and is lost");
    if !there {
        assert!(ground.volumes().is_empty(), "half of it is left: {:?}", ground.volumes());
    }
    // Whole, or not at all: in both cases the name can be used.
    assert_usable(ground, "box");
}

pub(crate) const CREATE: Scene = Scene {
    name: "create",
    prepare: Ground::cool_down,
    act: |ground| create(ground, json!({"sandbox": "box"})),
    settle: |_| {},
    check: check_created,
    last: Point::CreateConfirmed,
    keeps: &[],
};

pub(crate) const CREATE_PROCESS: Scene = Scene {
    name: "create, tier process",
    act: |ground| create(ground, json!({"sandbox": "box", "tier": "process", "allow_downgrade": true})),
    ..CREATE
};

/// Counts itself, and says more than an agent keeps until the next run.
const COUNTED: &str = "echo run >> count; seq 1 5000";
const COUNTED_BYTES: u64 = 23_893;
/// Tells the commands of one play from those of another: history stays.
static PLAYS: AtomicUsize = AtomicUsize::new(0);

fn counted() -> String {
    format!("{COUNTED} # {}", PLAYS.load(Ordering::Relaxed))
}

pub(crate) const EXEC: Scene = Scene {
    name: "exec",
    prepare: |ground| drop(ground.daemon.shell("box", "true")),
    act: |ground| {
        PLAYS.fetch_add(1, Ordering::Relaxed);
        ground.ask("POST /v1/sandboxes/box/exec", Some(&json!({"command": counted()})))
    },
    settle: |_| {},
    check: |ground, told| {
        let runs = ground.daemon.get("/v1/runs?sandbox=box&limit=100");
        let runs: Vec<Value> = runs["runs"].as_array().unwrap().clone();
        let counted: Vec<&Value> = runs.iter().filter(|run| run["command"] == counted()).collect();
        assert!(counted.len() <= 1, "{counted:?}");
        let count = ground.daemon.shell("box", "cat count 2>/dev/null || true").lines().count();
        assert!(count <= 1, "it ran {count} times");
        if let Told::Done(answer) = told {
            let run: Value = serde_json::from_str(answer).unwrap();
            if run["state"] == "completed" {
                assert_eq!((count, counted.len()), (1, 1));
                assert_eq!(counted[0]["state"], "completed", "{run} and now {}", counted[0]);
                let logs = ground
                    .daemon
                    .get(&format!("/v1/runs/{}/logs?stream=stdout", run["run_id"].as_str().unwrap()));
                assert_eq!(logs["stdout"]["total_bytes"], COUNTED_BYTES, "{logs}");
            }
        }
    },
    last: Point::ExecForgotten,
    keeps: &[],
};

/// A run that has the lock until the file `go` is there.
fn hold_the_lock(ground: &Ground) {
    let holder = json!({"command": "while ! [ -e go ]; do sleep 0.02; done", "lock": true, "wait": "0s"});
    ground.daemon.exec("box", holder);
}

pub(crate) const TURN: Scene = Scene {
    name: "exec with lock",
    prepare: hold_the_lock_and_count,
    act: |ground| {
        PLAYS.fetch_add(1, Ordering::Relaxed);
        let body = json!({"command": counted(), "lock": true, "wait": "0s"});
        let told = ground.ask("POST /v1/sandboxes/box/exec", Some(&body));
        if let Told::Done(answer) = &told {
            let run: Value = serde_json::from_str(answer).unwrap();
            assert_eq!(run["state"], "queued", "{run}");
        }
        // Its turn comes; the daemon may die of it, or of the exec that brings it.
        let _ = ground.ask("POST /v1/sandboxes/box/exec", Some(&json!({"command": "touch go"})));
        told
    },
    settle: |ground| drop(ground.daemon.shell("box", "touch go")),
    check: |ground, told| {
        let open = |state: &str| ground.daemon.get(&format!("/v1/runs?state={state}"))["runs"].clone();
        until("nothing waits and nothing runs", || {
            open("queued") == json!([]) && open("running") == json!([])
        });
        let runs = ground.daemon.get("/v1/runs?sandbox=box&limit=100");
        let runs: Vec<Value> = runs["runs"].as_array().unwrap().clone();
        let counted: Vec<&Value> = runs.iter().filter(|run| run["command"] == counted()).collect();
        let count = ground.daemon.shell("box", "cat count 2>/dev/null || true").lines().count();
        assert!(counted.len() <= 1 && count <= 1, "it ran {count} times: {counted:?}");
        assert!(!counted.is_empty() || !matches!(told, Told::Done(_)), "it was acknowledged and is lost");
        if let Some(run) = counted.first() {
            // Who is told that it never ran must be right, and so must who is told that it did.
            assert!(run["state"] != "cancelled" || count == 0, "{run}: it ran");
            assert!(run["state"] != "completed" || count == 1, "{run}: it did not run");
        }
    },
    last: Point::ExecForgotten,
    keeps: &[],
};

fn hold_the_lock_and_count(ground: &mut Ground) {
    ground.daemon.shell("box", "rm -f go count");
    hold_the_lock(ground);
}

/// A job that waits for input in the sandbox `box`.
fn start_reader(ground: &mut Ground) {
    ground.daemon.shell("box", "rm -f heard");
    let reader =
        json!({"name": "reader", "command": "while read x; do echo $x >> heard; done", "input": true});
    ground.daemon.post("/v1/sandboxes/box/jobs", reader);
}

/// Whatever happened to whoever spoke to it, the job goes on and hears until its input ends.
fn end_reader(ground: &Ground) {
    let ended = ground.daemon.post("/v1/runs/box:reader/input", json!({"eof": true}));
    assert_eq!(ended["ended"], true, "{ended}");
    let ended = ground.daemon.post("/v1/runs/box:reader/wait", json!({"timeout": "60s"}));
    assert_eq!(ended["state"], "completed", "{ended}");
}

pub(crate) const INPUT: Scene = Scene {
    name: "write to a job",
    prepare: start_reader,
    act: |ground| ground.ask("POST /v1/runs/box:reader/input", Some(&json!({"text": "word\n"}))),
    settle: end_reader,
    check: |ground, told| {
        let heard = ground.daemon.shell("box", "cat heard 2>/dev/null || true");
        let lost = heard.is_empty() && !matches!(told, Told::Done(_));
        assert!(lost || heard == "word\n", "never twice: {heard}");
    },
    last: Point::InputAudited,
    keeps: &[],
};

/// Looks at the job for a moment, over the door a viewer comes through.
fn look(ground: &Ground) -> Told {
    ground.forget_passed();
    let output = ground
        .daemon
        .isle(&["attach", "--json", "box:reader"])
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::piped())
        .spawn();
    let mut child = output.unwrap();
    // It goes on looking until it is told not to, or the daemon dies of it.
    until("it looks, or cannot", || {
        ground.passed().iter().any(|name| name == Point::AttachAudited.name())
            || ground.has_fired()
            || child.try_wait().unwrap().is_some()
    });
    child.kill().ok();
    child.wait().unwrap();
    Told::Done(String::new())
}

pub(crate) const ATTACH: Scene = Scene {
    name: "attach",
    prepare: start_reader,
    act: look,
    settle: end_reader,
    check: |_, _| {},
    last: Point::AttachAudited,
    keeps: &[],
};

fn run_once(ground: &Ground, tier: &str) -> Told {
    let files = json!([{"path": "given", "content": "placed"}]);
    let body = json!({"command": "cat given", "files": files, "tier": tier, "allow_downgrade": true});
    ground.ask("POST /v1/runs", Some(&body))
}

fn check_once(ground: &Ground, told: &Told) {
    assert!(ground.names().is_empty());
    if let Told::Done(answer) = told {
        let run: Value = serde_json::from_str(answer).unwrap();
        let now =
            ground.daemon.post(&format!("/v1/runs/{}/wait", run["run_id"].as_str().unwrap()), json!({}));
        assert_eq!((&run["state"], &run["stdout"]), (&now["state"], &now["stdout"]), "as it was told");
    }
}

pub(crate) const ONE_SHOT: Scene = Scene {
    name: "run once",
    prepare: Ground::cool_down,
    act: |ground| run_once(ground, "container"),
    settle: |_| {},
    check: check_once,
    last: Point::OneShotRemoved,
    keeps: &[],
};

pub(crate) const ONE_SHOT_PROCESS: Scene =
    Scene { name: "run once, tier process", act: |ground| run_once(ground, "process"), ..ONE_SHOT };

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
fn host_root(ground: &Ground) -> std::path::PathBuf {
    ground.file("root")
}

fn prepare_host(ground: &mut Ground) {
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

pub(crate) const DESTROY: Scene = Scene {
    name: "destroy",
    prepare: |ground| drop(ground.daemon.shell("box", "echo kept > file")),
    act: |ground| ground.ask("DELETE /v1/sandboxes/box", None),
    settle: |_| {},
    check: |ground, told| {
        assert!(!(matches!(told, Told::Done(_)) && ground.names().contains("box")), "it is back");
        assert_eq!(ground.daemon.shell("box", "cat file"), "kept\n", "the workspace stays in any case");
    },
    last: Point::DestroyForgotten,
    keeps: &["box"],
};

fn check_wiped(ground: &Ground, told: &Told) {
    if matches!(told, Told::Done(_)) {
        assert!(!ground.names().contains("box"), "it is back");
        assert!(!ground.volumes().contains("box"), "its workspace is still there");
    }
    let found = ground.daemon.shell("box", "cat file 2>/dev/null || true");
    assert!(found.is_empty() || (found == "kept\n" && !matches!(told, Told::Done(_))), "{found}");
}

pub(crate) const WIPE: Scene = Scene {
    name: "destroy and wipe",
    act: |ground| ground.ask("DELETE /v1/sandboxes/box?wipe=true", None),
    check: check_wiped,
    ..DESTROY
};

pub(crate) const WIPE_PROCESS: Scene = Scene {
    name: "destroy and wipe, tier process",
    prepare: |ground| {
        let told = create(ground, json!({"sandbox": "box", "tier": "process", "allow_downgrade": true}));
        assert!(matches!(told, Told::Done(_)), "{told:?}");
        ground.daemon.shell("box", "echo kept > file");
    },
    ..WIPE
};

pub(crate) const WIPE_KEPT: Scene = Scene {
    name: "wipe a workspace without a sandbox",
    prepare: |ground| {
        ground.daemon.shell("box", "echo kept > file");
        let told = ground.ask("DELETE /v1/sandboxes/box", None);
        assert!(matches!(told, Told::Done(_)), "{told:?}");
    },
    last: Point::WipeRemoved,
    ..WIPE
};

/// A sandbox with settings of its own, something in its workspace and something that a reset takes.
fn prepare_reset(ground: &mut Ground) {
    let told = create(ground, json!({"sandbox": "box", "pids": 77}));
    assert!(matches!(told, Told::Done(_)), "{told:?}");
    ground.daemon.shell("box", "echo kept > file; echo kept > ~/.cache/file; echo gone > ~/gone");
}

pub(crate) const RESET: Scene = Scene {
    name: "reset",
    prepare: prepare_reset,
    act: |ground| ground.ask("POST /v1/sandboxes/box/reset", Some(&json!({}))),
    settle: |_| {},
    check: |ground, told| {
        let status = ground.daemon.get("/v1/status?sandbox=box");
        assert_eq!(status["detail"]["limits"]["pids"], 77, "its settings stay in any case: {status}");
        let found = ground.daemon.shell("box", "cat file ~/.cache/file; cat ~/gone 2>/dev/null || true");
        let allowed: &[&str] = match told {
            Told::Done(_) => &["kept\nkept\n"],
            Told::Refused(_) | Told::Nothing => &["kept\nkept\n", "kept\nkept\ngone\n"],
        };
        assert!(allowed.contains(&found.as_str()), "{found}");
    },
    last: Point::ReplaceForgotten,
    keeps: &[],
};

pub(crate) const RESET_EMPTIED: Scene = Scene {
    name: "reset with an empty workspace",
    act: |ground| ground.ask("POST /v1/sandboxes/box/reset", Some(&json!({"wipe": true}))),
    check: |ground, told| {
        let found = ground.daemon.shell("box", "cat ~/.cache/file; cat file 2>/dev/null || true");
        let allowed: &[&str] = match told {
            Told::Done(_) => &["kept\n"],
            Told::Refused(_) | Told::Nothing => &["kept\n", "kept\nkept\n"],
        };
        assert!(allowed.contains(&found.as_str()), "{found}");
    },
    ..RESET
};

pub(crate) const GRANT: Scene = Scene {
    name: "grant network",
    prepare: |ground| {
        ground.daemon.post("/v1/sandboxes/box/grants", json!({"hosts": ["old.test:443"]}));
    },
    act: |ground| ground.ask("POST /v1/sandboxes/box/grants", Some(&json!({"hosts": ["new.test:443"]}))),
    settle: |_| {},
    check: |ground, told| {
        let grants = ground.daemon.get("/v1/sandboxes/box/grants").to_string();
        assert!(grants.contains("old.test:443"), "an earlier grant is lost: {grants}");
        let done = matches!(told, Told::Done(_));
        assert!(grants.contains("new.test:443") || !done, "it was acknowledged and is lost: {grants}");
    },
    last: Point::GrantRecorded,
    keeps: &[],
};

/// The first command after requests were granted that are looked at inside TLS.
pub(crate) const TRUST: Scene = Scene {
    name: "trust the opened gate",
    prepare: |ground| {
        ground.daemon.post("/v1/sandboxes/box/grants", json!({"hosts": ["https://new.test/a GET"]}));
    },
    act: |ground| {
        // It says more than an agent keeps until the next run.
        let command = json!({"command": "cat /etc/isle/ca.pem; seq 1 5000"});
        ground.ask("POST /v1/sandboxes/box/exec", Some(&command))
    },
    settle: |_| {},
    check: |ground, told| {
        let now = ground.daemon.shell("box", "cat /etc/isle/ca.pem");
        assert!(now.starts_with("-----BEGIN CERTIFICATE-----"), "{now}");
        if let Told::Done(answer) = told {
            let run: Value = serde_json::from_str(answer).unwrap();
            let then = run["stdout"].as_str().unwrap_or_default();
            assert!(run["state"] != "completed" || then.starts_with(&now), "another authority: {then} {now}");
        }
    },
    last: Point::ExecForgotten,
    keeps: &[],
};

/// No secret, and no key: the first one makes it.
fn forget_secrets(ground: &Ground) {
    for name in ["OLD", "NEW"] {
        ground.daemon.http("DELETE", &format!("/v1/secrets/{name}"), None);
    }
    std::fs::remove_file(ground.daemon.home().state_dir().join("vault.key")).ok();
}

fn secret(ground: &Ground, name: &str) -> Value {
    let listed = ground.daemon.get("/v1/secrets");
    assert!(listed.get("locked").is_none(), "{listed}");
    let all = listed["secrets"].as_array().unwrap();
    all.iter().find(|one| one["name"] == name).cloned().unwrap_or_default()
}

pub(crate) const SECRET: Scene = Scene {
    name: "set the first secret",
    prepare: |ground| forget_secrets(ground),
    act: |ground| {
        let body = json!({"name": "NEW", "value": "a new value", "hosts": ["api.test"]});
        ground.ask("POST /v1/secrets", Some(&body))
    },
    settle: |_| {},
    check: |ground, told| {
        let done = matches!(told, Told::Done(_));
        assert!(!done || secret(ground, "NEW")["version"] == 1, "it was acknowledged and is lost");
        // Whatever is there can be opened, and set anew.
        let body = json!({"name": "NEW", "value": "another value", "hosts": ["api.test"]});
        ground.daemon.post("/v1/secrets", body);
        let run = ground.daemon.exec("box", json!({"command": "echo $NEW", "expose_secrets": ["NEW"]}));
        assert_eq!(run["stdout"], "[secret NEW]\n", "{run}");
    },
    last: Point::SecretRecorded,
    keeps: &[],
};

pub(crate) const SECRET_REMOVE: Scene = Scene {
    name: "remove a secret",
    prepare: |ground| {
        ground.daemon.post("/v1/secrets", json!({"name": "OLD", "value": "an old value"}));
    },
    act: |ground| ground.ask("DELETE /v1/secrets/OLD", None),
    settle: |_| {},
    check: |ground, told| {
        let done = matches!(told, Told::Done(_));
        assert!(!done || secret(ground, "OLD").is_null(), "it was removed and is there again");
    },
    last: Point::SecretRemoved,
    keeps: &[],
};

pub(crate) const SECRET_USE: Scene = Scene {
    name: "give a sandbox a secret",
    prepare: |ground| {
        ground
            .daemon
            .post("/v1/secrets", json!({"name": "OLD", "value": "an old value", "hosts": ["a.test"]}));
        ground.daemon.shell("box", "true");
    },
    act: |ground| ground.ask("POST /v1/sandboxes/box/secrets", Some(&json!({"expose": ["OLD"]}))),
    settle: |_| {},
    check: |ground, told| {
        let found = ground.daemon.shell("box", "echo ${OLD-none}");
        let done = matches!(told, Told::Done(_));
        assert!(found == "[secret OLD]\n" || (found == "none\n" && !done), "{found}");
    },
    last: Point::SecretUseRecorded,
    keeps: &[],
};

pub(crate) const SECRET_DESTROY: Scene = Scene {
    name: "destroy a sandbox that has a secret",
    prepare: |ground| {
        (SECRET_USE.prepare)(ground);
        ground.daemon.post("/v1/sandboxes/box/secrets", json!({"expose": ["OLD"]}));
        ground.daemon.shell("box", "printf %s \"$OLD\" > kept");
    },
    act: |ground| ground.ask("DELETE /v1/sandboxes/box", None),
    settle: |_| {},
    check: |ground, told| {
        let found = ground.daemon.shell("box", "echo ${OLD-none}; cat kept");
        let done = matches!(told, Told::Done(_));
        assert!(found == "none\n[secret OLD]" || (found == "[secret OLD]\n[secret OLD]" && !done), "{found}");
    },
    last: Point::DestroyForgotten,
    keeps: &["box"],
};

pub(crate) const ENV: Scene = Scene {
    name: "set a variable",
    prepare: |ground| {
        let old = json!({"action": "set", "variables": {"A": "old", "B": "old"}});
        ground.daemon.post("/v1/sandboxes/box/env", old);
    },
    act: |ground| {
        let new = json!({"action": "set", "variables": {"A": "new", "B": "new"}});
        ground.ask("POST /v1/sandboxes/box/env", Some(&new))
    },
    settle: |_| {},
    check: |ground, told| {
        let found = ground.daemon.shell("box", "echo $A $B");
        let done = matches!(told, Told::Done(_));
        assert!(found == "new new\n" || (found == "old old\n" && !done), "{found}");
    },
    last: Point::StoreCommitted,
    keeps: &[],
};
