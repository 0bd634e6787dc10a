//! The plan of a sync: what has to be sent and removed to make one tree equal to another.

use std::collections::{BTreeMap, BTreeSet};

use crate::manifest::ManifestEntry;
use crate::walk::Kind;

/// The plan, with paths relative to the top.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct SyncPlan {
    /// Files and directories to send.
    pub send: Vec<Vec<u8>>,
    /// Bytes of those files.
    pub bytes: u64,
    /// What exists only at the target; the contents of a directory come before it.
    pub extra: Vec<Vec<u8>>,
    /// Paths of different types on both sides.
    pub conflicts: Vec<Vec<u8>>,
    /// The types of the first conflict at the source and at the target.
    pub conflict: Option<(Kind, Kind)>,
    /// Files that are equal.
    pub unchanged: u64,
    /// What cannot be sent: symbolic links, pipes, unreadable files.
    pub left_out: Vec<Vec<u8>>,
}

impl SyncPlan {
    /// The number of files it sends, given the source entries.
    #[must_use]
    pub fn files(&self, from: &[ManifestEntry]) -> u64 {
        let files: BTreeSet<&[u8]> =
            from.iter().filter(|entry| entry.kind == Kind::File).map(|entry| &entry.path[..]).collect();
        let sent = self.send.iter().chain(&self.conflicts);
        sent.filter(|path| files.contains(&path[..])).count() as u64
    }
}

/// Compares the source with the target.
#[must_use]
pub fn plan(from: &[ManifestEntry], to: &[ManifestEntry]) -> SyncPlan {
    let there: BTreeMap<&[u8], &ManifestEntry> = to.iter().map(|entry| (&entry.path[..], entry)).collect();
    let mut plan = SyncPlan::default();
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
            (Kind::File | Kind::Directory, Some(there)) => {
                plan.conflict.get_or_insert((entry.kind, there));
                plan.conflicts.push(entry.path.clone());
            }
        }
    }
    // Reversed: the contents of a directory sort after it.
    plan.extra =
        there.keys().rev().filter(|path| !wanted.contains_key(*path)).map(|path| path.to_vec()).collect();
    plan
}

impl SyncPlan {
    /// The first conflict as a message, if there is one.
    #[must_use]
    pub fn conflict_message(&self) -> Option<String> {
        let word = |kind: Kind| match kind {
            Kind::File => "a file",
            Kind::Directory => "a directory",
            Kind::Symlink => "a symbolic link, which is not followed",
            Kind::Other => "neither a file nor a directory",
        };
        let ((from, to), path) = (self.conflict?, self.conflicts.first()?);
        let path = String::from_utf8_lossy(path);
        Some(format!("{path:?} is {} at the source; at the target it is {}", word(from), word(to)))
    }

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
    fn only_differences_are_sent_and_extra_files_come_before_their_directory() {
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
        let words = planned.conflict_message().unwrap();
        assert_eq!(words, "\"clash\" is a file at the source; at the target it is a directory");
        let onto_link = plan(&[entry("x", Kind::File, 1)], &[entry("x", Kind::Symlink, 0)]);
        assert!(
            onto_link.conflict_message().unwrap().contains("it is a symbolic link, which is not followed")
        );
    }
}
