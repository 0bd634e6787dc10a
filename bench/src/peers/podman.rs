//! Podman, straight from a root filesystem.

use std::ffi::OsString;
use std::process::Command;

use super::rootfs::Rootfs;
use super::{find, prepare};
use crate::spawn::Prepared;

/// As it comes, and else the way that works on a host with both versions of cgroups and low limits.
const WAYS: [&[&str]; 2] = [
    &["run", "--rm", "--network", "none"],
    &[
        "--cgroup-manager",
        "cgroupfs",
        "run",
        "--rm",
        "--network",
        "none",
        "--runtime",
        "runc",
        "--ulimit",
        "nofile=1024:1024",
        "--ulimit",
        "nproc=1024:1024",
    ],
];

/// The command that runs `/bin/true` in a fresh container.
pub(crate) fn run(rootfs: &Rootfs) -> Result<Prepared, String> {
    let program = find("podman")?;
    let home = std::env::var_os("HOME").unwrap_or_else(|| "/root".into());
    let mut problem = String::new();
    for way in WAYS {
        let mut words: Vec<OsString> = vec![program.clone().into()];
        words.extend(way.iter().map(OsString::from));
        words.extend(["--rootfs".into(), rootfs.path().into_os_string(), "/bin/true".into()]);
        match prepare(Command::new(&words[0]).args(&words[1..])) {
            Ok(_) => {
                let command = Prepared::new(&words).and_then(|command| command.variable("HOME", home));
                return command.map_err(|error| error.to_string());
            }
            Err(reason) => problem = reason,
        }
    }
    Err(problem)
}
