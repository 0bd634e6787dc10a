use super::*;

fn archive(entries: &[(&str, &[u8], u32)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (path, contents, mode) in entries {
        let kind = match path.strip_suffix('/') {
            Some(_) => EntryKind::Directory,
            None => EntryKind::File(contents.len() as u64),
        };
        write_header(&mut bytes, path.trim_end_matches('/').as_bytes(), &kind, *mode, 0);
        bytes.extend_from_slice(contents);
        padding(&mut bytes, contents.len() as u64);
    }
    end(&mut bytes);
    bytes
}

fn filtered(bytes: &[u8], git_dirs: GitDirs) -> Vec<u8> {
    let mut filter = TreeFilter::new(1000, 1 << 20, git_dirs);
    let mut out = Vec::new();
    for piece in bytes.chunks(77) {
        out.extend(filter.feed(piece).unwrap());
    }
    out.extend(filter.finish().unwrap());
    out
}

#[derive(Default)]
struct Listed(Vec<(String, u32, Vec<u8>)>);

impl Sink for Listed {
    type Error = TarError;
    fn begin(&mut self, entry: Entry) -> Result<(), TarError> {
        self.0.push((String::from_utf8_lossy(&entry.parts.join(&b'/')).into_owned(), entry.mode, Vec::new()));
        Ok(())
    }
    fn data(&mut self, bytes: &[u8]) -> Result<(), TarError> {
        self.0.last_mut().unwrap().2.extend_from_slice(bytes);
        Ok(())
    }
    fn complete(&mut self) -> Result<(), TarError> {
        Ok(())
    }
}

#[test]
fn git_directories_and_set_uid_bits_do_not_pass_and_the_rest_does() {
    let long = [b"ref: refs/heads/".to_vec(), vec![b'x'; 3000]].concat();
    let notes = vec![b'n'; 3000];
    let bytes = archive(&[
        ("a", b"contents", 0o4755),
        (".git/", b"", 0o755),
        (".git/config", b"evil", 0o644),
        ("bare/", b"", 0o755),
        ("bare/HEAD", b"ref: refs/heads/main", 0o644),
        ("bare/config", b"evil", 0o644),
        ("long/head", &long, 0o644),
        ("notes/HEAD", &notes, 0o644),
        ("empty/HEAD", b"", 0o644),
        ("z", b"last", 0o644),
    ]);
    let mut listed = Listed::default();
    let mut reader = Reader::new(1000, 1 << 20);
    reader.feed(&filtered(&bytes, GitDirs::Skip), &mut listed).unwrap();
    reader.finish().unwrap();
    let names: Vec<&str> = listed.0.iter().map(|(name, ..)| name.as_str()).collect();
    assert_eq!(names, ["a", "bare", "bare/config", "notes/HEAD", "empty/HEAD", "z"]);
    assert_eq!((listed.0[0].1, &listed.0[0].2[..]), (0o755, &b"contents"[..]));
    assert_eq!(listed.0[3].2, notes);
    let mut carried = Carried::default();
    learn(&mut carried, reader.comments());
    let left: Vec<_> =
        carried.skipped.iter().map(|left| String::from_utf8_lossy(&left.path).into_owned()).collect();
    assert_eq!(left, [".git", "bare/HEAD", "long/head"]);
    let mut all = Listed::default();
    Reader::new(1000, 1 << 20).feed(&filtered(&bytes, GitDirs::Copy), &mut all).unwrap();
    assert_eq!(all.0.len(), 10);
}
