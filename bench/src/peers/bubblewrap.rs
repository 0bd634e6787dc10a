//! bubblewrap with the flags a careful caller gives it: every namespace, a user of its own, no
//! capabilities, a session of its own, the system read-only.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use crate::error::Result;
use crate::peers;
use crate::spawn::Prepared;

/// The command line that runs `/bin/true`.
pub(crate) fn command() -> Result<Prepared, String> {
    let program = peers::find("bwrap")?;
    let mut words: Vec<OsString> = vec![program.into()];
    let mut add = |more: &[&str]| words.extend(more.iter().map(OsString::from));
    add(&["--unshare-all", "--new-session", "--die-with-parent", "--cap-drop", "ALL"]);
    add(&["--uid", "1000", "--gid", "1000", "--hostname", "sandbox", "--clearenv"]);
    add(&["--setenv", "PATH", "/usr/local/bin:/usr/bin:/bin", "--ro-bind", "/usr", "/usr"]);
    for directory in ["/bin", "/sbin", "/lib", "/lib64"] {
        // Links into /usr on a merged system, directories of their own elsewhere.
        match fs::read_link(directory) {
            Ok(target) => add(&["--symlink", &target.to_string_lossy(), directory]),
            Err(_) if Path::new(directory).is_dir() => add(&["--ro-bind", directory, directory]),
            Err(_) => {}
        }
    }
    add(&["--ro-bind", "/etc/ld.so.cache", "/etc/ld.so.cache", "--proc", "/proc", "--dev", "/dev"]);
    add(&["--tmpfs", "/tmp", "--tmpfs", "/workspace", "--chdir", "/workspace", "/bin/true"]);
    let command = Prepared::new(&words).map_err(|error| error.to_string())?;
    command.time().map_err(|error| format!("installed, but it does not work here: {error}"))?;
    Ok(command)
}
