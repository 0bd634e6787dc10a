//! Tier `process`: the whole set-up of a sandbox without namespaces of its own, in order. Landlock
//! closes the host's files, signals and abstract sockets, the system call filter closes everything
//! else that leaves a process, and private directories are all that can be written.

use std::ffi::{CStr, CString};
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use super::container::{new_session, open_oom_score, set_limits, wait_for_parent};
use super::landlock::{Rights, Ruleset};
use super::seccomp::{self, Instruction, Listener};
use super::{SANDBOX_ID, privileges, template};
use crate::request::{Directories, MakeRequest, outside};
use crate::sys::{Doing, Step, c_string, prctl};

/// What is shown of the host's `/etc` besides what every sandbox gets: who is who, and where to look.
const LOOKED_UP: &[&str] = &["group", "hosts", "nsswitch.conf", "passwd"];

/// Devices every sandbox may use.
const DEVICES: &[&CStr] =
    &[c"/dev/null", c"/dev/zero", c"/dev/full", c"/dev/random", c"/dev/urandom", c"/dev/tty"];

/// Among the first to go when the host runs out of memory.
const OOM_SCORE: &str = "300";

/// What the set-up hands to the agent.
#[derive(Debug)]
pub struct Entered {
    /// Where denied system calls are reported.
    pub refusals: Listener,
    /// The agent's own `oom_score_adj`, opened while `/proc` can be written.
    pub oom_score: Option<File>,
    /// What a command is confined to, on top of what the agent is: no `/proc`, no terminals but its own.
    pub command: Ruleset,
    /// Keeps the signals of one run inside that run; `None` where the kernel cannot.
    pub scope: Option<Ruleset>,
}

/// Turns this process, a plain clone of the fork server, into the agent of a sandbox. `go` is
/// readable once the parent has moved the process into its cgroups.
pub fn enter(
    request: &MakeRequest,
    directories: &Directories,
    go: OwnedFd,
    filter: &[Instruction],
) -> Step<Entered> {
    wait_for_parent(go)?;
    new_session()?;
    // Commands come before it. Without the right to say so nothing is lost but the order.
    fs::write("/proc/self/oom_score_adj", OOM_SCORE).ok();
    let oom_score = open_oom_score();
    set_limits(request)?;
    become_sandbox_user(request)?;
    prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0).doing(|| "adopt orphans".into())?;
    prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0).doing(|| "set no-new-privileges".into())?;
    let workspace = c_string(directories.workspace.to_vec()).doing(|| "read the workspace's path".into())?;
    rustix::process::chdir(&workspace).doing(|| "enter the workspace".into())?;
    let command =
        rules(directories, Audience::Command).doing(|| "prepare the file rules of commands".into())?;
    let scope = Ruleset::scope_only().doing(|| "prepare the scope of a run".into())?;
    rules(directories, Audience::Agent)
        .and_then(|rules| rules.enforce())
        .doing(|| "put the file rules in force".into())?;
    let refusals = seccomp::install(filter).doing(|| "install the system call filter".into())?;
    prctl(libc::PR_SET_DUMPABLE, 0, 0).doing(|| "close the agent's memory".into())?;
    Ok(Entered { refusals, oom_score, command, scope })
}

/// As root: becomes a host id that belongs to this sandbox alone. Otherwise there is no other id to
/// become. Either way without any capability, now and later.
fn become_sandbox_user(request: &MakeRequest) -> Step<()> {
    if let Some(id) = outside(&request.ids, SANDBOX_ID) {
        privileges::bound_capabilities(0).doing(|| "bound capabilities".into())?;
        privileges::become_id(id).doing(|| "become the sandbox user".into())?;
    }
    if rustix::process::geteuid().is_root() {
        return Err(io::Error::from_raw_os_error(libc::EPERM)).doing(|| "run as an unprivileged user".into());
    }
    privileges::set_capabilities(0).doing(|| "drop capabilities".into())
}

/// Whom a set of file rules is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Audience {
    /// Commands of the guest.
    Command,
    /// The agent, which also opens terminals for commands and reads who is whose child.
    Agent,
}

fn rules(directories: &Directories, audience: Audience) -> io::Result<Ruleset> {
    let device = Rights::READ_ONLY.and(Rights::WRITE_FILES).and(Rights::DEVICE_CONTROL);
    let mut rules = Ruleset::new()?;
    let own = [&directories.workspace, &directories.home, &directories.tmp];
    for own in own.into_iter().chain(&directories.cache) {
        rules.allow(&c_string(own.to_vec())?, Rights::ALL)?;
    }
    if let Some(control) = &directories.control {
        rules.allow(&c_string(control.to_vec())?, Rights::READ)?;
    }
    for name in template::system_directories() {
        rules.allow(&c_string(format!("/{name}"))?, Rights::READ)?;
    }
    let looked_up = LOOKED_UP.iter().map(|name| (*name).to_owned());
    for name in template::from_host(Path::new("/etc")).into_iter().chain(looked_up) {
        allow_existing(&mut rules, &c_string(format!("/etc/{name}"))?)?;
    }
    allow_existing(&mut rules, &c_string(format!("/{}", template::BEYOND_ETC))?)?;
    for path in DEVICES {
        rules.allow_file(path, device)?;
    }
    if audience == Audience::Agent {
        rules.allow(c"/proc", Rights::READ_ONLY)?;
        rules.allow_file(c"/dev/ptmx", device)?;
        rules.allow(c"/dev/pts", device)?;
    }
    Ok(rules)
}

/// Allows reading whatever is at `path`: rules for directories and for files differ.
fn allow_existing(rules: &mut Ruleset, path: &CString) -> io::Result<()> {
    match rustix::fs::stat(path) {
        Ok(stat) if rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir() => {
            rules.allow(path, Rights::READ_ONLY)
        }
        Ok(_) => rules.allow_file(path, Rights::READ_ONLY),
        // Not on this host, or not for this user: nothing to show.
        Err(_) => Ok(()),
    }
}
