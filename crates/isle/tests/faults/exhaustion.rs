//! Descriptors, processes and ports run out: calls are refused with a code, what exists goes on, and
//! when there is room again everything works.

use std::net::TcpListener;

use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::json;

use crate::ground::{Ground, Told, assert_usable};
use crate::harness::processes_with;
use crate::harness::skip;

fn daemon_pid(ground: &Ground) -> Pid {
    Pid::from_raw(i32::try_from(ground.daemon.pid()).unwrap()).unwrap()
}

/// Makes sandboxes until one is refused; gives how many there are and why there are no more.
fn make_until_refused(ground: &Ground, most: usize) -> (usize, String) {
    for number in 0..most {
        match ground.ask("POST /v1/sandboxes", Some(&json!({"sandbox": format!("box{number}")}))) {
            Told::Done(_) => {}
            Told::Refused(code) => return (number, code),
            Told::Nothing => panic!("the daemon hung up"),
        }
    }
    panic!("{most} sandboxes were made");
}

#[test]
fn sandboxes_leave_the_last_descriptors_to_callers() {
    let ground = Ground::new();
    assert_usable(&ground, "before");
    let pid = daemon_pid(&ground);
    let old =
        prlimit(Some(pid), Resource::Nofile, Rlimit { current: Some(160), maximum: Some(4096) }).unwrap();
    let (made, code) = make_until_refused(&ground, 100);
    assert_eq!(code, "LIMIT_REACHED");
    let names = ground.names();
    assert_eq!(names.len(), made + 1, "what was refused is not there: {names:?}");
    for name in &names {
        assert_usable(&ground, name);
    }
    assert_eq!(
        ground.ask("POST /v1/runs", Some(&json!({"command": "true"}))),
        Told::Refused("LIMIT_REACHED".into())
    );
    assert!(matches!(ground.ask("DELETE /v1/sandboxes/before", Some(&json!({"wipe": true}))), Told::Done(_)));
    let more = Rlimit { current: old.current.map(|now| now.min(4096)), maximum: Some(4096) };
    prlimit(Some(pid), Resource::Nofile, more).unwrap();
    assert_usable(&ground, &format!("box{made}"));
    ground.check(&[]);
    ground.clear();
}

#[test]
fn without_any_descriptor_callers_wait_and_are_served_afterwards() {
    let ground = Ground::new();
    assert_usable(&ground, "box");
    let pid = daemon_pid(&ground);
    prlimit(Some(pid), Resource::Nofile, Rlimit { current: Some(8), maximum: Some(4096) }).unwrap();
    let body = json!({"command": "echo served"});
    std::thread::scope(|scope| {
        let callers: Vec<_> =
            (0..8).map(|_| scope.spawn(|| ground.ask("POST /v1/sandboxes/box/exec", Some(&body)))).collect();
        // Nobody can be let in now; that is not a thing one can wait for.
        std::thread::sleep(std::time::Duration::from_millis(300));
        prlimit(Some(pid), Resource::Nofile, Rlimit { current: Some(4096), maximum: Some(4096) }).unwrap();
        for caller in callers {
            assert!(matches!(caller.join().unwrap(), Told::Done(answer) if answer.contains("served")));
        }
    });
}

#[test]
fn without_processes_a_sandbox_is_refused_with_a_code_and_leaves_nothing() {
    let ground = Ground::new();
    assert_usable(&ground, "before");
    let us = ground.daemon.pid().to_string();
    let mark = format!("fork-server {}", ground.daemon.home().state_dir().display());
    let server = processes_with(&mark).into_iter().find(|pid| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        status.lines().any(|line| line.strip_prefix("PPid:").is_some_and(|parent| parent.trim() == us))
    });
    let Some(limit) = ProcessLimit::of(server.unwrap()) else {
        skip!("nothing here can limit the processes of a fork server");
    };
    assert_eq!(
        ground.ask("POST /v1/sandboxes", Some(&json!({"sandbox": "box"}))),
        Told::Refused("LIMIT_REACHED".into())
    );
    assert_eq!(
        ground.ask("POST /v1/runs", Some(&json!({"command": "true"}))),
        Told::Refused("LIMIT_REACHED".into())
    );
    assert_usable(&ground, "before");
    drop(limit);
    ground.check(&[]);
    assert_usable(&ground, "box");
}

/// Lets a process have no more children, for as long as this lives.
enum ProcessLimit {
    /// By a control group of its own.
    Cgroup { path: std::path::PathBuf, member: i32, home: std::path::PathBuf },
    /// By its own limit.
    Own { member: Pid, old: Rlimit },
}

impl ProcessLimit {
    fn of(member: i32) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            let member = Pid::from_raw(member).unwrap();
            let new = Rlimit { current: Some(1), maximum: None };
            return match prlimit(Some(member), Resource::Nproc, new) {
                Ok(old) => Some(Self::Own { member, old }),
                Err(_) => None,
            };
        }
        let base = std::path::Path::new("/sys/fs/cgroup/pids");
        let base = if base.exists() { base } else { std::path::Path::new("/sys/fs/cgroup") };
        let cgroups = std::fs::read_to_string(format!("/proc/{member}/cgroup")).ok()?;
        let own = cgroups.lines().find_map(|line| {
            let (_, rest) = line.split_once(':')?;
            let (names, path) = rest.split_once(':')?;
            (names.is_empty() || names.split(',').any(|name| name == "pids")).then(|| path.to_owned())
        })?;
        let home = base.join(own.trim_start_matches('/'));
        let path = base.join(format!("isle-test-{member}"));
        crate::harness::run::note(&format!("isle-test-{member}"));
        std::fs::create_dir(&path).ok()?;
        let limit = Self::Cgroup { path: path.clone(), member, home };
        std::fs::write(path.join("pids.max"), "1").ok()?;
        std::fs::write(path.join("cgroup.procs"), member.to_string()).ok()?;
        Some(limit)
    }
}

impl Drop for ProcessLimit {
    fn drop(&mut self) {
        match self {
            Self::Cgroup { path, member, home } => {
                std::fs::write(home.join("cgroup.procs"), member.to_string()).ok();
                crate::harness::until("the control group is empty", || std::fs::remove_dir(&*path).is_ok());
            }
            Self::Own { member, old } => {
                prlimit(Some(*member), Resource::Nproc, *old).ok();
            }
        }
    }
}

#[test]
fn a_port_that_is_taken_is_said_and_costs_no_sandbox() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let mut ground = Ground::new();
    ground.daemon.shell("box", "echo kept > /tmp/file");
    let agent = ground.agent("box");
    ground.daemon.kill();
    let said = ground.daemon.try_launch_with(&[("ISLE_LISTEN", &address)]).unwrap_err();
    assert!(said.contains(&address) && said.contains("next_steps"), "{said}");
    let counts = ground.daemon.counts();
    assert!(!counts.processes.iter().any(|(_, command)| command.contains("fork-server")), "{counts:?}");
    ground.daemon.launch();
    assert_eq!(ground.agent("box"), agent, "it is the same sandbox");
    assert_eq!(ground.daemon.shell("box", "cat /tmp/file"), "kept\n");
}
