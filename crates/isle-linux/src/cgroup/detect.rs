//! Which cgroups this daemon may write, found by looking and trying.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{Cgroups, Holds, v1, v2};
use crate::ids::user_name;

/// The leaf an ordinary user's daemon moves into.
const LEAF: &str = "isle-daemon";

/// Finds the best layout with room for sandboxes. `instance` names this daemon's directory in it.
pub(crate) fn detect(instance: &str) -> Cgroups {
    let mounts = mounts();
    let unified = mounts.iter().find(|mount| mount.kind == "cgroup2");
    let split: Vec<&Mount> = mounts.iter().filter(|mount| mount.kind == "cgroup").collect();
    if let Some(unified) = unified
        && controllers(&unified.path).contains(&"memory".to_owned())
    {
        return try_unified(unified, instance);
    }
    if !split.is_empty() {
        return try_split(&split, instance);
    }
    Cgroups::Absent {
        reason: "no cgroup controllers are mounted".into(),
        fix: "mount cgroup2 on /sys/fs/cgroup".into(),
    }
}

struct Mount {
    path: PathBuf,
    kind: String,
    options: String,
}

fn mounts() -> Vec<Mount> {
    let text = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    text.lines()
        .filter_map(|line| {
            let mut parts = line.split(' ');
            let path = parts.nth(1)?.into();
            let (kind, options) = (parts.next()?.to_owned(), parts.next()?.to_owned());
            Some(Mount { path, kind, options })
        })
        .collect()
}

fn controllers(directory: &Path) -> Vec<String> {
    let text = fs::read_to_string(directory.join("cgroup.controllers")).unwrap_or_default();
    text.split_whitespace().map(str::to_owned).collect()
}

fn try_split(mounts: &[&Mount], instance: &str) -> Cgroups {
    let find = |controller: &str| {
        let mount =
            mounts.iter().find(|mount| mount.options.split(',').any(|option| option == controller))?;
        let base = mount.path.join(instance);
        match fs::create_dir(&base) {
            Ok(()) => Some(base),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Some(base),
            Err(_) => None,
        }
    };
    let trees = v1::Trees {
        memory: find("memory"),
        pids: find("pids"),
        cpu: find("cpu"),
        cpuacct: find("cpuacct"),
        earlier: Vec::new(),
    };
    if trees.holds().memory || trees.holds().pids {
        return Cgroups::V1(trees);
    }
    Cgroups::Absent {
        reason: "cgroup v1 directories can only be created by root".into(),
        fix: "run the daemon as root, or boot with systemd.unified_cgroup_hierarchy=1 and a user session"
            .into(),
    }
}

/// As root: a directory at the top. As a user: below the own cgroup, when it was delegated; the
/// daemon then moves into a leaf, because a cgroup with processes cannot hand controllers down.
fn try_unified(mount: &Mount, instance: &str) -> Cgroups {
    let absent = |reason: String| Cgroups::Absent { reason, fix: delegation_fix() };
    let parent = if rustix::process::geteuid().is_root() {
        mount.path.clone()
    } else {
        let Some(own) = own_cgroup(&mount.path) else {
            return absent("the daemon's cgroup is unknown".into());
        };
        match delegated_home(&own, instance) {
            Ok(home) => home,
            Err(error) => {
                return absent(format!(
                    "the cgroup {} is not delegated to this user: {error}",
                    own.display()
                ));
            }
        }
    };
    let base = parent.join(instance);
    let hand_down = |directory: &Path| {
        for controller in ["memory", "pids", "cpu"] {
            // What is not available stays missing and is reported.
            fs::write(directory.join("cgroup.subtree_control"), format!("+{controller}")).ok();
        }
    };
    hand_down(&parent);
    if let Err(error) = fs::create_dir_all(&base) {
        return absent(format!("{} cannot be created: {error}", base.display()));
    }
    hand_down(&base);
    let enabled = fs::read_to_string(base.join("cgroup.subtree_control")).unwrap_or_default();
    let has = |name: &str| enabled.split_whitespace().any(|one| one == name);
    let holds = Holds { memory: has("memory"), pids: has("pids"), cpu: has("cpu") };
    if holds.memory || holds.pids {
        return Cgroups::V2(v2::Tree { base, holds, earlier: None });
    }
    absent(format!("{} has no controllers enabled", base.display()))
}

/// The cgroup an ordinary user's daemon has its sandboxes in, with the daemon in a leaf of it.
fn delegated_home(own: &Path, instance: &str) -> io::Result<PathBuf> {
    if let Some(home) = own.ancestors().find(|path| path.ends_with(LEAF)).and_then(Path::parent) {
        return Ok(home.to_path_buf());
    }
    // Sandboxes outlive their daemon in the scope it was started in. A later one, in a scope beside
    // that, moves over to them: their accounts and limits stay within reach, and no scope is left over.
    let beside = own.parent().and_then(|slice| fs::read_dir(slice).ok()).into_iter().flatten().flatten();
    let earlier = beside.map(|entry| entry.path()).filter(|path| path != own && path.join(instance).is_dir());
    for home in earlier {
        if enter_leaf(&home).is_ok() {
            return Ok(home);
        }
    }
    enter_leaf(own)?;
    Ok(own.to_path_buf())
}

/// Moves this process into the leaf of a cgroup.
fn enter_leaf(home: &Path) -> io::Result<()> {
    let leaf = home.join(LEAF);
    fs::create_dir_all(&leaf)?;
    fs::write(leaf.join("cgroup.procs"), std::process::id().to_string())
}

/// The command that gets this user a delegated cgroup. With a service manager within reach `isle` asks
/// it by itself; so either the manager is out of reach, or the daemon was started by hand.
fn delegation_fix() -> String {
    let uid = rustix::process::geteuid().as_raw();
    if uid == 0 {
        // Only inside another container: the top of its tree holds processes and no rights.
        return "mkdir -p /sys/fs/cgroup/init; xargs -rn1 </sys/fs/cgroup/cgroup.procs \
                >/sys/fs/cgroup/init/cgroup.procs; isle restart"
            .into();
    }
    let runtime = format!("/run/user/{uid}");
    let set = std::env::var_os("XDG_RUNTIME_DIR");
    let reachable = |directory: &Path| directory.join("systemd/private").exists();
    if set.is_some_and(|set| reachable(Path::new(&set))) {
        return "isle stop; systemd-run --user --scope -p Delegate=yes isle serve".into();
    }
    if reachable(Path::new(&runtime)) {
        return format!("export XDG_RUNTIME_DIR={runtime}; isle restart");
    }
    if Path::new("/run/systemd/system").exists() {
        let user = user_name(uid).unwrap_or_else(|| "$USER".into());
        return format!("sudo loginctl enable-linger {user}; export XDG_RUNTIME_DIR={runtime}; isle restart");
    }
    "run the daemon as root, or in a cgroup delegated to this user".into()
}

fn own_cgroup(mount: &Path) -> Option<PathBuf> {
    let text = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = text.lines().find_map(|line| line.strip_prefix("0::"))?;
    Some(mount.join(path.trim_start_matches('/')))
}
