//! Tier `container`: the whole set-up of a sandbox, in order.

use std::fs::File;
use std::os::fd::OwnedFd;

use super::landlock::{Rights, Ruleset};
use super::seccomp::{self, Instruction, Listener, Policy};
use super::writable_layer::Outline;
use super::{network, privileges, root, staging_root};
use crate::request::MakeRequest;
use crate::sys::{Doing, Step, check, pivot_into_current_directory, prctl, set_rlimit};

/// Namespaces a sandbox is cloned into; the cgroup namespace follows once the process sits in its cgroup.
#[must_use]
pub fn namespaces(network: network::State) -> libc::c_int {
    let own_network = match network {
        network::State::New => libc::CLONE_NEWNET,
        network::State::SetUp => 0,
    };
    own_network
        | libc::CLONE_NEWUSER
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS
}

/// What is the same for every sandbox, worked out once.
#[derive(Debug)]
pub struct Recipe {
    filter: Vec<Instruction>,
    /// For sandboxes whose memory is counted by looking.
    countable: Vec<Instruction>,
    covers: Vec<root::Cover>,
    outline: Outline,
}

impl Recipe {
    /// For this kernel. The caller has entered the [staging root](super::staging_root).
    #[must_use]
    pub fn new() -> Self {
        Self {
            filter: seccomp::compile(Policy::Container),
            countable: seccomp::compile_countable(Policy::Container),
            covers: root::covers(),
            outline: Outline::of_template(),
        }
    }
}

impl Recipe {
    fn filter_for(&self, request: &MakeRequest) -> &[Instruction] {
        if request.watch_memory > 0 { &self.countable } else { &self.filter }
    }
}

impl Default for Recipe {
    fn default() -> Self {
        Self::new()
    }
}

/// What the set-up hands to the agent.
#[derive(Debug)]
pub struct Entered {
    /// Where denied system calls are reported.
    pub refusals: Option<Listener>,
    /// The agent's own `oom_score_adj`, opened while `/proc` can be written.
    pub oom_score: Option<File>,
    /// What could not be set up: key and reason.
    pub missing: Vec<(&'static str, String)>,
}

/// Turns this process, freshly cloned into its [`namespaces`], into the first process of a sandbox.
/// `go` is readable once the parent has mapped the ids and moved the process into its cgroups.
pub fn enter(request: &MakeRequest, go: OwnedFd, network: network::State, recipe: &Recipe) -> Step<Entered> {
    let mut missing = Vec::new();
    wait_for_parent(go)?;
    new_session()?;
    privileges::become_id(0).doing(|| "become root of the sandbox".into())?;
    own_cgroup_namespace(&mut missing);
    if network == network::State::New {
        network::set_up()?;
    }
    root::build(request, &recipe.covers, &recipe.outline)?;
    std::env::set_current_dir(staging_root::NEW_ROOT).doing(|| "enter the new root".into())?;
    pivot_into_current_directory().doing(|| "make it the root".into())?;
    set_host_name()?;
    set_limits(request)?;
    privileges::bound_capabilities(privileges::GUEST_ROOT).doing(|| "bound capabilities".into())?;
    privileges::set_capabilities(privileges::AGENT).doing(|| "drop capabilities".into())?;
    prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0).doing(|| "set no-new-privileges".into())?;
    // Its own entries of `/proc` are its own for the moment of opening one.
    prctl(libc::PR_SET_DUMPABLE, 1, 0).doing(|| "open the agent's entries".into())?;
    let oom_score = open_oom_score();
    confine_files(&mut missing);
    let refusals =
        seccomp::install(recipe.filter_for(request)).doing(|| "install the system call filter".into())?;
    prctl(libc::PR_SET_DUMPABLE, 0, 0).doing(|| "close the agent's memory".into())?;
    Ok(Entered { refusals: Some(refusals), oom_score, missing })
}

/// The parent's word, or its death.
pub(super) fn wait_for_parent(go: OwnedFd) -> Step<()> {
    let mut word = [0u8; 1];
    let count = rustix::io::read(&go, &mut word).doing(|| "wait for the fork server".into())?;
    if count == 1 && word[0] == b'+' {
        return Ok(());
    }
    Err(std::io::Error::from_raw_os_error(libc::ECANCELED)).doing(|| "the fork server gave up".into())
}

pub(super) fn new_session() -> Step<()> {
    rustix::process::setsid().map(drop).doing(|| "start a session".into())?;
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    Ok(())
}

fn own_cgroup_namespace(missing: &mut Vec<(&'static str, String)>) {
    // SAFETY: takes flags only.
    if let Err(error) = check(unsafe { libc::unshare(libc::CLONE_NEWCGROUP) }.into()) {
        missing.push(("cgroup_namespace", error.to_string()));
    }
}

fn set_host_name() -> Step<()> {
    let name = b"isle";
    // SAFETY: the pointer and length describe the literal.
    check(unsafe { libc::sethostname(name.as_ptr().cast(), name.len()) }.into())
        .map(drop)
        .doing(|| "set the host name".into())
}

/// The `oom_score_adj` of this process. Without it only the order of the OOM killer is lost.
pub(super) fn open_oom_score() -> Option<File> {
    File::options().read(true).write(true).open("/proc/self/oom_score_adj").ok()
}

/// Limits that hold for every process of a sandbox whatever its cgroup says.
pub(super) fn set_limits(request: &MakeRequest) -> Step<()> {
    let mut limits = vec![
        (libc::RLIMIT_CORE, 0),
        (libc::RLIMIT_NOFILE, request.rlimit_files),
        (libc::RLIMIT_MSGQUEUE, 819_200),
        (libc::RLIMIT_MEMLOCK, 8 << 20),
        (libc::RLIMIT_SIGPENDING, 4096),
        (libc::RLIMIT_RTPRIO, 0),
        (libc::RLIMIT_NICE, 0),
    ];
    if request.rlimit_processes > 0 {
        limits.push((libc::RLIMIT_NPROC, request.rlimit_processes));
    }
    if request.rlimit_memory > 0 {
        limits.push((libc::RLIMIT_DATA, request.rlimit_memory));
    }
    if request.rlimit_file_size > 0 {
        limits.push((libc::RLIMIT_FSIZE, request.rlimit_file_size));
    }
    for (resource, value) in limits {
        set_rlimit(resource, value).doing(|| format!("set rlimit {resource}"))?;
    }
    Ok(())
}

/// Landlock is a second wall here; a kernel without it is reported, not fatal (the daemon decides).
/// Before Linux 6.12 it knows files only: signals and abstract sockets then stay inside by the
/// namespaces alone, which is what the tier promises.
fn confine_files(missing: &mut Vec<(&'static str, String)>) {
    const WRITABLE: &[&std::ffi::CStr] = &[
        c"/dev/shm",
        c"/etc",
        c"/home",
        c"/media",
        c"/mnt",
        c"/opt",
        c"/root",
        c"/run",
        c"/srv",
        c"/tmp",
        c"/var",
        c"/workspace",
    ];
    let confine = || -> std::io::Result<()> {
        let mut rules = Ruleset::new()?;
        rules.allow(c"/", Rights::READ)?;
        rules.allow(c"/dev", Rights::WRITE_FILES.and(Rights::DEVICE_CONTROL))?;
        for path in WRITABLE {
            rules.allow(path, Rights::ALL)?;
        }
        rules.enforce()
    };
    if let Err(error) = confine() {
        missing.push(("landlock", error.to_string()));
    }
}
