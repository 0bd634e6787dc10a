//! Our own processes on the host: the daemon and its fork servers. They hold no more than they use, and
//! nothing that whoever started them happened to have.

use std::fs;

use serde_json::json;

use crate::harness::{TestDaemon, has_process_tier, tiers};
use crate::look::{
    Posture, Private, assert_posture, children, command_line, fork_server_of, look, posture, status,
};

fn start() -> (TestDaemon, i32) {
    let daemon = TestDaemon::start();
    daemon.shell("box", "true");
    if has_process_tier() {
        daemon.post("/v1/sandboxes", json!({"sandbox": "plain", "tier": "process"}));
    }
    let pid = i32::try_from(daemon.pid()).unwrap();
    (daemon, pid)
}

/// What matters about one of our own: its limits and numbers of descriptors are the host's affair.
fn own_posture(pid: i32, daemon: i32) -> Posture {
    let mut found = look(pid, daemon, None);
    found.retain(|key, _| {
        !key.starts_with("Max ") && !key.starts_with("descriptor ") && key != "oom_score_adj"
    });
    found
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Capabilities that are both held by the one who runs the tests and in `most`.
fn at_most(most: u64) -> String {
    let own = status(i32::try_from(std::process::id()).unwrap());
    let held = u64::from_str_radix(&own["CapPrm"], 16).unwrap();
    format!("{:x}", held & most)
}

#[test]
fn the_daemon_holds_nothing_it_does_not_use() {
    let (daemon, pid) = start();
    let found = status(pid);
    assert_eq!(found["Umask"], "0022");
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    assert_eq!(core.split_whitespace().skip(4).take(2).collect::<Vec<_>>(), ["0", "0"]);
    if !is_root() {
        assert_eq!(look(pid, pid, None)["dumpable"], "no", "it holds what sandboxes print, and tokens");
        assert_eq!(look(pid, pid, None)["looked into"], "no");
        assert_eq!(
            (found["CapPrm"].as_str(), found["CapEff"].as_str()),
            ("0000000000000000", "0000000000000000")
        );
        return;
    }
    // Files and processes of other ids, ids, mounts and namespaces, limits, low ports.
    let expected = at_most(0x12c_05ff);
    for set in ["CapPrm", "CapEff", "CapBnd"] {
        assert_eq!(found[set].trim_start_matches('0'), expected, "{set}");
    }
    let home = daemon.home().path().canonicalize().unwrap().display().to_string();
    for (number, what) in Private::of(pid, pid).descriptors {
        // One that went away while it was looked at is not held.
        if what.is_empty() {
            continue;
        }
        let known = ["/dev/null", "socket", "eventpoll", "eventfd", "pidfd", "signalfd", "pipe"]
            .contains(&what.as_str())
            || what == format!("{home}/daemon.log")
            // By which it knows whether its directory is still there.
            || what == format!("{home}/state")
            || what.starts_with(&format!("{home}/state/isle."))
            || what.starts_with("/sys/fs/cgroup/") && what.contains("/isle-");
        assert!(known, "descriptor {number} of the daemon is {what}");
        if number > 2 {
            let info = fs::read_to_string(format!("/proc/{pid}/fdinfo/{number}")).unwrap_or_default();
            let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).unwrap_or("02000000");
            let flags = u32::from_str_radix(flags.trim(), 8).unwrap();
            assert!(flags & 0o2_000_000 != 0, "descriptor {number} ({what}) would be inherited");
        }
    }
}

#[test]
fn fork_servers_have_exactly_the_expected_posture() {
    let (_daemon, pid) = start();
    let common = "
        NoNewPrivs: 1
        Seccomp: 0
        Seccomp_filters: 0
        SigIgn: 11000
        SigBlk:
        CapInh:
        CapAmb:
        Threads: 1
        Umask: 0022
        cgroups:
        cwd: /
        root: /
        exe: /memfd:isle-agent (deleted)
        environment:
        groups:
        session: leads its own
        terminal: none
        looked into: yes
        namespace cgroup: the host's
        namespace ipc: the host's
        namespace mnt: its own
        namespace net: the host's
        namespace pid: the host's
        namespace pid_for_children: the host's
        namespace time: the host's
        namespace time_for_children: the host's
        namespace user: the host's
        namespace uts: the host's
        uid: root root root root
        gid: root root root root
        uid_map: 0×4294967295 the host's
        gid_map: 0×4294967295 the host's
        dumpable: cannot be told of root
        ";
    let mut namespaces = posture(common);
    let mut plain = posture(common);
    plain.extend(posture("namespace mnt: the host's\nSigIgn: 1000\nSigBlk: 10000"));
    if is_root() {
        let (all, few) = (at_most(0x12c_05ff), at_most(0x100_01e2));
        for set in ["CapPrm", "CapEff", "CapBnd"] {
            namespaces.insert(set.into(), all.clone());
            plain.insert(set.into(), few.clone());
        }
    } else {
        // All of it counts in its own user namespace only.
        namespaces.extend(posture(
            "uid: 0 0 0 0\ngid: 0 0 0 0\nnamespace user: its own\ndumpable: yes\n\
             uid_map: 0×1 the daemon's, 1×65536 private\ngid_map: 0×1 the daemon's, 1×65536 private",
        ));
        let found = own_posture(fork_server_of(pid).unwrap(), pid);
        for set in ["CapPrm", "CapEff", "CapBnd"] {
            namespaces.insert(set.into(), found["CapBnd"].clone());
        }
        let own = status(i32::try_from(std::process::id()).unwrap());
        plain.extend(posture(
            "uid: the daemon's the daemon's the daemon's the daemon's\ndumpable: yes\nCapPrm:\nCapEff:",
        ));
        plain.insert("gid".into(), plain["uid"].clone());
        plain.insert("CapBnd".into(), own["CapBnd"].trim_start_matches('0').to_owned());
        plain.insert("groups".into(), own["Groups"].clone());
        // As large as the user's own range.
        for map in ["uid_map", "gid_map"] {
            assert!(
                found[map].starts_with("0×1 the daemon's, 1×") && found[map].ends_with(" private"),
                "{found:?}"
            );
            namespaces.insert(map.into(), found[map].clone());
        }
    }
    let mut servers = children(pid);
    servers.retain(|&pid| command_line(pid).starts_with("isle-fork-server"));
    assert_eq!(servers.len(), tiers().len(), "one per kind");
    for server in servers {
        let is_plain = command_line(server).ends_with(" process");
        let expected = if is_plain { &plain } else { &namespaces };
        assert_posture(&command_line(server), &own_posture(server, pid), expected);
        let open: Vec<String> = Private::of(server, pid).descriptors.into_values().collect();
        assert_eq!(&open[..2], ["/dev/null", "/dev/null"]);
        assert!(open[2].ends_with("/daemon.log"), "{open:?}");
        if is_plain {
            assert_eq!(&open[3..], ["socket", "signalfd"]);
            continue;
        }
        assert_eq!(open[3], "socket");
        // And the network namespaces of ready one-shots, with what shows whether they were touched.
        for group in open[4..].chunks(6) {
            let kinds: Vec<&str> = group.iter().map(|open| open.rsplit('/').next().unwrap()).collect();
            assert_eq!(kinds, ["dev", "snmp", "snmp6", "unix", "net", "pidfd"], "{open:?}");
        }
    }
}
