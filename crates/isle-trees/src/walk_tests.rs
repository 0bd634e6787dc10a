use super::*;

fn opened(path: &std::path::Path) -> OwnedFd {
    rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap()
}

#[test]
fn a_walk_is_ordered_and_does_not_follow_links() {
    let place = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(place.path().join("b/c")).unwrap();
    std::fs::write(place.path().join("b/c/x"), "x").unwrap();
    std::fs::write(place.path().join("a"), "a").unwrap();
    std::os::unix::fs::symlink("b", place.path().join("link")).unwrap();
    let mut walker = Walker::new(opened(place.path())).unwrap();
    let mut told = Vec::new();
    while let Some(found) = walker.step() {
        told.push((String::from_utf8(found.path).unwrap(), found.kind));
    }
    let expected = [
        ("a", Kind::File),
        ("b", Kind::Directory),
        ("b/c", Kind::Directory),
        ("b/c/x", Kind::File),
        ("link", Kind::Symlink),
    ];
    assert_eq!(told, expected.map(|(path, kind)| (path.to_owned(), kind)));
    assert!(open_beneath(opened(place.path()).as_fd(), b"link/c", OFlags::RDONLY).is_err());
    assert!(open_beneath(opened(place.path()).as_fd(), b"../x", OFlags::RDONLY).is_err());
}

#[test]
fn a_directory_that_is_skipped_is_not_entered() {
    let place = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(place.path().join("b/c")).unwrap();
    let mut walker = Walker::new(opened(place.path())).unwrap();
    assert_eq!(walker.step().unwrap().path, b"b");
    walker.skip();
    assert!(walker.step().is_none());
}

#[test]
fn a_walk_is_bounded_and_reports_what_it_skipped() {
    let place = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(place.path().join("a/b")).unwrap();
    for name in ["a/b/1", "a/b/2", "a/c", "d"] {
        std::fs::write(place.path().join(name), "x").unwrap();
    }
    let walk = |most| {
        let mut walker = Walker::bounded(opened(place.path()), most).unwrap();
        let told = std::iter::from_fn(|| walker.step().map(|found| found.path)).count();
        (told, walker.left_out(), walker.unentered().to_vec())
    };
    assert_eq!(walk(6), (6, 0, Vec::new()), "exactly as many as there are");
    let (told, left_out, named) = walk(3);
    assert_eq!((told, left_out), (3, 3));
    assert_eq!(named, [&b"a/b"[..], b"a", b""]);
}

#[test]
fn pseudo_file_systems_are_not_entered() {
    let mut walker = Walker::new(opened("/".as_ref())).unwrap();
    while let Some(found) = walker.step() {
        if found.path != b"proc" {
            assert!(!found.path.starts_with(b"proc/"), "{:?}", String::from_utf8_lossy(&found.path));
            walker.skip();
        }
    }
}
