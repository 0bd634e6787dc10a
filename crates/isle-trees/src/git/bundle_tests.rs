use super::*;

#[test]
fn names_that_mean_something_elsewhere_are_not_taken() {
    for name in ["main", "feature/a-b_c.d", "v1.2.3", "fix#12", "user@host", "a/b/c"] {
        assert!(is_plain_ref(name), "{name}");
    }
    for name in [
        "",
        "-x",
        "a/-x",
        "HEAD",
        "head",
        "$(id)",
        "a b",
        "a;b",
        "a`b",
        "..",
        "a..b",
        "a.lock",
        ".a",
        "a/.b",
        "a/",
        "/a",
        "a//b",
        "@",
        "a@{1}",
        "a\u{200b}",
        "a\n",
        "a\\b",
        "a:b",
        "a~1",
        "a^",
        "a*",
        "a?",
        "a[",
        "0123456789012345678901234567890123456789",
        "a.",
    ] {
        assert!(!is_plain_ref(name), "{name:?}");
    }
}

#[test]
fn a_list_of_refs_is_read_or_refused() {
    let id = "a".repeat(40);
    let read = |text: String| parse(text.as_bytes());
    let good = read(format!(
            "# v2 git bundle\n{id} HEAD\n{id} refs/heads/main\n{id} refs/tags/v1\n{id} refs/replace/x\n{id} refs/heads/$(x)\n\nPACK"
        ))
        .unwrap();
    let names: Vec<&str> = good.refs.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["HEAD", "heads/main", "tags/v1"]);
    assert_eq!(good.refused, ["refs/replace/x", "refs/heads/$(x)"]);
    for bad in [
        String::new(),
        "PACK\n".into(),
        format!("# v2 git bundle\n-{id} x\n\n"),
        format!("# v3 git bundle\n@filter=blob:none\n{id} HEAD\n\n"),
        format!("# v2 git bundle\n{id} HEAD\n"),
        "# v2 git bundle\nxyz HEAD\n\n".into(),
    ] {
        assert!(read(bad.clone()).is_err(), "{bad:?}");
    }
}

#[test]
fn what_the_script_says_is_read_with_suspicion() {
    let read = |text: &str| Bundled::read(text);
    assert_eq!(read("bundled\nrefs/heads/main\n").unwrap().branch.as_deref(), Some("main"));
    assert_eq!(read("bundled\nrefs/heads/$(x)\n").unwrap().branch, None);
    assert_eq!(read("bundled\n\n").unwrap().branch, None);
    assert!(read("empty\nrefs/heads/main\n").unwrap().is_empty);
    assert!(matches!(read("nogit\n"), Err(GitError::NoGitInside)));
    assert!(read("").is_err());
}
