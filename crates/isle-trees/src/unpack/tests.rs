//! Packing and unpacking on a real disk.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use super::*;
use crate::pack::{PackOptions, Packer};
use crate::tar::{end, padding, write_header};

const BOUNDS: Bounds = Bounds { entries: 1000, bytes: 1 << 20, modes: 0o755 };

fn opened(path: &Path) -> OwnedFd {
    rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap()
}

fn pack(path: &Path, only: Option<Vec<Vec<u8>>>) -> (Vec<u8>, Carried) {
    let mut packer = Packer::new(opened(path), PackOptions { sparse_limit: 1 << 20, only }).unwrap();
    let mut bytes = Vec::new();
    while let Some(piece) = packer.piece() {
        bytes.extend(piece);
    }
    (bytes, packer.carried().clone())
}

fn unpack(bytes: &[u8], path: &Path) -> Result<Carried, UnpackError> {
    let mut unpacker = Unpacker::new(opened(path), BOUNDS).unwrap();
    for piece in bytes.chunks(777) {
        unpacker.feed(piece)?;
    }
    unpacker.finish()
}

fn listing(path: &Path) -> Vec<String> {
    let mut walker = crate::Walker::new(opened(path)).unwrap();
    let mut all = Vec::new();
    while let Some(found) = walker.step() {
        all.push(String::from_utf8_lossy(&found.path).into_owned());
    }
    all
}

#[test]
fn a_tree_is_unpacked_as_packed_without_special_files() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let at = |name: &str| from.path().join(name);
    std::fs::create_dir_all(at("d/empty")).unwrap();
    std::fs::write(at("d/big"), vec![3; 700_000]).unwrap();
    std::fs::write(at("run"), "x").unwrap();
    std::fs::set_permissions(at("run"), std::fs::Permissions::from_mode(0o4777)).unwrap();
    symlink("/etc", at("link")).unwrap();
    std::fs::File::create(at("hole")).unwrap().set_len(1 << 40).unwrap();
    let (bytes, packed) = pack(from.path(), None);
    assert_eq!((packed.files, packed.directories, packed.skipped_count), (2, 2, 2));
    let carried = unpack(&bytes, to.path()).unwrap();
    assert_eq!((carried.files, carried.directories, carried.bytes), (2, 2, 700_001));
    assert_eq!(listing(to.path()), ["d", "d/big", "d/empty", "run"]);
    let mode = std::fs::metadata(to.path().join("run")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o755, "no set-uid, and no more than allowed");
    // Over itself: what is there is replaced, nothing else is touched.
    std::fs::write(to.path().join("d/kept"), "kept").unwrap();
    std::fs::write(to.path().join("run"), "old").unwrap();
    unpack(&bytes, to.path()).unwrap();
    assert_eq!(std::fs::read(to.path().join("run")).unwrap(), b"x");
    assert_eq!(listing(to.path()), ["d", "d/big", "d/empty", "d/kept", "run"]);
}

#[test]
fn only_what_is_listed_is_packed_and_no_link_is_walked_through() {
    let from = tempfile::tempdir().unwrap();
    let at = |name: &str| from.path().join(name);
    std::fs::create_dir(at("d")).unwrap();
    std::fs::write(at("d/a"), "a").unwrap();
    std::fs::write(at("b"), "b").unwrap();
    symlink("/etc", at("out")).unwrap();
    let only = ["d/a", "out/hostname", "../x", "missing"].map(|path| path.as_bytes().to_vec());
    let (bytes, packed) = pack(from.path(), Some(only.to_vec()));
    assert_eq!((packed.files, packed.skipped_count), (1, 3));
    let to = tempfile::tempdir().unwrap();
    unpack(&bytes, to.path()).unwrap();
    assert_eq!(listing(to.path()), ["d", "d/a"]);
}

/// Appends an entry.
type Append<'a> = &'a dyn Fn(&mut Vec<u8>, &[u8], EntryKind);
/// Makes an archive bad.
type Case = fn(&mut Vec<u8>, Append<'_>);

#[test]
fn a_bad_archive_changes_nothing_and_leaves_nothing() {
    let to = tempfile::tempdir().unwrap();
    std::fs::write(to.path().join("kept"), "before").unwrap();
    std::fs::create_dir(to.path().join("taken")).unwrap();
    let good = |bytes: &mut Vec<u8>| {
        write_header(bytes, b"kept", &EntryKind::File(3), 0o644, 0);
        bytes.extend_from_slice(b"new");
        padding(bytes, 3);
    };
    let entry =
        |bytes: &mut Vec<u8>, path: &[u8], kind: EntryKind| write_header(bytes, path, &kind, 0o644, 0);
    let cases: [Case; 6] = [
        |bytes, entry| entry(bytes, b"../escape", EntryKind::File(0)),
        |bytes, entry| entry(bytes, b"kept", EntryKind::File(0)),
        |bytes, entry| entry(bytes, b"taken", EntryKind::File(0)),
        |bytes, entry| entry(bytes, b"kept/below", EntryKind::File(0)),
        |bytes, entry| {
            entry(bytes, b"l", EntryKind::Symlink(b"taken".to_vec()));
            entry(bytes, b"l/through", EntryKind::File(0));
        },
        |bytes, entry| entry(bytes, b"huge", EntryKind::File(1 << 21)),
    ];
    for (number, case) in cases.iter().enumerate() {
        let mut bytes = Vec::new();
        good(&mut bytes);
        case(&mut bytes, &entry);
        end(&mut bytes);
        assert!(unpack(&bytes, to.path()).is_err(), "case {number}");
        assert_eq!(std::fs::read(to.path().join("kept")).unwrap(), b"before", "case {number}");
        assert_eq!(listing(to.path()), ["kept", "taken"], "case {number}");
    }
    let mut half = Vec::new();
    good(&mut half);
    assert!(unpack(&half, to.path()).is_err());
    assert_eq!(listing(to.path()), ["kept", "taken"]);
}

#[test]
fn staging_directories_of_dead_processes_are_removed() {
    let to = tempfile::tempdir().unwrap();
    let left = to.path().join(".isle-unpack-0123");
    std::fs::create_dir_all(left.join("deep/er")).unwrap();
    let living = Unpacker::new(opened(to.path()), BOUNDS).unwrap();
    assert!(!left.exists());
    let other = Unpacker::new(opened(to.path()), BOUNDS).unwrap();
    assert_eq!(listing(to.path()).len(), 2, "one that is at work is left alone");
    drop((living, other));
    assert!(listing(to.path()).is_empty());
}
