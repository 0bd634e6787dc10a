//! Control groups from inside: a guest sees none of the host's that it could write, and no descriptor or path
//! that leads out of its own.

use serde_json::json;

use crate::harness::{TestDaemon, needs_user, require, tiers};

/// Every file of a control group a guest could write, by path, by mounting, and by descriptors of others.
const ESCAPES: &str = r#"
import ctypes, glob, os
libc = ctypes.CDLL(None, use_errno=True)
places = ["/sys/fs/cgroup", "/cgroup"]
for number, kind in enumerate(("cgroup2", "cgroup")):
    place = os.path.join(os.getcwd(), f"cg{number}")
    os.makedirs(place, exist_ok=True)
    for options in (None, b"pids", b"memory", b"none,name=x"):
        if libc.mount(b"none", place.encode(), kind.encode(), 0, options) == 0: print("mounted", kind, options); places.append(place)
names = ("cgroup.procs", "tasks", "cgroup.subtree_control", "cgroup.kill", "cgroup.freeze", "release_agent", "notify_on_release", "cgroup.threads", "memory.max", "pids.max")
def attempt(path):
    try: descriptor = os.open(path, os.O_WRONLY)
    except OSError: return
    print("opens", path); os.close(descriptor)
for place in places:
    for directory, _, _ in os.walk(place):
        for name in names: attempt(os.path.join(directory, name))
        try: os.mkdir(os.path.join(directory, "made")); print("made", directory)
        except OSError: pass
for link in glob.glob("/proc/[0-9]*/fd/*"):
    try: target = os.readlink(link)
    except OSError: continue
    if any(target.endswith("/" + name) for name in names) or "cgroup" in target: print("inherits", link, target)
try:
    for line in open("/proc/self/cgroup"):
        path = line.strip().split(":", 2)[2]
        for place in places:
            for name in names: attempt(place + path + "/" + name); attempt(place + path + "/../" + name)
except OSError: pass
print("done")
"#;

#[test]
fn a_guest_can_write_no_control_group() {
    let daemon = TestDaemon::start();
    for tier in tiers() {
        daemon.post("/v1/sandboxes", json!({"sandbox": tier, "tier": tier, "allow_downgrade": true}));
        let users: &[&str] = if *tier == "container" { &["sandbox", "root"] } else { &["sandbox"] };
        for user in users {
            let run = daemon.exec(tier, json!({"argv": ["python3", "-c", ESCAPES], "user": user}));
            assert_eq!(run["stdout"], "done\n", "{tier} as {user}: {run}");
        }
    }
}

#[test]
fn a_sandbox_whose_control_groups_were_removed_from_outside_is_destroyed_all_the_same() {
    // As when a service manager removes the scope, or somebody of the same user plays with it.
    let daemon = TestDaemon::start();
    daemon.shell("box", "true");
    daemon.shell("other", "echo kept > file");
    require!(needs_user(!daemon.counts().cgroups.is_empty(), "this user has no cgroups"));
    let id = daemon.get("/v1/status?sandbox=box")["sandboxes"][0]["id"].as_str().map(str::to_owned);
    let id = id.unwrap_or_else(|| {
        let listed = daemon.get("/v1/sandboxes");
        let all = listed["sandboxes"].as_array().unwrap();
        all.iter().find(|one| one["name"] == "box").unwrap()["id"].as_str().unwrap().to_owned()
    });
    for cgroup in daemon.counts().cgroups.iter().filter(|path| path.ends_with(&id)) {
        // Its processes are moved to the top, and the directory goes.
        let members = std::fs::read_to_string(format!("{cgroup}/cgroup.procs")).unwrap();
        let top = std::path::Path::new(cgroup).parent().unwrap().parent().unwrap().join("cgroup.procs");
        for pid in members.lines() {
            std::fs::write(&top, pid).unwrap();
        }
        std::fs::remove_dir(cgroup).unwrap();
    }
    // Killed by its own first process, not by what a control group lists.
    daemon.succeeds(&["rm", "box", "--wipe"]);
    assert_eq!(daemon.shell("other", "cat file"), "kept\n");
    assert_eq!(daemon.names(), ["other"]);
}
