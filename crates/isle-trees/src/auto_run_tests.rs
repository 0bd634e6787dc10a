use super::*;

#[test]
fn files_that_run_automatically_are_recognized_in_any_directory() {
    for path in [
        ".envrc",
        "deep/.envrc",
        "x/.VSCode/tasks.json",
        ".vscode/tasks.json",
        "venv/lib/site-packages/evil.pth",
        ".ssh/authorized_keys",
        "home/.config/autostart/x",
        ".claude/settings.local.json",
        ".isle.toml",
        "rust-toolchain",
        ".Rprofile",
    ] {
        assert!(auto_run_reason(path.as_bytes()).is_some(), "{path}");
    }
    for path in
        ["Makefile", "src/main.rs", ".gitignore", "tasks.json", "xssh/y", ".git-blame-ignore-revs", "envrc"]
    {
        assert_eq!(auto_run_reason(path.as_bytes()), None, "{path}");
    }
}

#[test]
fn the_table_is_in_the_compared_form() {
    for (row, _, why) in TABLE {
        let (Name(text) | Ending(text) | Path(text) | Below(text)) = row;
        assert_eq!(*text, text.to_ascii_lowercase(), "{why}");
        assert!(text.contains('.') || *text == "rust-toolchain" || text.contains('/'), "{text}");
    }
}

#[test]
fn no_kind_hides_another_and_the_worst_comes_first() {
    let mut review = Review::default();
    let note = |review: &mut Review, path: &str| {
        review.add(path.as_bytes(), auto_run_reason(path.as_bytes()).unwrap());
    };
    (0..5000).for_each(|number| note(&mut review, &format!("aa{number}/.env")));
    (0..5000).for_each(|number| note(&mut review, &format!("aa/{number}/.envrc")));
    (0..5000).for_each(|number| review.add(format!("bin/{number}").as_bytes(), EXECUTABLE));
    note(&mut review, "zz/.envrc");
    note(&mut review, "zz/.curlrc");
    let named: Vec<Reviewed> = review.named().collect();
    assert_eq!(named[0].path, b"zz/.envrc", "the nearest to the top of the worst kind");
    assert!(named.iter().any(|one| one.path == b"zz/.curlrc"));
    assert_eq!(named.last().unwrap().why, EXECUTABLE.why);
    assert_eq!(named.len(), 31);
    assert_eq!(review.count(), 15_002);
    assert_eq!(review.unnamed().map(|(_, more)| more).collect::<Vec<_>>(), [4991, 4990, 4990]);
    let mut merged = Review::default();
    merged.merge(&review);
    merged.merge(&Review::default());
    assert_eq!(merged, review);
}
