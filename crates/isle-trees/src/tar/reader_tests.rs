//! What the reader takes and what it refuses.

use super::*;
use crate::tar::{end, padding, write_header};

#[derive(Debug, Default)]
struct Kept {
    entries: Vec<(Entry, Vec<u8>)>,
    completed: usize,
}

impl Sink for Kept {
    type Error = TarError;
    fn begin(&mut self, entry: Entry) -> Result<(), TarError> {
        self.entries.push((entry, Vec::new()));
        Ok(())
    }
    fn data(&mut self, bytes: &[u8]) -> Result<(), TarError> {
        self.entries.last_mut().unwrap().1.extend_from_slice(bytes);
        Ok(())
    }
    fn complete(&mut self) -> Result<(), TarError> {
        self.completed += 1;
        Ok(())
    }
}

fn archive(entries: &[(&[u8], EntryKind, &[u8])]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (path, kind, contents) in entries {
        write_header(&mut bytes, path, kind, 0o640, 7);
        bytes.extend_from_slice(contents);
        padding(&mut bytes, contents.len() as u64);
    }
    end(&mut bytes);
    bytes
}

fn read_in(bytes: &[u8], piece: usize) -> Result<Kept, TarError> {
    let mut reader = Reader::new(100, 1 << 20);
    let mut kept = Kept::default();
    for piece in bytes.chunks(piece) {
        reader.feed(piece, &mut kept)?;
    }
    reader.finish()?;
    Ok(kept)
}

/// A header with bytes put into it by force, and its sum made right again.
fn forged(change: impl Fn(&mut [u8])) -> Vec<u8> {
    let mut bytes = archive(&[(b"x", EntryKind::File(0), b"")]);
    change(&mut bytes[..BLOCK]);
    bytes[148..156].fill(b' ');
    let sum: u32 = bytes[..BLOCK].iter().map(|&byte| u32::from(byte)).sum();
    bytes[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    bytes
}

#[test]
fn a_written_archive_is_read_back_in_pieces_of_any_size() {
    let long = [b"d/".repeat(60), vec![b'n'; 200], b"\n\xff".to_vec()].concat();
    let entries: &[(&[u8], EntryKind, &[u8])] = &[
        (b"dir", EntryKind::Directory, b""),
        (b"dir/a", EntryKind::File(5), b"hello"),
        (b"empty", EntryKind::File(0), b""),
        (b"dir/link", EntryKind::Symlink(b"../empty".to_vec()), b""),
        (&long, EntryKind::File(513), &[7; 513]),
    ];
    let bytes = archive(entries);
    for piece in [1, 13, 512, 100_000] {
        let kept = read_in(&bytes, piece).unwrap();
        assert_eq!(kept.entries.len(), entries.len());
        assert_eq!(kept.completed, 3);
        for ((entry, contents), (path, kind, expected)) in kept.entries.iter().zip(entries) {
            assert_eq!(entry.parts.join(&b'/'), *path);
            assert_eq!((&entry.kind, &contents[..], entry.mode, entry.modified), (kind, *expected, 0o640, 7));
        }
    }
}

#[test]
fn unsafe_names_are_rejected() {
    let too_deep = b"d/".repeat(130);
    let too_long = [b'x'; 300];
    for bad in [&b"../x"[..], b"a/../../x", b"/etc/passwd", b"a/..", &too_deep, &too_long] {
        let refused = read_in(&archive(&[(bad, EntryKind::File(0), b"")]), 512).unwrap_err();
        assert!(matches!(refused, TarError::Name(..)), "{refused}");
    }
    let refused = read_in(&forged(|header| header[0] = 0), 512).unwrap_err();
    assert!(matches!(refused, TarError::Name(..)), "{refused}");
}

#[test]
fn links_that_point_outside_are_rejected() {
    for (at, target) in [
        (&b"l"[..], &b"/etc"[..]),
        (b"l", b"../x"),
        (b"d/l", b"../../x"),
        (b"d/l", b"other/../../../x"),
        (b"l", b"a/.."),
        (b"l", b""),
    ] {
        let refused = read_in(&archive(&[(at, EntryKind::Symlink(target.to_vec()), b"")]), 512).unwrap_err();
        assert!(matches!(refused, TarError::Link(..)), "{refused}");
    }
    assert!(read_in(&archive(&[(b"a/l", EntryKind::Symlink(b"../b".to_vec()), b"")]), 512).is_ok());
}

#[test]
fn hard_links_devices_pipes_and_sparse_files_are_rejected() {
    for kind in [b'1', b'3', b'4', b'6', b'S', b'V', b'Z'] {
        let refused = read_in(&forged(|header| header[156] = kind), 512).unwrap_err();
        assert!(matches!(refused, TarError::Kind(..)), "{refused}");
    }
}

#[test]
fn a_damaged_or_truncated_archive_is_rejected() {
    let whole = archive(&[(b"a", EntryKind::File(600), &[1; 600])]);
    for cut in [0, 1, 511, 512, 700, 1535, 1536] {
        assert_eq!(read_in(&whole[..cut], 512).unwrap_err(), TarError::BreaksOff, "{cut}");
    }
    let mut damaged = whole.clone();
    damaged[0] ^= 1;
    assert_eq!(read_in(&damaged, 512).unwrap_err(), TarError::NotAnArchive);
    assert_eq!(read_in(&[b'x'; 2048], 512).unwrap_err(), TarError::NotAnArchive);
    let swollen = forged(|header| {
        header[156] = b'5';
        header[124..135].copy_from_slice(b"00000001000");
    });
    assert_eq!(read_in(&swollen, 512).unwrap_err(), TarError::NotAnArchive);
}

#[test]
fn limits_are_checked_before_reading() {
    let huge = forged(|header| header[124..135].copy_from_slice(b"77777777777"));
    assert!(matches!(read_in(&huge, 512).unwrap_err(), TarError::TooLarge(..)));
    let name = |number: usize| format!("f{number}").into_bytes();
    let names: Vec<Vec<u8>> = (0..300).map(name).collect();
    let entries: Vec<(&[u8], EntryKind, &[u8])> =
        names.iter().map(|name| (&name[..], EntryKind::File(0), &b""[..])).collect();
    assert!(matches!(read_in(&archive(&entries), 512).unwrap_err(), TarError::TooLarge(..)));
    let mut bytes = Vec::new();
    for _ in 0..300 {
        // Long names without an entry to belong to.
        let mut one = Vec::new();
        write_header(&mut one, &[b'x'; 200], &EntryKind::File(0), 0o644, 0);
        bytes.extend_from_slice(&one[..2 * BLOCK]);
    }
    assert!(matches!(read_in(&bytes, 512).unwrap_err(), TarError::TooLarge(..)));
}

#[test]
fn archives_of_other_programs_are_read() {
    let place = tempfile::tempdir().unwrap();
    let long = "n".repeat(150);
    std::fs::create_dir(place.path().join("d")).unwrap();
    std::fs::write(place.path().join("d").join(&long), "long").unwrap();
    std::fs::write(place.path().join("d/a"), "text").unwrap();
    for format in ["gnu", "posix", "ustar"] {
        let made = std::process::Command::new("tar")
            .args(["-C", place.path().to_str().unwrap(), "--format", format, "-cf", "-"])
            .arg(if format == "ustar" { "./d/a" } else { "d" })
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let kept = read_in(&made.stdout, 1000);
        let kept = match kept {
            Ok(kept) => kept,
            Err(error) => panic!("{format}: {error}"),
        };
        assert!(
            kept.entries
                .iter()
                .any(|(entry, contents)| { entry.parts.join(&b'/') == b"d/a" && contents == b"text" })
        );
        assert_eq!(
            format != "ustar",
            kept.entries.iter().any(|(entry, contents)| {
                entry.parts.last().unwrap() == long.as_bytes() && contents == b"long"
            })
        );
    }
}
