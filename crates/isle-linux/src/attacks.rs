//! Which attacks of the containment suite succeed where a guarantee is not enforced. The suite checks that
//! exactly these succeed, so a report never claims more, nor less, than is enforced.

use isle_core::backend::{Guarantee, GuaranteeStatus, Tier};

use super::facts::Facts;

/// Lists in every line that is not enforced the attacks that succeed because of it.
pub(super) fn fill_open(facts: &Facts, tier: Tier, guarantees: &mut [Guarantee]) {
    for one in guarantees {
        // A disk fills faster than it is measured. Memory and CPU time are measured often enough.
        let is_quick = one.key != "disk_limit";
        one.open = match one.status {
            GuaranteeStatus::Enforced => Vec::new(),
            GuaranteeStatus::Watched if is_quick => Vec::new(),
            GuaranteeStatus::Watched | GuaranteeStatus::Missing => {
                attacks(facts, tier, &one.key).iter().map(|name| (*name).to_owned()).collect()
            }
        };
    }
}

fn attacks(facts: &Facts, tier: Tier, key: &str) -> &'static [&'static str] {
    match (key, tier) {
        ("namespaces", _) => {
            &["ns.user", "ns.pid", "ns.mnt", "ns.net", "ns.ipc", "ns.uts", "ns.cgroup", "proc.exists"]
        }
        ("cgroup_namespace", _) => &["ns.cgroup"],
        ("own_root", _) => &[
            "fs.canary_stat",
            "fs.path_open",
            "fs.readlink_host",
            "fs.chdir_host",
            "fs.watch_host",
            "fs.device_times",
        ],
        ("private_ids", _) => &["proc.own_uid", "proc.groups"],
        ("file_attributes", _) => &["fs.chmod_host", "fs.chown_host", "fs.utime_host", "fs.xattr_host"],
        ("no_signals_out", _) => {
            &["proc.kill", "proc.tgkill", "proc.pidfd_signal", "proc.sigqueue", "proc.kill_runtime"]
        }
        ("landlock", Tier::Process) => &["fs.canary_truncate"],
        ("landlock", Tier::Container) => &["proc.oom_adj"],
        ("memory_limit", Tier::Container) => &["res.memory_many", "res.memfd", "res.sysv_memory"],
        ("memory_limit", Tier::Process) => &["res.memory_many", "res.memfd"],
        // As root an rlimit replaces it: no other process has the sandbox's user id.
        ("pids_limit", Tier::Process) if !facts.root => &["res.fork", "res.threads"],
        ("pids_limit", Tier::Container) => &["res.fork_ids"],
        ("cpu_limit", _) => &["res.cpu"],
        ("disk_limit", _) => &["res.disk", "res.inodes"],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_attack_named_in_a_report_is_one_of_the_suite() {
        let known: Vec<&str> = isle_probe::attacks().map(|attack| attack.name).collect();
        let keys = [
            "namespaces",
            "cgroup_namespace",
            "own_root",
            "private_ids",
            "file_attributes",
            "no_signals_out",
            "landlock",
            "memory_limit",
            "pids_limit",
            "cpu_limit",
            "disk_limit",
        ];
        let facts = Facts { root: false, ..Facts::gather() };
        for (key, tier) in keys.iter().flat_map(|key| [(key, Tier::Container), (key, Tier::Process)]) {
            for name in attacks(&facts, tier, key) {
                assert!(known.contains(name), "{name}");
            }
        }
    }
}
