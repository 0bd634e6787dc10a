use super::*;

fn selector(exclude: &[&str], git: bool) -> Selector {
    let exclude = exclude.iter().map(|&pattern| pattern.to_owned()).collect();
    Selector::new(&Selection { exclude, git, ignored: false }).unwrap()
}

#[test]
fn patterns_mean_what_they_mean_to_git() {
    let mut selector = selector(&["/top", "!keep.log"], false);
    selector.add(b".gitignore", b"*.log\nbuild/\n.venv\n# not a pattern\n/only-here\n");
    selector.add(b"sub/.gitignore", b"!special.tmp\n*.tmp\n!kept.tmp\n");
    for (path, is_directory, expected) in [
        ("a.log", false, true),
        ("deep/a.log", false, true),
        ("keep.log", false, false),
        ("build", true, true),
        ("build", false, false),
        (".venv", true, true),
        ("sub/.venv", true, true),
        ("only-here", false, true),
        ("sub/only-here", false, false),
        ("top", false, true),
        ("sub/top", false, false),
        ("sub/x.tmp", false, true),
        ("x.tmp", false, false),
        ("sub/kept.tmp", false, false),
        ("sub/special.tmp", false, true),
        (".git", true, true),
        ("sub/.git", true, true),
        (".gitignore", false, false),
        (".pytest_cache", true, false),
    ] {
        assert_eq!(selector.leaves_out(path.as_bytes(), is_directory), expected, "{path}");
    }
}

#[test]
fn the_manifest_of_a_host_tree_has_no_excluded_files() {
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name);
    for directory in ["target/deep", ".git", "sub"] {
        std::fs::create_dir_all(at(directory)).unwrap();
    }
    for (path, text) in [
        (".gitignore", "target/\n"),
        ("a", "a"),
        ("target/deep/x", "x"),
        (".git/config", "c"),
        ("sub/.gitignore", "*.tmp\n"),
        ("sub/.a.tmp", "t"),
        ("sub/b", "b"),
    ] {
        std::fs::write(at(path), text).unwrap();
    }
    let open = || {
        rustix::fs::open(place.path(), OFlags::RDONLY | OFlags::DIRECTORY, rustix::fs::Mode::empty()).unwrap()
    };
    let mut selector = selector(&[], false);
    let chosen = host_manifest(open(), &mut selector, HashCache::default(), Rules::FromTree).unwrap();
    let paths: Vec<_> =
        chosen.entries.iter().map(|entry| String::from_utf8_lossy(&entry.path).into_owned()).collect();
    assert_eq!(paths, [".gitignore", "a", "sub", "sub/.gitignore", "sub/b"]);
    assert_eq!(chosen.left_out, 3);
    std::fs::write(at("a"), "b").unwrap();
    let again = host_manifest(open(), &mut selector, chosen.known, Rules::FromTree).unwrap();
    assert_ne!(again.entries[1].hash, chosen.entries[1].hash, "a change of the same size is seen");
    assert_eq!(again.entries[4].hash, chosen.entries[4].hash);
}

#[test]
fn git_comes_by_switch_and_dot_directories_match_with_their_dot() {
    assert!(!selector(&[], true).leaves_out(b".git", true));
    let dots = selector(&[".venv/", ".cache"], true);
    assert!(dots.leaves_out(b".venv", true) && dots.leaves_out(b"x/.cache", false));
    assert!(!dots.leaves_out(b"venv", true));
    assert!(Selector::new(&Selection { exclude: vec!["[z-a]".into()], ..Selection::default() }).is_err());
}
