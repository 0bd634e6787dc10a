//! Containment: what each tier promises, and what of it this host really enforces.

use isle_engine::backend::{Containment, Guarantee, GuaranteeStatus, Lifetime, Offer, SandboxSpec, Tier};
use isle_wire::{Missing, RATION_GENERATION, Welcome};

use super::cgroup::Cgroups;
use super::facts::Facts;
use super::open;

/// Every guarantee of a tier for a sandbox that lives `lifetime` long, in a fixed order.
fn guarantees(facts: &Facts, cgroups: &Cgroups, tier: Tier, lifetime: Lifetime) -> Vec<Guarantee> {
    let mut lines = match tier {
        Tier::Container => container(facts, cgroups, lifetime),
        Tier::Process => process(facts, cgroups),
    };
    watch(facts, cgroups, tier, &mut lines);
    open::name(facts, tier, &mut lines);
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
    let ids = match (facts.root, facts.subordinate_ids, facts.id_helpers) {
        (true, _, _) => Ok("a private range of 65,536 host ids, never 0".into()),
        (false, Some(count), true) if count >= 64 => {
            Ok("a private slice of this user's subordinate ids".into())
        }
        (false, Some(_), false) => {
            Err(("newuidmap is missing".to_owned(), "sudo apt install uidmap".to_owned()))
        }
        _ => Err((
            "this user has no subordinate ids".to_owned(),
            "sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 $USER".to_owned(),
        )),
    };
    let mut lines = vec![
        line(
            "namespaces",
            namespaces.map(|()| "own user, pid, mount, network, ipc, uts and cgroup namespaces".into()),
        ),
        line("private_ids", ids),
        line(
            "own_root",
            Ok("a root of its own, host programs read-only, nothing else of the host's files".into()),
        ),
        line(
            "no_network",
            Ok("a network namespace with loopback only; granted names are reached transparently".into()),
        ),
        line(
            "no_capabilities",
            Ok("none for the sandbox user; five inside its own user namespace for guest root".into()),
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
            "an rlimit on the processes of each of its user ids, of which guest root has many".into(),
            "use Linux 5.14 or newer, or give the daemon cgroups".into(),
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
        (true, _) => Ok("Landlock lets no signal out of the sandbox".to_owned()),
        (false, true) => Ok("no process outside has its user id".to_owned()),
        (false, false) => Err((
            "signals reach other processes of the daemon's user".to_owned(),
            "use Linux 6.12 or newer, tier `container`, or run the daemon as root".to_owned(),
        )),
    };
    let mut lines = vec![
        line("namespaces", lacks("tier `process` shares the host's namespaces")),
        line(
            "own_root",
            lacks("host files are closed by Landlock, not absent: their names and sizes can be looked up"),
        ),
        line(
            "private_ids",
            own_id("a host user id of its own, never 0", "commands run as the daemon's own user"),
        ),
        line(
            "file_attributes",
            own_id(
                "no file outside belongs to its user id",
                "permissions, times and attributes of the daemon user's files can be changed: Landlock does not cover them",
            ),
        ),
        line("no_signals_out", signals),
        line(
            "no_processes_seen",
            Ok("/proc cannot be opened, tracing and reading memory are refused".into()),
        ),
        line(
            "no_shared_memory",
            Ok("System V IPC and message queues are refused, /dev/shm cannot be opened".into()),
        ),
        line(
            "no_network",
            Ok("no sockets can be made but pairs connected to each other; granted names through a proxy (HTTP CONNECT, SOCKS5)".into()),
        ),
        line("no_capabilities", Ok("none, and no guest root".into())),
        line("no_new_privileges", Ok("set for every process".into())),
    ];
    lines.extend(common(facts, cgroups).into_iter().map(|one| among_processes(facts, cgroups, one)));
    lines.push(line("disk_limit", lacks("an rlimit on the size of each file; their sum is not limited")));
    lines
}

/// A line both tiers have, as it is without namespaces.
fn among_processes(facts: &Facts, cgroups: &Cgroups, mut one: Guarantee) -> Guarantee {
    let holds = cgroups.holds();
    match one.key.as_str() {
        // Anybody could cut off any file of the daemon's user.
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
                "watched, not enforced: the agent looks, and at the limit kills the largest process; one process alone is held by an rlimit"
            }
            "pids_limit" if one.status == GuaranteeStatus::Missing && tier == Tier::Process && sees => {
                "watched, not enforced: the agent looks, and ends what is too many"
            }
            "cpu_limit" if !holds.cpu && sees => {
                "watched, not enforced: the agent looks, and stops a sandbox that has used its share until it has more"
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
        version if version < 6 => Ok(format!(
            "version {version}: files; signals and abstract sockets stay inside by the namespaces"
        )),
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
        Lifetime::OneShot => {
            line("disk_limit", Ok("a tmpfs of limited size and inodes, charged to the sandbox".into()))
        }
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
        how: "watched, not enforced: at the limit the sandbox is stopped until there is room".into(),
        fix:
            "run the daemon as root with e2fsprogs installed: each sandbox then gets a file system of its own"
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
        tier,
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
    if welcome.generation < RATION_GENERATION {
        for one in guarantees
            .iter_mut()
            .filter(|one| ["memory_limit", "pids_limit", "cpu_limit"].contains(&one.key.as_str()))
        {
            if one.status == GuaranteeStatus::Watched {
                one.status = GuaranteeStatus::Missing;
                one.how = "the sandbox was made by an earlier version, whose agent does not watch".into();
                one.fix = "destroy it and make it anew; its workspace stays".into();
            }
        }
    }
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
    open::name(facts, spec.tier, &mut guarantees);
    Containment { tier: spec.tier, guarantees }
}
