use super::*;
use crate::walk::Kind;

#[test]
fn every_form_of_the_name_is_known() {
    for name in [
        ".git",
        ".GIT",
        ".Git",
        ".g\u{200c}it",
        "\u{feff}.git",
        "git~1",
        "GIT~2",
        ".git ",
        ".git.",
        ".git. .",
        ".git::$INDEX_ALLOCATION",
        ".git\\config",
        "x\\.git",
        "git~1 .",
    ] {
        assert!(is_git_name(name.as_bytes()), "{name:?}");
    }
    for name in
        [".gitignore", ".gitattributes", ".github", "git", ".gi", "x.git", "git~", "git~x", ".gitmodules"]
    {
        assert!(!is_git_name(name.as_bytes()), "{name:?}");
    }
}

#[test]
fn a_tree_names_its_git_directories_once() {
    let entry =
        |path: &str| ManifestEntry { path: path.into(), kind: Kind::File, mode: 0o644, size: 0, hash: None };
    let entries: Vec<ManifestEntry> = [
        ".git",
        ".git/HEAD",
        ".git/objects",
        ".git/refs",
        "a/HEAD",
        "a/objects",
        "b/bare/Head",
        "b/bare/objects",
        "b/bare/refs",
        "b/bare/sub/.git",
        "c/HEAD",
        "c/commondir",
        "objects",
        "refs",
    ]
    .map(entry)
    .to_vec();
    assert_eq!(git_directories(&entries), [&b".git"[..], b"b/bare", b"c"]);
    assert_eq!(git_directories(&[entry("HEAD"), entry("objects"), entry("refs")]), [b""]);
    let found = git_directories(&entries);
    assert!(is_within(b".git/HEAD", &found) && is_within(b"c", &found) && !is_within(b"cc", &found));
}

#[test]
fn a_head_file_is_distinguished_from_others() {
    assert!(is_head(b"ref: refs/heads/main\n") && is_head(b"ref:refs/x") && is_head(&[b'a'; 41]));
    assert!(!is_head(b"# HEAD\n") && !is_head(b"") && !is_head(b"ref: other"));
}
