//! What this host offers, probed.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use isle_core::backend::{Fact, Offer};

use super::cgroup::{self, Cgroups};
use super::ids::user_name;
use super::subordinate::Subordinate;
use super::{report, volume};
use isle_setup::landlock;
use isle_setup::sys::{Cloned, check};

/// Facts that do not change while the daemon runs.
#[derive(Debug, Clone)]
pub(super) struct Facts {
    pub(super) root: bool,
    /// Why user namespaces cannot be made, and the fix.
    pub(super) user_namespaces: Result<(), (String, String)>,
    pub(super) landlock: u32,
    pub(super) seccomp_notifications: bool,
    pub(super) overlay: bool,
    /// How many subordinate ids this user has.
    pub(super) subordinate_ids: Option<u32>,
    /// Why they cannot be used, and the fix.
    pub(super) id_problem: Option<(String, String)>,
    pub(super) id_helpers: bool,
    /// Whether volumes can be images of their own.
    pub(super) images: bool,
    pub(super) kernel: String,
    /// Whether `/proc` lists the children of a process.
    pub(super) lists_children: bool,
    /// Whether a user namespace has a limit on processes, whatever their ids are.
    pub(super) namespaces_count_processes: bool,
}

impl Facts {
    pub(super) fn gather() -> Self {
        let uid = rustix::process::geteuid().as_raw();
        let user = user_name(uid).unwrap_or_default();
        let subordinate = Subordinate::read(Path::new("/etc"), &user, uid);
        let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
        Self {
            root: uid == 0,
            user_namespaces: try_user_namespace(),
            landlock: landlock::version(),
            seccomp_notifications: fs::read_to_string("/proc/sys/kernel/seccomp/actions_avail")
                .is_ok_and(|actions| actions.contains("user_notif"))
                // To let a call pass, and to take a program's socket.
                && is_at_least(&kernel, (5, 6)),
            overlay: fs::read_to_string("/proc/filesystems").is_ok_and(|list| list.contains("overlay"))
                || Path::new("/sys/module/overlay").exists()
                || module_exists("overlay"),
            subordinate_ids: subordinate.count(),
            id_problem: subordinate.problem(),
            id_helpers: ["newuidmap", "newgidmap"].iter().all(|program| on_path(program)),
            images: volume::images_possible(),
            namespaces_count_processes: is_at_least(&kernel, (5, 14)),
            kernel,
            lists_children: Path::new("/proc/thread-self/children").exists(),
        }
    }

    /// For `isle doctor`.
    pub(super) fn sections(&self, cgroups: &Cgroups) -> BTreeMap<String, Vec<Fact>> {
        let mut sections = BTreeMap::new();
        sections.insert("kernel".to_owned(), self.kernel_facts());
        sections.insert("user".to_owned(), self.user_facts());
        sections.insert("cgroups".to_owned(), cgroup_facts(cgroups));
        sections.insert("interpreters".to_owned(), interpreter_facts());
        sections
    }

    fn kernel_facts(&self) -> Vec<Fact> {
        let namespaces = match &self.user_namespaces {
            Ok(()) => fact("user namespaces", true, "available", ""),
            Err((why, fix)) => fact("user namespaces", false, why, fix),
        };
        vec![
            fact("kernel", true, &self.kernel, ""),
            namespaces,
            fact(
                "AppArmor user namespace restriction",
                !apparmor_restricts(),
                if apparmor_restricts() { "restricts unprivileged users" } else { "none" },
                if apparmor_restricts() {
                    "sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0"
                } else {
                    ""
                },
            ),
            fact(
                "overlayfs",
                self.overlay,
                yes(self.overlay),
                if self.overlay { "" } else { "sudo modprobe overlay" },
            ),
            fact(
                "seccomp",
                self.seccomp_notifications,
                if self.seccomp_notifications { "filters and notifications" } else { "no notifications" },
                if self.seccomp_notifications {
                    ""
                } else {
                    "use Linux 5.6 or newer with CONFIG_SECCOMP_FILTER"
                },
            ),
            fact(
                "Landlock",
                self.landlock >= 1,
                &if self.landlock >= 1 { format!("version {}", self.landlock) } else { "absent".into() },
                if self.landlock >= 1 {
                    ""
                } else {
                    "boot with `lsm=landlock,…` or use Linux 5.13 or newer"
                },
            ),
        ]
    }

    fn user_facts(&self) -> Vec<Fact> {
        if self.root {
            return vec![fact(
                "daemon user",
                true,
                "root: every sandbox gets its own range of unused user ids",
                "",
            )];
        }
        let user = user_name(rustix::process::geteuid().as_raw()).unwrap_or_else(|| "$USER".into());
        let ids = self.subordinate_ids.unwrap_or(0);
        vec![
            fact("daemon user", true, &format!("{user} (unprivileged)"), ""),
            fact(
                "subordinate ids",
                self.id_problem.is_none(),
                &self.id_problem.as_ref().map_or_else(|| ids.to_string(), |(why, _)| why.clone()),
                self.id_problem.as_ref().map_or("", |(_, fix)| fix),
            ),
            fact(
                "newuidmap, newgidmap",
                self.id_helpers,
                yes(self.id_helpers),
                if self.id_helpers { "" } else { "sudo apt install uidmap" },
            ),
        ]
    }
}

/// What `isle doctor` shows without a daemon: facts by section, and the tiers.
#[must_use]
pub fn probe() -> (BTreeMap<String, Vec<Fact>>, Vec<Offer>) {
    let facts = Facts::gather();
    // A name of its own: another look may be under way.
    let cgroups = cgroup::detect(&format!("isle-probe-{}", isle_core::values::SandboxId::fresh()));
    let sections = facts.sections(&cgroups);
    let offers = report::offers(&facts, &cgroups);
    cgroups.remove_base();
    (sections, offers)
}

fn fact(name: &str, good: bool, found: &str, fix: &str) -> Fact {
    Fact { name: name.to_owned(), good, found: found.to_owned(), fix: fix.to_owned() }
}

fn yes(present: bool) -> &'static str {
    if present { "present" } else { "absent" }
}

fn cgroup_facts(cgroups: &Cgroups) -> Vec<Fact> {
    let holds = cgroups.holds();
    let (layout, fix) = match cgroups {
        Cgroups::V1(_) => ("one tree per controller (v1)".to_owned(), String::new()),
        Cgroups::V2(_) => ("unified tree (v2)".to_owned(), String::new()),
        Cgroups::Absent { reason, fix } => (reason.clone(), fix.clone()),
    };
    let mut facts = vec![fact("layout", fix.is_empty(), &layout, &fix)];
    for (name, held) in [("memory", holds.memory), ("pids", holds.pids), ("cpu", holds.cpu)] {
        facts.push(fact(name, held, if held { "delegated" } else { "not delegated" }, &fix));
    }
    facts
}

fn interpreter_facts() -> Vec<Fact> {
    [("bash", "bash"), ("python", "python3"), ("node", "node")]
        .into_iter()
        .map(|(name, program)| {
            // Image `host` shows /usr only, so what is installed elsewhere does not count.
            let found = ["/usr/local/bin", "/usr/bin", "/bin"]
                .iter()
                .map(|directory| Path::new(directory).join(program))
                .find(|path| path.exists());
            match found {
                Some(path) => fact(name, true, &path.display().to_string(), ""),
                None => fact(name, false, "not in /usr", &format!("sudo apt install {program}")),
            }
        })
        .collect()
}

fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain([Path::new("/usr/bin").into(), Path::new("/usr/sbin").into()])
        .any(|directory| directory.join(program).exists())
}

fn module_exists(name: &str) -> bool {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    fs::read_to_string(format!("/lib/modules/{release}/modules.dep"))
        .is_ok_and(|list| list.contains(&format!("/{name}.ko")))
}

fn apparmor_restricts() -> bool {
    !rustix::process::geteuid().is_root()
        && fs::read_to_string("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
            .is_ok_and(|value| value.trim() == "1")
}

/// Only what is off: a number that is there already may be larger for a reason.
fn namespaces_fix() -> &'static str {
    let is_off = |file: &str| fs::read_to_string(file).is_ok_and(|text| text.trim() == "0");
    match (is_off("/proc/sys/user/max_user_namespaces"), is_off("/proc/sys/kernel/unprivileged_userns_clone"))
    {
        (true, true) => "sudo sysctl user.max_user_namespaces=15000 kernel.unprivileged_userns_clone=1",
        (true, false) => "sudo sysctl user.max_user_namespaces=15000",
        (false, true) => "sudo sysctl kernel.unprivileged_userns_clone=1",
        (false, false) => {
            "allow user namespaces for the daemon, for example in the seccomp profile of its container"
        }
    }
}

/// Makes a user namespace in a child and looks whether it may be used.
fn try_user_namespace() -> Result<(), (String, String)> {
    let fix = if apparmor_restricts() {
        "sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0"
    } else {
        namespaces_fix()
    };
    // SAFETY: the child only makes two system calls and leaves; it touches no lock or allocator.
    let cloned = unsafe { isle_setup::sys::clone_process(libc::CLONE_NEWUSER, None) };
    match cloned {
        Ok(Cloned::Child) => {
            // AppArmor lets the namespace be made and then takes its capabilities: try one.
            // SAFETY: takes flags only; then leaves at once.
            unsafe {
                let status = i32::from(check(libc::unshare(libc::CLONE_NEWNS).into()).is_err());
                libc::_exit(status)
            }
        }
        Ok(Cloned::Parent { pid, .. }) => {
            let mut status = 0;
            // SAFETY: waits for the child made above.
            unsafe { libc::waitpid(pid, &raw mut status, 0) };
            if status == 0 {
                Ok(())
            } else {
                Err(("created, but without capabilities in them".into(), fix.into()))
            }
        }
        Err(error) => Err((format!("cannot be created: {error}"), fix.into())),
    }
}

/// Whether a kernel's release is that version or a later one.
fn is_at_least(release: &str, wanted: (u32, u32)) -> bool {
    let mut numbers =
        release.split(|sign: char| !sign.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= wanted
}
