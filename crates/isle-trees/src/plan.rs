//! What has to be sent and removed so that one tree becomes like another.

use std::collections::{BTreeMap, BTreeSet};

use crate::manifest::ManifestEntry;
use crate::walk::Kind;

/// What to do, as paths relative to the tops.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Files and directories to send.
    pub send: Vec<Vec<u8>>,
    /// Bytes of those files.
    pub bytes: u64,
    /// What is only on the other side; what a directory holds comes before it.
    pub extra: Vec<Vec<u8>>,
    /// Where one side has a file and the other a directory, or something that is neither.
    pub conflicts: Vec<Vec<u8>>,
    /// Files that are the same already.
    pub unchanged: u64,
    /// What can be neither sent nor compared: links, pipes, files that may not be read.
    pub left_out: Vec<Vec<u8>>,
}

impl Plan {
    /// How many files it sends, of the entries it was made from.
    #[must_use]
    pub fn files(&self, from: &[ManifestEntry]) -> u64 {
        let files: BTreeSet<&[u8]> =
            from.iter().filter(|entry| entry.kind == Kind::File).map(|entry| &entry.path[..]).collect();
        let sent = self.send.iter().chain(&self.conflicts);
        sent.filter(|path| files.contains(&path[..])).count() as u64
    }
}

/// Compares where things come from with where they go to.
#[must_use]
pub fn plan(from: &[ManifestEntry], to: &[ManifestEntry]) -> Plan {
    let there: BTreeMap<&[u8], &ManifestEntry> = to.iter().map(|entry| (&entry.path[..], entry)).collect();
    let mut plan = Plan::default();
    let mut wanted: BTreeMap<&[u8], ()> = BTreeMap::new();
    for entry in from {
        wanted.insert(&entry.path, ());
        let other = there.get(&entry.path[..]);
        match (entry.kind, other.map(|other| other.kind)) {
            (Kind::Symlink | Kind::Other, _) => plan.left_out.push(entry.path.clone()),
            (Kind::Directory, Some(Kind::Directory)) => {}
            (Kind::Directory, None) => plan.send.push(entry.path.clone()),
            (Kind::File, _) if entry.hash.is_none() => plan.left_out.push(entry.path.clone()),
            (Kind::File, None) => plan.send_file(entry),
            (Kind::File, Some(Kind::File)) => {
                let same = other
                    .is_some_and(|other| other.hash == entry.hash && (other.mode ^ entry.mode) & 0o111 == 0);
                if same {
                    plan.unchanged += 1;
                } else {
                    plan.send_file(entry);
                }
            }
            (Kind::File | Kind::Directory, Some(_)) => plan.conflicts.push(entry.path.clone()),
        }
    }
    // Backwards: what is in a directory sorts after it.
    plan.extra =
        there.keys().rev().filter(|path| !wanted.contains_key(*path)).map(|path| path.to_vec()).collect();
    plan
}

impl Plan {
    fn send_file(&mut self, entry: &ManifestEntry) {
        self.bytes += entry.size;
        self.send.push(entry.path.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(path: &str, kind: Kind, hash: u8) -> ManifestEntry {
        let hash = (kind == Kind::File).then_some([hash; 32]);
        ManifestEntry { path: path.into(), kind, mode: 0o644, size: 3, hash }
    }

    #[test]
    fn only_what_differs_is_sent_and_what_is_extra_is_named_inside_out() {
        let from = [
            entry("d", Kind::Directory, 0),
            entry("d/new", Kind::File, 1),
            entry("changed", Kind::File, 2),
            entry("same", Kind::File, 3),
            entry("link", Kind::Symlink, 0),
            entry("clash", Kind::File, 4),
        ];
        let to = [
            entry("changed", Kind::File, 9),
            entry("clash", Kind::Directory, 0),
            entry("old", Kind::Directory, 0),
            entry("old/file", Kind::File, 5),
            entry("same", Kind::File, 3),
        ];
        let planned = plan(&from, &to);
        let paths = |list: &[Vec<u8>]| -> Vec<String> {
            list.iter().map(|path| String::from_utf8(path.clone()).unwrap()).collect()
        };
        assert_eq!(paths(&planned.send), ["d", "d/new", "changed"]);
        assert_eq!(paths(&planned.extra), ["old/file", "old"]);
        assert_eq!(paths(&planned.conflicts), ["clash"]);
        assert_eq!(paths(&planned.left_out), ["link"]);
        assert_eq!((planned.unchanged, planned.bytes), (1, 6));
    }
}
