//! The directory of a whole test run, which `tests/all.sh` makes and names in `ISLE_TEST_RUN`: there the
//! tests write down what was skipped and which identities their daemons had. A test that is started by
//! hand has none.

use std::io::Write;
use std::path::{Path, PathBuf};

use crate::leaks::instance;

/// How deep below a home a state directory is looked for: some tests have several.
const DEPTH: usize = 4;

/// The directory of this run.
pub(crate) fn directory() -> Option<PathBuf> {
    std::env::var_os("ISLE_TEST_RUN").filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// Writes down the identities of all state directories below a directory that is about to go: control
/// groups and volumes outside of it are named after them, and `tests/leaks.sh` looks for those.
pub fn note_identities(directory: &Path) {
    let mut names = Vec::new();
    find(directory, DEPTH, &mut names);
    names.iter().for_each(|name| note(name));
}

/// Writes down a name beginning with `isle-` that only this run gives to control groups or directories.
pub fn note(name: &str) {
    let Some(run) = directory() else { return };
    let file = std::fs::OpenOptions::new().append(true).create(true).open(run.join("instances"));
    file.and_then(|mut file| file.write_all(format!("{name}\n").as_bytes()))
        .unwrap_or_else(|why| panic!("identities could not be recorded in {}: {why}", run.display()));
}

fn find(directory: &Path, depth: usize, names: &mut Vec<String>) {
    if directory.join("instance").is_file() {
        names.push(instance(directory));
    }
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        // What sandboxes wrote is below these.
        if depth > 0 && entry.file_name() != "native" {
            find(&entry.path(), depth - 1, names);
        }
    }
}
