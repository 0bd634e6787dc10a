//! What each process is expected to be like, completely.

use crate::harness::TestDaemon;
use crate::look::{Posture, posture, status};

/// A sandbox to look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Case {
    pub(crate) tier: &'static str,
    pub(crate) named: bool,
    pub(crate) user: &'static str,
}

/// Which of its processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    Command,
    Supervisor,
    Agent,
}

/// What differs between hosts, as the daemon itself reports it.
#[derive(Debug)]
pub(crate) struct Host {
    root: bool,
    memory_cgroup: bool,
    pids_cgroup: bool,
    cpu_cgroup: bool,
    unified: bool,
    separate_accounts: bool,
    /// Whether the daemon may put its agents behind others in the order of killing.
    may_protect: bool,
    state: String,
}

impl Host {
    pub(crate) fn of(daemon: &TestDaemon, tier: &str) -> Self {
        let capabilities =
            u64::from_str_radix(&status(i32::try_from(daemon.pid()).unwrap())["CapEff"], 16).unwrap();
        daemon.post("/v1/sandboxes", serde_json::json!({"sandbox": tier, "tier": tier}));
        let cgroups = std::fs::read_to_string("/proc/self/cgroup").unwrap();
        let controllers = |name: &str| {
            cgroups
                .lines()
                .filter_map(|line| line.split(':').nth(1))
                .find(|one| one.split(',').any(|one| one == name))
        };
        let usage = daemon.get(&format!("/v1/status?sandbox={tier}"))["detail"]["usage"].clone();
        Self {
            root: rustix::process::geteuid().is_root(),
            // Only a cgroup knows whom it killed.
            memory_cgroup: !usage["oom_kills"].is_null(),
            pids_cgroup: !usage["oom_kills"].is_null(),
            cpu_cgroup: !usage["oom_kills"].is_null(),
            unified: controllers("memory").is_none(),
            separate_accounts: controllers("cpuacct") != controllers("cpu"),
            may_protect: capabilities & (1 << 24) != 0,
            state: daemon.home().state_dir().canonicalize().unwrap().display().to_string(),
        }
    }

    /// The controllers a sandbox has cgroups for.
    fn cgroups(&self, case: Case) -> String {
        if self.unified {
            return if self.memory_cgroup { "unified".into() } else { String::new() };
        }
        let mut own = Vec::new();
        own.extend(self.cpu_cgroup.then_some("cpu"));
        // The only run of a one-shot is its account, except where the two are one tree.
        own.extend((self.cpu_cgroup && self.separate_accounts && case.named).then_some("cpuacct"));
        own.extend(self.memory_cgroup.then_some("memory"));
        own.extend(self.pids_cgroup.then_some("pids"));
        own.join(" ")
    }
}

/// Everything about one process of a sandbox.
pub(crate) fn expected(case: Case, who: Who, host: &Host) -> Posture {
    let mut all = posture(
        "
        NoNewPrivs: 1
        Seccomp: 2
        Seccomp_filters: 1
        CapInh:
        CapAmb:
        Threads: 1
        Umask: 0022
        groups:
        terminal: none
        root: /
        looked into: yes
        Max address space: as the daemon's
        Max core file size: 0 0
        Max cpu time: as the daemon's
        Max data size: unlimited unlimited
        Max file locks: as the daemon's
        Max file size: unlimited unlimited
        Max locked memory: 8388608 8388608
        Max msgqueue size: 819200 819200
        Max nice priority: 0 0
        Max open files: 4096 4096
        Max pending signals: 4096 4096
        Max processes: as the daemon's
        Max realtime priority: 0 0
        Max realtime timeout: as the daemon's
        Max resident set: as the daemon's
        Max stack size: as the daemon's
        namespace time: the host's
        namespace time_for_children: the host's
        ",
    );
    all.insert("cgroups".into(), host.cgroups(case));
    if !host.memory_cgroup {
        all.insert("Max data size".into(), "1073741824 1073741824".into());
    }
    all.extend(match case.tier {
        "container" => container(host),
        _ => process(case, host),
    });
    all.extend(match (case.tier, who) {
        ("container", Who::Command) => container_command(case, host),
        ("container", _) => container_agent(case, host),
        (_, Who::Command) => process_command(),
        (_, Who::Supervisor) => supervisor(),
        (_, Who::Agent) => process_agent(case),
    });
    // An ordinary user cannot look into a process that may not be dumped, and need not.
    if all["dumpable"] == "no" && !host.root {
        all.retain(|key, _| {
            !["descriptor ", "namespace ", "cwd", "root", "exe", "environment"]
                .iter()
                .any(|hidden| key.starts_with(hidden))
        });
        all.insert("looked into".into(), "no".into());
    }
    all
}

fn container(host: &Host) -> Posture {
    let mut all = posture(
        "
        namespace cgroup: the sandbox's
        namespace ipc: the sandbox's
        namespace mnt: the sandbox's
        namespace net: the sandbox's
        namespace pid: the sandbox's
        namespace pid_for_children: the sandbox's
        namespace user: the sandbox's
        namespace uts: its own
        ",
    );
    let map = if host.root {
        "0×65536 private"
    } else {
        "0×1 private, 1×61 private, 1000×1 private, 65534×1 private"
    };
    all.insert("uid_map".into(), map.into());
    all.insert("gid_map".into(), map.into());
    if !host.pids_cgroup {
        all.insert("Max processes".into(), "256 256".into());
    }
    if !host.root {
        // The agent cannot be looked into, so nothing can be said to be the same as its.
        let own: Vec<String> = all.keys().filter(|key| key.starts_with("namespace")).cloned().collect();
        all.extend(own.into_iter().map(|key| (key, "its own".to_owned())));
    }
    all
}

fn container_command(case: Case, _: &Host) -> Posture {
    let mut all = posture(
        "
        session: leads its own
        dumpable: yes
        oom_score_adj: 500
        SigBlk:
        SigIgn:
        descriptor 000: /dev/null
        descriptor 001: pipe
        descriptor 002: pipe
        cwd: /workspace
        exe: /usr/bin/sleep
        environment: HOME ISLE_SANDBOX LANG LOGNAME NODE_PATH PATH USER
        ",
    );
    all.extend(match case.user {
        "root" => posture(
            "uid: 0 0 0 0\ngid: 0 0 0 0\nCapPrm: cb\nCapEff: cb\nCapBnd: cb
            environment: HOME ISLE_SANDBOX LANG LOGNAME PATH USER",
        ),
        _ => posture("uid: 1000 1000 1000 1000\ngid: 1000 1000 1000 1000\nCapPrm:\nCapEff:\nCapBnd:"),
    });
    all
}

fn container_agent(case: Case, host: &Host) -> Posture {
    let mut all = posture(
        "
        session: leads its own
        dumpable: no
        uid: 0 0 0 0
        gid: 0 0 0 0
        CapPrm: 2801eb
        CapEff: 2801eb
        CapBnd: cb
        SigBlk: 10000
        SigIgn: 1000
        descriptor 000: /dev/null
        descriptor 001: /dev/null
        descriptor 002: /dev/null
        descriptor 003: /proc/…/oom_score_adj
        descriptor 004: seccomp notify
        descriptor 005: eventpoll
        descriptor 006: eventfd
        descriptor 007: eventpoll
        descriptor 008: signalfd
        descriptor 009: socket
        descriptor 010: pipe
        descriptor 012: pipe
        descriptor 020: socket
        cwd: /
        exe: /memfd:isle-agent (deleted)
        environment:
        ",
    );
    all.insert("oom_score_adj".into(), if host.root && host.may_protect { "-900" } else { "0" }.into());
    all.extend(
        ["cgroup", "ipc", "mnt", "net", "pid", "pid_for_children", "user", "uts"]
            .map(|kind| (format!("namespace {kind}"), "its own".to_owned())),
    );
    if case.named {
        all.insert("descriptor 022".into(), "socket".into());
    }
    all
}

fn process(case: Case, host: &Host) -> Posture {
    let mut all = posture(
        "
        CapPrm:
        CapEff:
        uid_map: 0×4294967295 the host's
        gid_map: 0×4294967295 the host's
        oom_score_adj: 300
        namespace cgroup: the host's
        namespace ipc: the host's
        namespace mnt: the host's
        namespace net: the host's
        namespace pid: the host's
        namespace pid_for_children: the host's
        namespace user: the host's
        namespace uts: the host's
        Max file size: 1073741824 1073741824
        ",
    );
    let whose = if host.root { "private" } else { "the daemon's" };
    let ids = [whose; 4].join(" ");
    all.insert("uid".into(), ids.clone());
    all.insert("gid".into(), ids);
    let own = status(i32::try_from(std::process::id()).unwrap());
    if host.root {
        all.insert("CapBnd".into(), String::new());
        if !host.pids_cgroup {
            all.insert("Max processes".into(), "256 256".into());
        }
    } else {
        // Without any capability and without a way to gain one, what it is bounded by does not matter;
        // neither can groups be given up.
        all.insert("CapBnd".into(), own["CapBnd"].trim_start_matches('0').to_owned());
        all.insert("groups".into(), own["Groups"].clone());
    }
    let place = match case.named {
        true => "volumes/process/workspace",
        false => "ONE-SHOT/workspace",
    };
    let base = if host.root { "PRIVATE".to_owned() } else { format!("{}/native/process", host.state) };
    all.insert("cwd".into(), format!("{base}/{place}"));
    all
}

fn process_command() -> Posture {
    posture(
        "
        oom_score_adj: 500
        session: leads its own
        dumpable: yes
        SigBlk:
        SigIgn:
        descriptor 000: /dev/null
        descriptor 001: pipe
        descriptor 002: pipe
        exe: /usr/bin/sleep
        environment: GIT_CONFIG_NOSYSTEM HOME ISLE_SANDBOX ISLE_WORKSPACE LANG LOGNAME NODE_PATH PATH TMPDIR USER
        ",
    )
}

fn supervisor() -> Posture {
    posture(
        "
        oom_score_adj: 500
        session: another's
        dumpable: no
        SigBlk: 14000
        SigIgn: 1001000
        descriptor 000: /dev/null
        descriptor 001: /dev/null
        descriptor 002: /dev/null
        descriptor 003: signalfd
        descriptor 017: socket
        exe: /memfd:isle-agent (deleted)
        environment:
        ",
    )
}

fn process_agent(case: Case) -> Posture {
    let mut all = posture(
        "
        session: leads its own
        dumpable: no
        SigBlk: 14000
        SigIgn: 1001000
        descriptor 000: /dev/null
        descriptor 001: /dev/null
        descriptor 002: /dev/null
        descriptor 003: /proc/…/oom_score_adj
        descriptor 004: landlock-ruleset
        descriptor 005: landlock-ruleset
        descriptor 006: seccomp notify
        descriptor 007: eventpoll
        descriptor 008: eventfd
        descriptor 009: eventpoll
        descriptor 010: signalfd
        descriptor 011: pipe
        descriptor 013: pipe
        descriptor 016: socket
        descriptor 020: socket
        exe: /memfd:isle-agent (deleted)
        environment:
        ",
    );
    if case.named {
        all.insert("descriptor 022".into(), "socket".into());
    }
    all
}
