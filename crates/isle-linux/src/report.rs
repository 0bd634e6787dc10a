//! Containment reports: what each tier promises, and what of it this host enforces.

use isle_core::backend::{Containment, Guarantee, GuaranteeStatus, Lifetime, Offer, SandboxSpec, Tier};
use isle_wire::{Missing, Welcome};

use super::attacks;
use super::capabilities;
use super::cgroup::Cgroups;
use super::facts::Facts;

/// Every guarantee of a tier for a sandbox that lives `lifetime` long, in a fixed order.
fn guarantees(facts: &Facts, cgroups: &Cgroups, tier: Tier, lifetime: Lifetime) -> Vec<Guarantee> {
    let mut lines = match tier {
        Tier::Container => container(facts, cgroups, lifetime),
        Tier::Process => process(facts, cgroups),
    };
    watch(facts, cgroups, tier, &mut lines);
    attacks::fill_open(facts, tier, &mut lines);
    lines
}

fn line(key: &str, outcome: Result<String, (String, String)>) -> Guarantee {
    let (status, how, fix) = match outcome {
        Ok(how) => (GuaranteeStatus::Enforced, how, String::new()),
        Err((how, fix)) => (GuaranteeStatus::Missing, how, fix),
    };
    Guarantee { key: key.into(), status, how, fix, open: Vec::new() }
}

fn container(facts: &Facts, cgroups: &Cgroups, lifetime: Lifetime) -> Vec<Guarantee> {
    let namespaces = facts.user_namespaces.clone();
    let ids = match (facts.root, &facts.id_problem, facts.id_helpers) {
        (true, _, _) => Ok("a private range of 65,536 host ids, never 0".into()),
        (false, Some(problem), _) => Err(problem.clone()),
        (false, None, true) => Ok("a private slice of this user's subordinate ids".into()),
        (false, None, false) => {
            Err(("newuidmap is missing".to_owned(), "sudo apt install uidmap".to_owned()))
        }
    };
    let mut lines = vec![
        line(
            "namespaces",
            namespaces.map(|()| "own user, pid, mount, network, ipc, uts and cgroup namespaces".into()),
        ),
        line("private_ids", ids),
        line(
            "own_root",
            Ok("its own root file system with the host's programs read-only; no other host files".into()),
        ),
        line(
            "no_network",
            Ok("a network namespace with loopback only; granted destinations are reachable transparently"
                .into()),
        ),
        line(
            "no_capabilities",
            Ok("none for the sandbox user; five, valid only in the sandbox's user namespace, for guest root"
                .into()),
        ),
        line("no_new_privileges", Ok("set for every process".into())),
    ];
    lines.extend(common(facts, cgroups).into_iter().map(|one| match one.key.as_str() {
        "pids_limit" if !cgroups.holds().pids => line("pids_limit", counted_by_namespace(facts)),
        _ => one,
    }));
    lines.push(disk(facts, lifetime));
    lines
}

/// Processes of a container that no cgroup counts.
fn counted_by_namespace(facts: &Facts) -> Result<String, (String, String)> {
    if facts.namespaces_count_processes {
        Ok("the kernel counts the processes of its user namespace against an rlimit".into())
    } else {
        Err((
            "an rlimit per user id only, and guest root can switch between many user ids".into(),
            "use Linux 5.14 or newer, or delegate cgroups to the daemon".into(),
        ))
    }
}

/// What tier `process` holds, and exactly what it does not: whatever needs namespaces, and, for an
/// ordinary user, whatever needs a user id of its own.
fn process(facts: &Facts, cgroups: &Cgroups) -> Vec<Guarantee> {
    let stronger = || "use tier `container`".to_owned();
    let lacks = |how: &str| Err((how.to_owned(), stronger()));
    let own_id = |with: &str, without: &str| {
        if facts.root {
            Ok(with.to_owned())
        } else {
            Err((without.to_owned(), "use tier `container`, or run the daemon as root".to_owned()))
        }
    };
    let signals = match (facts.landlock >= 6, facts.root) {
        (true, _) => Ok("Landlock blocks signals to processes outside the sandbox".to_owned()),
        (false, true) => Ok("no process outside the sandbox has its user id".to_owned()),
        (false, false) => Err((
            "the sandbox can signal other processes of the daemon's user".to_owned(),
            "use Linux 6.12 or newer, tier `container`, or run the daemon as root".to_owned(),
        )),
    };
    let mut lines = vec![
        line("namespaces", lacks("tier `process` shares the host's namespaces")),
        line(
            "own_root",
            lacks("host files are blocked by Landlock but visible: their names and sizes can be read"),
        ),
        line(
            "private_ids",
            own_id("a host user id of its own, never 0", "commands run as the daemon's user"),
        ),
        line(
            "file_attributes",
            own_id(
                "no file outside the sandbox belongs to its user id",
                "permissions, times and attributes of the daemon user's files can be changed: Landlock does not cover them",
            ),
        ),
        line("no_signals_out", signals),
        line(
            "no_processes_seen",
            Ok("/proc cannot be opened; ptrace and reading memory of other processes are blocked".into()),
        ),
        line(
            "no_shared_memory",
            Ok("System V IPC and message queues are blocked; /dev/shm cannot be opened".into()),
        ),
        line(
            "no_network",
            Ok("only connected socket pairs can be created; granted destinations are reachable through a proxy (HTTP CONNECT, SOCKS5)".into()),
        ),
        line("no_capabilities", Ok("none, and no guest root".into())),
        line("no_new_privileges", Ok("set for every process".into())),
    ];
    lines.extend(common(facts, cgroups).into_iter().map(|one| among_processes(facts, cgroups, one)));
    lines
        .push(line("disk_limit", lacks("an rlimit on the size of each file; the total size is not limited")));
    lines
}

/// A line both tiers have, as it is without namespaces.
fn among_processes(facts: &Facts, cgroups: &Cgroups, mut one: Guarantee) -> Guarantee {
    let holds = cgroups.holds();
    match one.key.as_str() {
        // The sandbox could truncate any file of the daemon's user.
        "landlock" if (1..3).contains(&facts.landlock) => {
            let how = format!("version {} does not cover truncating files", facts.landlock);
            return line("landlock", Err((how, "use Linux 6.2 or newer".into())));
        }
        "landlock" if (3..6).contains(&facts.landlock) => {
            let how = format!("version {}: files; signals need version 6", facts.landlock);
            return line("landlock", Ok(how));
        }
        "pids_limit" if !holds.pids && facts.root => {
            return line("pids_limit", Ok("an rlimit on the processes of its own user id".into()));
        }
        "pids_limit" if !holds.pids => {
            one.how.push_str("; an rlimit would count other processes of the daemon's user");
        }
        _ => {}
    }
    one
}

/// What the agent keeps in place of a cgroup.
fn watch(facts: &Facts, cgroups: &Cgroups, tier: Tier, lines: &mut [Guarantee]) {
    let holds = cgroups.holds();
    // Without namespaces the agent finds its processes by asking who is whose child.
    let sees = tier == Tier::Container || facts.lists_children;
    for one in lines {
        let how = match one.key.as_str() {
            "memory_limit" if !holds.memory && sees => {
                "watched, not enforced: the agent measures memory and kills the largest process at the limit; an rlimit bounds each process"
            }
            "pids_limit" if one.status == GuaranteeStatus::Missing && tier == Tier::Process && sees => {
                "watched, not enforced: the agent counts processes and kills those over the limit"
            }
            "cpu_limit" if !holds.cpu && sees => {
                "watched, not enforced: the agent measures CPU time and stops the sandbox while it is over its share"
            }
            _ => continue,
        };
        one.status = GuaranteeStatus::Watched;
        one.how = format!("{how} ({})", one.how);
    }
}

/// What both tiers have.
fn common(facts: &Facts, cgroups: &Cgroups) -> Vec<Guarantee> {
    let seccomp = if facts.seccomp_notifications {
        Ok("an allow-list of system calls".to_owned())
    } else {
        Err(("the kernel has no seccomp notifications".to_owned(), "use Linux 5.6 or newer".to_owned()))
    };
    let landlock = match facts.landlock {
        0 => Err(("the kernel has no Landlock".to_owned(), "boot with `lsm=landlock,…`".to_owned())),
        version if version < 6 => {
            Ok(format!("version {version}: files; namespaces confine signals and abstract sockets"))
        }
        version => Ok(format!("version {version}: files, devices, signals, abstract sockets")),
    };
    let holds = cgroups.holds();
    let (reason, fix) = match cgroups {
        Cgroups::Absent { reason, fix } => (reason.clone(), fix.clone()),
        Cgroups::V1(_) | Cgroups::V2(_) => (
            "the controller is not delegated".to_owned(),
            "delegate memory, pids and cpu to the daemon's cgroup".into(),
        ),
    };
    let limit = |key: &str, held: bool, how: &str| {
        line(key, if held { Ok(how.to_owned()) } else { Err((reason.clone(), fix.clone())) })
    };
    vec![
        line("seccomp", seccomp),
        line("landlock", landlock),
        limit("memory_limit", holds.memory, "memory cgroup"),
        limit("pids_limit", holds.pids, "pids cgroup"),
        limit("cpu_limit", holds.cpu, "cpu cgroup"),
    ]
}

fn disk(facts: &Facts, lifetime: Lifetime) -> Guarantee {
    match lifetime {
        Lifetime::OneShot => line(
            "disk_limit",
            Ok("a tmpfs with limited size and inodes, charged to the sandbox's memory".into()),
        ),
        Lifetime::Named if facts.images => {
            line("disk_limit", Ok("a file system image of limited size".into()))
        }
        Lifetime::Named => watched_disk(),
    }
}

fn watched_disk() -> Guarantee {
    Guarantee {
        key: "disk_limit".into(),
        status: GuaranteeStatus::Watched,
        how: "watched, not enforced: the sandbox is stopped while it is over the limit; deleted files count while they are open or mapped, except those that were only in a socket or a mapping whenever usage was measured".into(),
        fix:
            "run the daemon as root with e2fsprogs installed: each sandbox then gets its own file system image"
                .into(),
        open: Vec::new(),
    }
}

/// What each tier is worth on this host.
pub(super) fn offers(facts: &Facts, cgroups: &Cgroups) -> Vec<Offer> {
    [Tier::Container, Tier::Process].into_iter().map(|tier| offer(facts, cgroups, tier)).collect()
}

fn offer(facts: &Facts, cgroups: &Cgroups, tier: Tier) -> Offer {
    let guarantees = guarantees(facts, cgroups, tier, Lifetime::OneShot);
    let missing =
        |key: &str| guarantees.iter().any(|one| one.key == key && one.status == GuaranteeStatus::Missing);
    // Without these there is no sandbox of that tier at all.
    let vital: &[&str] = match tier {
        Tier::Container => &["namespaces", "private_ids", "seccomp"],
        Tier::Process => &["seccomp", "landlock"],
    };
    // These a tier does not promise.
    let known: &[&str] = match tier {
        Tier::Container => &[],
        Tier::Process => &["namespaces", "own_root", "private_ids", "file_attributes", "disk_limit"],
    };
    let possible = !vital.iter().any(|key| missing(key));
    let complete = guarantees
        .iter()
        .all(|one| one.status != GuaranteeStatus::Missing || known.contains(&one.key.as_str()));
    Offer {
        backend: crate::NAME,
        tier,
        capabilities: capabilities::of(facts, tier, Lifetime::Named),
        available: possible && complete,
        available_with_downgrade: possible,
        containment: Containment { tier, guarantees },
    }
}

/// What holds for one sandbox, its own set-up included.
pub(super) fn of_sandbox(
    facts: &Facts,
    cgroups: &Cgroups,
    spec: &SandboxSpec,
    welcome: &Welcome,
) -> Containment {
    let mut guarantees = guarantees(facts, cgroups, spec.tier, spec.lifetime);
    for Missing { key, reason } in &welcome.missing {
        let known = guarantees.iter_mut().find(|one| one.key == *key);
        match known {
            Some(line) => {
                line.status = GuaranteeStatus::Missing;
                line.how.clone_from(reason);
            }
            None => guarantees.push(Guarantee {
                key: key.clone(),
                status: GuaranteeStatus::Missing,
                how: reason.clone(),
                fix: String::new(),
                open: Vec::new(),
            }),
        }
    }
    attacks::fill_open(facts, spec.tier, &mut guarantees);
    Containment { tier: spec.tier, guarantees }
}
