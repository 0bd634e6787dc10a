//! A state of an earlier version, which named what it made after the path of its state directory: what its
//! records name is taken over, and nothing else under those names is touched.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use crate::harness::{TestDaemon, instance, needs_root, require, skip, until};

/// The name an earlier version derived from a path.
fn earlier(path: &Path) -> String {
    let hash = path.as_os_str().as_encoded_bytes().iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}

/// The directories a daemon has in the trees of control groups.
fn bases(name: &str) -> Vec<PathBuf> {
    let trees = std::fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten();
    let links = trees.filter(|tree| tree.file_type().is_ok_and(|kind| kind.is_dir()));
    links.map(|tree| tree.path().join(name)).filter(|base| base.is_dir()).collect()
}

#[test]
fn what_the_records_of_an_earlier_version_name_is_taken_over_and_nothing_else() {
    require!(needs_root("rename control groups"));
    let mut daemon = TestDaemon::start();
    daemon.shell("box", "echo kept > file");
    let job = json!({"name": "work", "command": "while read x; do echo got $x; done", "input": true});
    daemon.post("/v1/sandboxes/box/jobs", job);
    let id = daemon.get("/v1/sandboxes")["sandboxes"][0]["id"].as_str().unwrap().to_owned();
    daemon.kill();
    // Everything gets the name it would have had.
    let (state, runtime) = (daemon.home().state_dir(), daemon.home().runtime_dir());
    let name = instance(&state);
    let old = format!("isle-{}", earlier(&state.join("native")));
    for base in bases(&name) {
        if let Err(error) = std::fs::rename(&base, base.with_file_name(&old)) {
            daemon.launch();
            skip!("control groups cannot be renamed here: {error}");
        }
    }
    let digits = name.strip_prefix("isle-").unwrap();
    std::fs::rename(runtime.join(digits), runtime.join(earlier(&state))).unwrap();
    std::fs::remove_file(runtime.join(format!("{digits}.sock"))).unwrap();
    std::fs::remove_file(state.join("instance")).unwrap();
    // The lock of such a version has no record of an identity.
    std::fs::write(state.join("isle.lock"), "1\n").unwrap();
    // Somebody else at the same path has a sandbox under the same name.
    let foreign = format!("{}{}", &id[..id.len() - 1], if id.ends_with('0') { '1' } else { '0' });
    let mut theirs = Command::new("sleep").arg("600").spawn().unwrap();
    let others: Vec<PathBuf> = bases(&old).iter().map(|base| base.join(&foreign)).collect();
    for cgroup in &others {
        std::fs::create_dir(cgroup).unwrap();
        std::fs::write(cgroup.join("cgroup.procs"), theirs.id().to_string()).unwrap();
    }
    daemon.launch();
    let listed = daemon.get("/v1/jobs?sandbox=box&state=running");
    let file = daemon.shell("box", "cat file");
    daemon.succeeds(&["rm", "box", "--wipe"]);
    let left: Vec<PathBuf> =
        bases(&old).iter().map(|base| base.join(&id)).filter(|one| one.exists()).collect();
    let untouched = theirs.try_wait().unwrap().is_none() && others.iter().all(|cgroup| cgroup.is_dir());
    theirs.kill().unwrap();
    theirs.wait().unwrap();
    // A one-shot that died with its daemon has no record, so what is left of it nobody takes over.
    until("nothing of it is left", || {
        for base in bases(&old) {
            let below = std::fs::read_dir(&base).into_iter().flatten().flatten();
            below.filter(|one| one.path().is_dir()).for_each(|one| drop(std::fs::remove_dir(one.path())));
            std::fs::remove_dir(&base).ok();
        }
        bases(&old).is_empty()
    });
    assert_eq!(listed["jobs"].as_array().unwrap().len(), 1, "{listed}");
    assert_eq!(file, "kept\n");
    assert!(left.is_empty(), "its own were removed: {left:?}");
    assert!(untouched, "what no record names is somebody else's");
}
