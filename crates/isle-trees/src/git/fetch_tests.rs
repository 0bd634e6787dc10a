//! Fetching with real repositories.

use std::os::fd::OwnedFd;
use std::process::Command;

use rustix::fs::{Mode, OFlags};

use super::super::bundle::BUNDLE_SCRIPT;
use super::*;

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn shell(&self, script: &str) -> String {
        let output = Command::new("sh")
            .args(["-ec", script])
            .current_dir(self.0.path())
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .envs(
                ["GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"]
                    .map(|name| (name, "x")),
            )
            .output()
            .unwrap();
        assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn open(&self, name: &str) -> OwnedFd {
        rustix::fs::open(self.0.path().join(name), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap()
    }

    /// Packs `guest` and fetches it into `host`.
    fn pull(&self) -> Result<FetchedRepository, GitError> {
        let guest = self.0.path().join("guest");
        let packed =
            Command::new("sh").args(["-c", BUNDLE_SCRIPT, "x"]).arg(&guest).arg(".git/b").output().unwrap();
        let bundled = Bundled::read(&String::from_utf8(packed.stdout).unwrap())?;
        self.fetch(&guest.join(".git/b"), &bundled)
    }

    fn fetch(&self, bundle: &std::path::Path, bundled: &Bundled) -> Result<FetchedRepository, GitError> {
        let mut file = BundleFile::new(self.open("host"), 1 << 20)?;
        file.write(&std::fs::read(bundle).unwrap_or_default())?;
        file.fetch(bundled, "box")
    }
}

fn outcomes(fetched: &FetchedRepository) -> Vec<(&str, RefOutcome)> {
    let mut all: Vec<_> = fetched.refs.iter().map(|one| (one.name.as_str(), one.outcome)).collect();
    all.sort_by_key(|(name, _)| *name);
    all
}

const GUEST: &str = "git init -q -b main guest; cd guest; echo 1 > a; git add a; git commit -qm 1; git tag v1; git branch other; cd ..";

#[test]
fn a_repository_that_is_missing_is_made_and_filled() {
    let place = Place::new();
    place.shell(&format!(
        "{GUEST}; mkdir host; cp guest/a host/; git -C guest config core.fsmonitor 'touch ran;:'"
    ));
    let fetched = place.pull().unwrap();
    assert!(fetched.created);
    use RefOutcome::Created;
    assert_eq!(outcomes(&fetched), [("heads/main", Created), ("heads/other", Created), ("tags/v1", Created)]);
    assert_eq!(
        place.shell("cd host; git status --porcelain; git log --format=%s; git symbolic-ref HEAD"),
        "1\nrefs/heads/main\n"
    );
    assert!(!place.shell("cat host/.git/config").contains("fsmonitor"));
    assert_eq!(place.shell("find . -name ran"), "");
    let again = place.pull().unwrap();
    assert!(!again.created && again.refs.iter().all(|one| one.outcome == RefOutcome::UpToDate), "{again:?}");
}

#[test]
fn branches_move_forward_and_others_are_kept_apart() {
    let place = Place::new();
    place.shell(&format!(
        "{GUEST}; git clone -q guest host; cd host; git checkout -q -b other origin/other; echo h > h; git add h; git commit -qm host; git checkout -q main
         printf '#!/bin/sh\\ntouch ../ran\\n' > .git/hooks/reference-transaction; chmod 755 .git/hooks/reference-transaction; sha256sum .git/config .git/hooks/reference-transaction > ../sums
         cd ../guest; echo 2 > a; git commit -qam 2; git checkout -q other; echo g > g; git add g; git commit -qm guest; git checkout -q main; git branch new"
    ));
    let fetched = place.pull().unwrap();
    use RefOutcome::{Created, FastForwarded, Kept, UpToDate};
    assert_eq!(
        outcomes(&fetched),
        [("heads/main", FastForwarded), ("heads/new", Created), ("heads/other", Kept), ("tags/v1", UpToDate)]
    );
    place.shell("cp guest/a host/a; cd host; rm -f .git/hooks/reference-transaction.ran");
    assert_eq!(place.shell("cd host; git log -1 --format=%s; git log -1 --format=%s other; git log -1 --format=%s refs/isle/box/heads/other"), "2\nhost\nguest\n");
    assert_eq!(place.shell("rm -f ran; cd host; git diff --cached --stat; sha256sum -c --quiet ../sums"), "");
}

#[test]
fn the_hosts_own_hooks_do_not_run_either() {
    let place = Place::new();
    place.shell(&format!(
        "{GUEST}; git clone -q guest host; cd host; for hook in reference-transaction post-index-change; do printf '#!/bin/sh\\ntouch %s/ran\\n' \"$PWD\" > .git/hooks/$hook; chmod 755 .git/hooks/$hook; done; cd ../guest; echo 2 > a; git commit -qam 2"
    ));
    place.pull().unwrap();
    assert_eq!(place.shell("ls host"), "a\n");
}

#[test]
fn staged_changes_that_do_not_fit_keep_the_branch() {
    let place = Place::new();
    place.shell(&format!("{GUEST}; git clone -q guest host; cd host; echo mine > a; git add a; cd ../guest; echo 2 > a; git commit -qam 2"));
    let fetched = place.pull().unwrap();
    assert!(outcomes(&fetched).contains(&("heads/main", RefOutcome::Kept)), "{fetched:?}");
    assert_eq!(place.shell("cd host; git show :a; git log --format=%s"), "mine\n1\n");
}

#[test]
fn damaged_and_hostile_bundles_change_nothing() {
    let place = Place::new();
    place.shell(&format!(
        "{GUEST}; mkdir host; git -C guest bundle create -q ../good HEAD --branches; head -c 300 good > cut"
    ));
    let bundled = Bundled { branch: Some("main".into()), is_empty: false };
    for name in ["cut", "guest/a"] {
        let failed = place.fetch(&place.0.path().join(name), &bundled);
        assert!(failed.is_err(), "{name}");
        assert_eq!(place.shell("ls -A host"), "", "{name}");
    }
    // An object that git would not let anybody make: a tree with `.git` in it.
    place.shell(
        "cd guest; blob=$(git rev-parse HEAD:a); tree=$(printf '100644 blob %s\\t.git\\n' $blob | git mktree 2>/dev/null || { printf '100644 .git\\0'; printf $blob | sed 's/../\\\\x&/g' | xargs -0 printf; } | git hash-object -t tree -w --stdin --literally)
         commit=$(git commit-tree -m evil $tree); git update-ref refs/heads/main $commit",
    );
    let evil = place.pull();
    assert!(matches!(evil, Err(GitError::Failed(_))), "{evil:?}");
    assert_eq!(place.shell("ls -A host"), "");
}

#[test]
fn a_link_in_place_of_the_git_directory_is_not_followed() {
    let place = Place::new();
    place.shell(&format!("{GUEST}; mkdir host; git init -q elsewhere; ln -s ../elsewhere/.git host/.git"));
    assert!(matches!(place.pull(), Err(GitError::Standing(_))));
    assert_eq!(place.shell("git -C elsewhere for-each-ref"), "");
}
