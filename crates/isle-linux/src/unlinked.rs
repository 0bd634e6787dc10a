//! Counting the files of a sandbox that have no name any more, from one look to the next. The daemon of
//! root looks itself; that of an ordinary user may not, so a short-lived process looks from within the
//! namespace above the sandbox's.

use std::collections::HashMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::Stdio;
use std::time::Duration;

use super::watch::descendants;
use isle_setup::tree::{FileKey, UnlinkedFiles};

/// Processes that are looked at in one round; a sandbox's limits are far below.
const MOST_PROCESSES: usize = 4096;
/// More than looking takes.
const LONGEST: Duration = Duration::from_secs(20);

/// What is known of a sandbox's unlinked files.
#[derive(Debug, Default)]
pub(super) struct Unlinked {
    known: HashMap<FileKey, u64>,
    program: Option<OwnedFd>,
}

impl Unlinked {
    /// Bytes of all unlinked files of a sandbox, each counted once; the last result when it cannot be measured.
    pub(super) async fn look(&mut self, first: &OwnedFd) -> u64 {
        let pids: Vec<i32> = descendants(first).into_iter().take(MOST_PROCESSES).collect();
        let files = if pids.len() < 2 {
            // Only the agent.
            Some(UnlinkedFiles::default())
        } else if rustix::process::geteuid().is_root() {
            let looking = move || {
                let mut files = UnlinkedFiles::default();
                pids.into_iter().for_each(|pid| files.at(pid));
                files
            };
            tokio::task::spawn_blocking(looking).await.ok()
        } else {
            self.ask(&pids).await
        };
        match files {
            Some(files) => self.learn(files),
            None => self.known.values().sum(),
        }
    }

    async fn ask(&mut self, pids: &[i32]) -> Option<UnlinkedFiles> {
        if self.program.is_none() {
            self.program = isle_embed::agent_file().ok();
        }
        let program = self.program.as_ref()?;
        let mut command = tokio::process::Command::new(format!("/proc/self/fd/{}", program.as_raw_fd()));
        command.arg("unlinked").args(pids.iter().map(ToString::to_string));
        command.env_clear().current_dir("/").stdin(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
        let output = tokio::time::timeout(LONGEST, command.output()).await.ok()?.ok()?;
        UnlinkedFiles::from_lines(&String::from_utf8_lossy(&output.stdout))
    }

    /// A file that is no longer open anywhere may still be mapped, or on its way through a socket: then it
    /// counts as large as it was when it was last open.
    fn learn(&mut self, look: UnlinkedFiles) -> u64 {
        let before = std::mem::take(&mut self.known);
        let held = before.into_iter().filter(|(key, _)| look.in_flight || look.mapped.contains_key(key));
        self.known = held.collect();
        for (key, bytes) in look.mapped {
            let known = self.known.entry(key).or_default();
            *known = bytes.max(*known);
        }
        self.known.extend(look.open);
        self.known.values().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_open_counts_on_while_it_can_still_be_held() {
        let mut unlinked = Unlinked::default();
        let look = |open: &[(FileKey, u64)], mapped: &[(FileKey, u64)], in_flight| {
            let mut look = UnlinkedFiles::default();
            look.open.extend(open.iter().copied());
            look.mapped.extend(mapped.iter().copied());
            look.in_flight = in_flight;
            look
        };
        assert_eq!(unlinked.learn(look(&[((1, 1), 600), ((1, 2), 10)], &[], false)), 610);
        assert_eq!(unlinked.learn(look(&[], &[((1, 1), 4)], false)), 600, "mapped: as large as it was");
        assert_eq!(unlinked.learn(look(&[], &[], true)), 600, "in a socket");
        assert_eq!(unlinked.learn(look(&[], &[], false)), 0);
        assert_eq!(unlinked.learn(look(&[], &[((1, 3), 8)], false)), 8, "never seen open");
    }
}
