//! The attacks themselves are tested: without a sandbox each must get through.

use std::collections::BTreeSet;

use isle_probe::Verdict;

use crate::harness::{processes_with, until};
use crate::range::{Range, assert_complete, with};
use crate::table;

/// Attacks that may fail without a sandbox, and why they are still worth trying in one.
const UNPROVEN: &[(&str, &str)] = &[
    ("fs.k8s_token", "only a pod has such a token"),
    ("fs.overlay_paths", "only a container's root has layers"),
    ("res.zombies", "a host has a first process that takes them away; a container without one does not"),
    ("fs.modprobe", "kernels without modules"),
    ("surf.modules", "kernels without modules"),
    ("fs.sysrq", "kernels without the magic keys"),
    ("fs.kcore", "kernels that do not show their memory"),
    ("fs.binfmt_misc", "kernels and hosts without binfmt_misc"),
    ("fs.kallsyms", "kernels that hide addresses from root too"),
    ("fs.keys", "kernels without keyrings"),
    ("surf.keyctl", "kernels without keyrings"),
    ("surf.kexec", "kernels that cannot load another one"),
    ("surf.x32", "kernels without the x32 calls"),
    ("surf.int80", "kernels without the 32-bit calls"),
    ("surf.modify_ldt", "kernels without local descriptor tables"),
    ("surf.io_ports", "kernels without access to ports"),
    ("surf.vsyscall", "kernels that no longer let the page be read"),
    ("surf.af_alg", "kernels without these sockets"),
    ("surf.memfd_secret", "kernels without it"),
    ("surf.perf_event", "hosts whose settings keep it for nobody"),
    ("surf.io_uring", "hosts that switched it off"),
    ("surf.userfaultfd", "kernels without it"),
    ("surf.memory_policy", "kernels without memory nodes"),
    ("surf.tiocsti", "kernels that switched it off"),
    ("fs.mount_listing", "kernels before 6.8"),
    ("proc.pidfd_info", "kernels before 6.13"),
    ("surf.inet_rare", "kernels without any of them"),
    ("res.aio", "kernels without it"),
    ("net.metadata", "hosts without a route to anywhere"),
    ("net.private", "hosts without a route to anywhere"),
    ("net.public", "hosts without a route to anywhere"),
    ("net.public6", "hosts without a route to anywhere over IPv6"),
    ("net.multicast", "hosts without a route to anywhere"),
    ("net.dns", "hosts without a route to anywhere"),
    ("net.interfaces", "hosts with loopback only"),
    ("net.host_loopback6", "hosts without IPv6"),
    ("net.tun", "hosts without the device, or root without the capability"),
    ("net.posix_mq", "kernels without message queues"),
    ("proc.oom_adj", "root without the capability for it, as in a container"),
    ("proc.deadline", "hosts whose CPU time is reserved already, or root without the capability"),
    ("proc.realtime", "root without the capability, or without real-time budget"),
];

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[test]
fn every_attack_gets_through_without_a_sandbox() {
    let range = Range::new();
    let own = range.plain(&[], range.path());
    assert_complete(&own, &[]);
    let mut proven: BTreeSet<&str> = with(&own, Verdict::Escaped).into_iter().collect();
    if !is_root() {
        table::check("plain, user", &own);
        // What only root may do is proven when root runs this.
        assert!(proven.len() > 80, "{} got through: {proven:?}", proven.len());
        return;
    }
    table::check("plain, root", &own);
    let nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--groups=65534"];
    let user = range.plain(&nobody, &range.path().join("drop"));
    assert_complete(&user, &[]);
    proven.extend(with(&user, Verdict::Escaped));
    let unproven: Vec<(&String, &String)> = own
        .iter()
        .filter(|(name, _)| !proven.contains(name.as_str()))
        .filter(|(name, _)| UNPROVEN.iter().all(|(known, _)| known != name))
        .map(|(name, (_, seen))| (name, seen))
        .collect();
    assert!(unproven.is_empty(), "these prove nothing where they do not get through: {unproven:#?}");
}

#[test]
fn what_is_not_proven_is_an_attack_of_the_suite() {
    let known: Vec<&str> = isle_probe::attacks().map(|attack| attack.name).collect();
    let mut names: Vec<&str> = known.clone();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), known.len(), "two attacks of one name");
    for (name, why) in UNPROVEN {
        assert!(known.contains(name) && !why.is_empty(), "{name}");
    }
}

#[test]
fn a_daemon_outlives_its_command_without_a_sandbox() {
    let range = Range::new();
    let mark = range.canary.mark();
    let status = std::process::Command::new(range.program()).args(["leave", &mark]).status().unwrap();
    assert!(status.success());
    // Found while it stays, which is a minute.
    let mut left = Vec::new();
    until("the daemon is on its own", || {
        left = processes_with(&mark);
        left.len() == 1
    });
    for pid in left {
        rustix::process::kill_process(
            rustix::process::Pid::from_raw(pid).unwrap(),
            rustix::process::Signal::KILL,
        )
        .unwrap();
    }
}
