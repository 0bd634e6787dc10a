//! Repositories that a guest prepared: every file of a git directory that can name a program names one
//! that leaves a mark on the host. They are brought back in every way there is, and then somebody on the
//! host works in them with git.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::harness::{McpClient, TestDaemon, finish};

/// Makes `repo` in /workspace. `$M` is a directory of the host that the guest cannot see.
const PREPARE: &str = r#"set -e
export GIT_CONFIG_GLOBAL=/dev/null GIT_AUTHOR_NAME=g GIT_AUTHOR_EMAIL=g@g GIT_COMMITTER_NAME=g GIT_COMMITTER_EMAIL=g@g
git init -q -b main repo; cd repo
printf '*.txt filter=evil diff=evil merge=evil\n' > .gitattributes
printf '[submodule "s"]\n\tpath = s\n\turl = ./s\n\tupdate = !touch %s/gitmodules\n' "$M" > .gitmodules
echo one > a.txt; git add a.txt .gitattributes; git commit -qm first
git branch feature; git tag v1; echo two > b.txt; git add b.txt; git commit -qm second
set_traps() { # set_traps GITDIR MARK
  printf '[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tfsmonitor = touch %s/%s-fsmonitor;:\n\tsshCommand = touch %s/%s-ssh;:\n\tpager = touch %s/%s-pager;cat\n\teditor = touch %s/%s-editor;:\n\tworktree = %s\n[extensions]\n\tworktreeConfig = true\n[filter "evil"]\n\tclean = touch %s/%s-clean;cat\n\tsmudge = touch %s/%s-smudge;cat\n[diff "evil"]\n\tcommand = touch %s/%s-diff;:\n\ttextconv = touch %s/%s-textconv;cat\n[diff]\n\texternal = touch %s/%s-external;:\n[remote "origin"]\n\turl = ssh://x.invalid/y\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n\tuploadpack = touch %s/%s-uploadpack;:\n[gpg]\n\tprogram = touch\n[include]\n\tpath = evil.inc\n[credential]\n\thelper = !touch %s/%s-credential;:\n[branch "main"]\n\tremote = origin\n\tmerge = refs/heads/main\n' \
    "$M" "$2" "$M" "$2" "$M" "$2" "$M" "$2" "$3" "$M" "$2" "$M" "$2" "$M" "$2" "$M" "$2" "$M" "$2" "$M" "$2" "$M" "$2" > "$1/config"
  printf '[core]\n\tfsmonitor = touch %s/%s-include;:\n' "$M" "$2" > "$1/evil.inc"
  printf '[core]\n\tfsmonitor = touch %s/%s-worktree;:\n' "$M" "$2" > "$1/config.worktree"
  mkdir -p "$1/hooks" "$1/info" "$1/objects/info"
  for hook in post-checkout post-index-change pre-commit reference-transaction post-rewrite pre-auto-gc fsmonitor-watchman; do
    printf '#!/bin/sh\ntouch %s/%s-%s\n' "$M" "$2" "$hook" > "$1/hooks/$hook"; chmod 755 "$1/hooks/$hook"
  done
  printf '* filter=evil diff=evil\n' > "$1/info/attributes"
  printf '/\n' > "$1/objects/info/alternates"
}
git init -q -b main nested; (cd nested; echo n > n.txt; git add .; git commit -qm nested)
git clone -q --bare . ../plain.git; mv ../plain.git bare
cp -r bare elsewhere; mkdir linked; echo l > linked/l.txt; printf 'gitdir: ../elsewhere\n' > linked/.git
mkdir -p .git/modules s; cp -r bare .git/modules/s; printf 'gitdir: ../.git/modules/s\n' > s/.git; echo s > s/s.txt
mkdir caps; echo c > caps/c.txt; cp -r .git caps/.GIT; cp -r bare 'caps/git~1'
mkdir soft; echo o > soft/o.txt; ln -s ../elsewhere soft/.git
mkdir split; printf 'ref: refs/heads/main\n' > split/HEAD; printf '../elsewhere\n' > split/commondir
set_traps .git top ..; set_traps nested/.git nested ..; set_traps bare bare .; set_traps elsewhere elsewhere ../linked
set_traps .git/modules/s module ../../../s; set_traps caps/.GIT caps ..; set_traps split split .
mkdir -p .vscode; echo '{}' > .vscode/tasks.json; echo 'touch' > .envrc; echo x > ok.txt
printf '#!/bin/sh\n' > run.sh; chmod 4755 run.sh
"#;

/// A daemon with a host root, a sandbox with the repository, and where marks would be.
struct Stage {
    daemon: TestDaemon,
    root: tempfile::TempDir,
    marks: PathBuf,
}

impl Stage {
    fn new() -> Self {
        let root = tempfile::Builder::new().prefix("isle-test-root-").tempdir().unwrap();
        let daemon = TestDaemon::start_with(&[("ISLE_HOST_ROOTS", root.path().to_str().unwrap())]);
        let marks = root.path().join("marks");
        std::fs::create_dir(&marks).unwrap();
        let run = daemon.exec("box", json!({"argv": ["sh", "-c", PREPARE], "env": {"M": marks}}));
        assert_eq!(run["state"], "completed", "{run}");
        Self { daemon, root, marks }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn isle(&self, arguments: &[&str]) -> (String, String) {
        let output = finish(&mut self.daemon.isle(arguments));
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        (text(&output.stdout), text(&output.stderr))
    }

    fn operation(&self, route: &str, body: Value) -> Value {
        self.daemon.post(&format!("/v1/sandboxes/box/{route}"), body)
    }

    fn git(&self, at: &Path, arguments: &[&str]) -> String {
        let mut command = Command::new("git");
        command.args(arguments).current_dir(at).stdin(Stdio::null());
        for name in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"] {
            command.env_remove(name);
        }
        let global = self.at("gitconfig");
        std::fs::write(&global, "[safe]\n\tdirectory = *\n[user]\n\tname = h\n\temail = h@h\n").unwrap();
        command.env("GIT_CONFIG_GLOBAL", global).env("GIT_CONFIG_NOSYSTEM", "1");
        command.env("GIT_CEILING_DIRECTORIES", self.root.path()).env("GIT_TERMINAL_PROMPT", "0");
        let output = finish(&mut command);
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// What somebody does who has just got the files.
    fn work_in(&self, top: &Path) {
        for below in [
            "",
            "nested",
            "bare",
            "elsewhere",
            "linked",
            "s",
            "caps",
            "caps/.GIT",
            "caps/git~1",
            "soft",
            "split",
        ] {
            let at = top.join(below);
            if !at.is_dir() {
                continue;
            }
            std::fs::write(at.join("touched.txt"), "changed").unwrap();
            for arguments in [
                &["status"][..],
                &["diff"],
                &["log", "-p", "--show-signature"],
                &["add", "-A"],
                &["fetch"],
                &["checkout", "-f", "HEAD", "--", "."],
                &["checkout", "-f", "main"],
                &["commit", "-qm", "x"],
                &["submodule", "update", "--init"],
                &["stash"],
                &["gc", "--auto"],
            ] {
                self.git(&at, arguments);
            }
        }
    }

    fn marks(&self) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(&self.marks)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    fn assert_no_code_ran(&self, way: &str, top: &Path) {
        assert_eq!(std::fs::read_to_string(top.join("ok.txt")).unwrap(), "x\n", "{way}: the files are there");
        self.work_in(top);
        assert_eq!(self.marks(), Vec::<String>::new(), "{way}: code of the sandbox ran on the host");
        std::fs::remove_dir_all(top).unwrap();
    }
}

#[test]
fn a_copied_repository_runs_nothing_on_the_host() {
    let stage = Stage::new();
    let out = stage.at("cp");
    stage.isle(&["cp", "box:repo", out.to_str().unwrap()]);
    stage.assert_no_code_ran("isle cp", &out);
    let out = stage.at("copy_out");
    stage.operation("files/copy_out", json!({"path": "repo", "host_path": out}));
    stage.assert_no_code_ran("copy_out", &out);
}

#[test]
fn a_pulled_repository_runs_nothing_on_the_host() {
    let stage = Stage::new();
    for flags in [&[][..], &["--git"], &["--git", "--ignored"], &["--ignored"]] {
        let out = stage.at("pulled");
        let mut arguments = vec!["sync", "pull", "box:repo", out.to_str().unwrap()];
        arguments.extend_from_slice(flags);
        stage.isle(&arguments);
        // A second time, into what is there.
        stage.isle(&arguments);
        stage.assert_no_code_ran(&format!("isle sync pull {flags:?}"), &out);
    }
    for git in [false, true] {
        let out = stage.at("sync_pull");
        let body = json!({"path": "repo", "host_path": out, "git": git, "ignored": true});
        stage.operation("sync/pull", body);
        stage.assert_no_code_ran(&format!("sync_pull, git {git}"), &out);
    }
}

#[test]
fn an_archive_of_a_repository_runs_nothing_where_it_is_unpacked() {
    let stage = Stage::new();
    let archive = stage.daemon.http("GET", "/v1/sandboxes/box/files/tree?path=repo", None);
    assert_eq!(archive.status, 200);
    let (out, file) = (stage.at("unpacked"), stage.at("tree.tar"));
    std::fs::create_dir(&out).unwrap();
    std::fs::write(&file, &archive.body).unwrap();
    let status = Command::new("tar").arg("-xpf").arg(&file).arg("-C").arg(&out).status().unwrap();
    assert!(status.success());
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(out.join("run.sh").metadata().unwrap().permissions().mode() & 0o7000, 0, "no set-uid bit");
    stage.assert_no_code_ran("tar", &out);
}

/// The answer of a command, as JSON.
fn answer(stage: &Stage, arguments: &[&str]) -> Value {
    let mut all = vec!["--json"];
    all.extend_from_slice(arguments);
    serde_json::from_str(&stage.isle(&all).0).unwrap()
}

fn paths(list: &Value) -> Vec<String> {
    let mut all: Vec<String> =
        list.as_array().unwrap().iter().map(|one| one["path"].as_str().unwrap().to_owned()).collect();
    all.sort();
    all
}

#[test]
fn the_traps_are_real_for_who_asks_for_git_directories_by_name() {
    let stage = Stage::new();
    for (way, out) in [("cp", stage.at("cp")), ("pull", stage.at("pull")), ("copy_out", stage.at("copy_out"))]
    {
        let to = out.to_str().unwrap();
        match way {
            "cp" => drop(stage.isle(&["cp", "--git-dirs", "copy", "box:repo", to])),
            "pull" => drop(stage.isle(&["sync", "pull", "--git-dirs", "copy", "box:repo", to])),
            _ => {
                drop(stage.operation(
                    "files/copy_out",
                    json!({"path": "repo", "host_path": out, "git_dirs": "copy"}),
                ))
            }
        }
        stage.git(&out, &["status"]);
        assert!(stage.marks().iter().any(|mark| mark.starts_with("top-")), "{way}: {:?}", stage.marks());
        for mark in stage.marks() {
            std::fs::remove_file(stage.marks.join(mark)).unwrap();
        }
    }
    let archive = stage.daemon.http("GET", "/v1/sandboxes/box/files/tree?path=repo&git_dirs=copy", None);
    assert!(archive.text().contains(".git/config"));
}

#[test]
fn what_is_left_out_and_what_is_worth_a_look_is_named_at_every_door() {
    let stage = Stage::new();
    let git = [
        ".git",
        "bare",
        "caps/.GIT",
        "caps/git~1",
        "elsewhere",
        "linked/.git",
        "nested/.git",
        "s/.git",
        "split",
    ];
    let review = [".envrc", ".vscode/tasks.json", "run.sh"];
    let out = stage.at("cp");
    let copied = answer(&stage, &["cp", "box:repo", out.to_str().unwrap()]);
    assert_eq!(paths(&copied["git_directories"]), git, "{copied}");
    assert_eq!(paths(&copied["review"]), review, "{copied}");
    assert_eq!(copied["git_directories"][0]["reason"], "git_directory", "{copied}");
    // A second time nothing has changed.
    let again = answer(&stage, &["sync", "pull", "box:repo", out.to_str().unwrap()]);
    assert!(again.get("review").is_none(), "{again}");
    let pulled = answer(&stage, &["sync", "pull", "box:repo", stage.at("pulled").to_str().unwrap()]);
    let with_link: Vec<&str> = {
        let mut all = git.to_vec();
        all.push("soft/.git");
        all.sort_unstable();
        all
    };
    assert_eq!(paths(&pulled["git_directories"]), with_link, "{pulled}");
    assert_eq!(paths(&pulled["review"]), review, "{pulled}");
    let (_, said) = stage.isle(&["cp", "box:repo", stage.at("said").to_str().unwrap()]);
    assert!(said.contains("skipped .git: git directory") && said.contains("review .envrc: direnv"), "{said}");
    let copied = stage.operation("files/copy_out", json!({"path": "repo", "host_path": stage.at("op")}));
    let skipped: Vec<&Value> =
        copied["skipped"].as_array().unwrap().iter().filter(|one| one["reason"] == "git_directory").collect();
    assert_eq!(skipped.len(), git.len(), "{copied}");
    assert!(skipped.iter().all(|one| one["remedy"].as_str().unwrap().contains("git_dirs")), "{copied}");
    assert_eq!(paths(&copied["review"]), review, "{copied}");
    let (mut model, _) =
        McpClient::initialized_with(&stage.daemon, "2025-11-25", &["--toolsets", "core,files"]);
    let told =
        model.call("copy_out", json!({"sandbox": "box", "path": "repo", "host_path": stage.at("model")}));
    assert_eq!(paths(&told["structuredContent"]["review"]), review, "{told}");
}

#[test]
fn decoys_hide_no_file_that_runs_by_itself() {
    let root = tempfile::Builder::new().prefix("isle-test-root-").tempdir().unwrap();
    let daemon = TestDaemon::start_with(&[("ISLE_HOST_ROOTS", root.path().to_str().unwrap())]);
    daemon.shell(
        "box",
        "mkdir tree; cd tree; for i in $(seq 150); do mkdir -p aa$i/.git; echo x > aa$i/.env; echo x > aa$i/run; chmod +x aa$i/run; \
         echo x > aa$i/conftest.py; done; mkdir zz; echo x > zz/.envrc; for i in $(seq 100); do mkdir -p git/$i/.git; done",
    );
    let at = |name: &str| root.path().join(name).to_str().unwrap().to_owned();
    let said = |command: &[&str]| {
        let output = daemon.isle(command).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    for (name, command) in [("cp", &["cp"][..]), ("pull", &["sync", "pull"])] {
        let text = said(&[command, &["box:tree", &at(name)]].concat());
        let first = text.lines().find(|line| line.contains("review ")).unwrap();
        assert!(first.contains("zz/.envrc: direnv"), "{text}");
        assert!(text.contains("review 147 more: many tools read"), "{text}");
        let target = at(&format!("{name}-json"));
        let json = [&["--json"][..], command, &["box:tree", &target]].concat();
        let output = daemon.isle(&json).output().unwrap();
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(answer["review"][0]["path"], "zz/.envrc", "{answer}");
        assert_eq!(answer["review_count"], 451, "{answer}");
        if name == "pull" {
            assert_eq!(answer["git_directories_count"], 250, "{answer}");
        }
        let more: Vec<&Value> =
            answer["review_more"].as_array().unwrap().iter().map(|one| &one["count"]).collect();
        assert_eq!(more, [140, 140, 140], "{answer}");
    }
    for operation in ["files/copy_out", "sync_pull"] {
        let path = format!("/v1/sandboxes/box/{}", operation.replace("sync_pull", "sync/pull"));
        let answer = daemon
            .post(&path, json!({"path": "tree", "host_path": at(operation.trim_start_matches("files/"))}));
        assert_eq!(answer["review"][0]["path"], "zz/.envrc", "{answer}");
        assert_eq!(answer["review_more"].as_array().unwrap().len(), 3, "{answer}");
    }
}

#[test]
fn git_that_never_ends_in_the_sandbox_is_killed_and_named() {
    let root = tempfile::Builder::new().prefix("isle-test-root-").tempdir().unwrap();
    let settings = [
        ("ISLE_HOST_ROOTS", root.path().to_str().unwrap()),
        ("ISLE_TIMEOUT", "3s"),
        ("ISLE_MAX_TIMEOUT", "3s"),
    ];
    let daemon = TestDaemon::start_with(&settings);
    daemon.shell(
        "box",
        "git init -q repo; cd repo; git config user.email g@g; git config user.name g; git commit -q --allow-empty -m x; \
         mkfifo .git/pipe; git config include.path pipe",
    );
    let at = |name: &str| root.path().join(name).to_str().unwrap().to_owned();
    let pull = json!({"path": "repo", "host_path": at("op"), "git": true});
    let error = daemon.refused("POST", "/v1/sandboxes/box/sync/pull", Some(&pull));
    assert_eq!(error["code"], "GIT_FAILED", "{error}");
    assert!(error["message"].as_str().unwrap().contains("and was killed"), "{error}");
    let output = finish(&mut daemon.isle(&["sync", "pull", "--git", "box:repo", &at("cli")]));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("and was killed"), "{said}");
    assert_eq!(daemon.shell("box", "cat /proc/[0-9]*/comm | grep -cx git || true"), "0\n");
    assert_eq!(daemon.shell("box", "rm repo/.git/pipe; : > repo/.git/pipe; echo fine"), "fine\n");
    daemon.post("/v1/sandboxes/box/sync/pull", pull);
}

#[test]
fn commits_arrive_by_a_fetch_and_the_hosts_own_repository_stays_its_own() {
    let stage = Stage::new();
    // A repository that is not there yet.
    let new = stage.at("new");
    let pulled = answer(&stage, &["sync", "pull", "--git", "box:repo", new.to_str().unwrap()]);
    assert_eq!(paths(&pulled["repositories"]), [".", "nested"], "{pulled}");
    assert_eq!(stage.git(&new, &["log", "--format=%s"]), "second\nfirst\n");
    assert_eq!(
        stage.git(&new, &["for-each-ref", "--format=%(refname)", "refs/heads", "refs/tags"]),
        "refs/heads/feature\nrefs/heads/main\nrefs/tags/v1\n"
    );
    assert_eq!(stage.git(&new, &["diff", "--cached", "--name-only"]), "", "the index is that of the branch");
    assert_eq!(stage.git(&new, &["log", "--format=%s", "v1"]), "first\n");
    // One that is: it keeps its settings and hooks byte for byte, and branches only move forward.
    let (config, hook) = (new.join(".git/config"), new.join(".git/hooks/post-checkout"));
    std::fs::write(&hook, "#!/bin/sh\n# the host's own\n").unwrap();
    let before = (std::fs::read(&config).unwrap(), std::fs::read(&hook).unwrap());
    stage.daemon.shell(
        "box",
        "cd repo; export GIT_CONFIG_GLOBAL=/dev/null; g() { git -c core.fsmonitor=false -c core.hooksPath=/dev/null -c user.name=g -c user.email=g@g \"$@\"; }; \
         g commit -q --allow-empty -m third; g update-ref refs/heads/-evil HEAD; g update-ref 'refs/heads/$(id)' HEAD; g update-ref refs/replace/$(g rev-parse HEAD) HEAD~1",
    );
    let again = answer(&stage, &["sync", "pull", "--git", "box:repo", new.to_str().unwrap()]);
    let refs = again["repositories"][0]["refs"].as_array().unwrap();
    let outcome = |name: &str| refs.iter().find(|one| one["name"] == name).map(|one| one["outcome"].clone());
    assert_eq!(outcome("heads/main"), Some(json!("fast_forwarded")), "{again}");
    assert_eq!(outcome("refs/heads/-evil"), Some(json!("refused")), "{again}");
    assert_eq!(outcome("refs/heads/$(id)"), Some(json!("refused")), "{again}");
    assert_eq!(stage.git(&new, &["log", "-1", "--format=%s"]), "third\n");
    assert_eq!(stage.git(&new, &["for-each-ref", "refs/replace"]), "");
    assert_eq!((std::fs::read(&config).unwrap(), std::fs::read(&hook).unwrap()), before);
    stage.assert_no_code_ran("a second fetch", &new);
    // The same by the operation.
    let out = stage.at("op");
    let pulled = stage.operation("sync/pull", json!({"path": "repo", "host_path": out, "git": true}));
    assert_eq!(paths(&pulled["repositories"]), [".", "nested"], "{pulled}");
    assert_eq!(stage.git(&out, &["log", "-1", "--format=%s"]), "third\n");
    assert_eq!(
        stage.daemon.shell("box", "ls repo/.git | grep -c bundle || true"),
        "0\n",
        "nothing is left behind"
    );
}

#[test]
fn nothing_is_put_into_a_git_directory_of_the_host() {
    let stage = Stage::new();
    let own = stage.at("own");
    std::fs::create_dir(&own).unwrap();
    stage.git(&own, &["init", "-q"]);
    stage.git(&own, &["init", "-q", "--bare", "store"]);
    let refused = |arguments: &[&str]| {
        let output = finish(&mut stage.daemon.isle(arguments));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains("GIT_DIRECTORY_REFUSED"), "{arguments:?}: {said}");
    };
    let at = |path: &str| own.join(path).to_str().unwrap().to_owned();
    refused(&["cp", "box:repo/run.sh", &at(".git/hooks/post-checkout")]);
    refused(&["cp", "box:repo/run.sh", &at("store/hooks/post-checkout")]);
    refused(
        &["cp", "box:repo/s/.git", &at("linked")]
            .map(|word| if word == at("linked") { "x/.git" } else { word }),
    );
    refused(&["cp", "box:repo/.git", &at("out")]);
    refused(&["cp", "box:repo/bare", &at("out")]);
    refused(&["sync", "pull", "box:repo/.git/hooks", &at(".git/hooks")]);
    refused(&["sync", "pull", "box:repo/bare", &at("out")]);
    for body in [
        json!({"path": "repo/run.sh", "host_path": at(".git/hooks/post-checkout")}),
        json!({"path": "repo/.git", "host_path": at("out")}),
    ] {
        let error = stage.daemon.refused("POST", "/v1/sandboxes/box/files/copy_out", Some(&body));
        assert_eq!(error["code"], "GIT_DIRECTORY_REFUSED", "{error}");
    }
    assert!(!own.join("out").exists(), "nothing is left of what was refused");
    // A repository does not arrive in pieces either.
    stage.daemon.shell(
        "box",
        "mkdir -p p1/d p2/d/objects p2/d/refs; cp repo/bare/HEAD p1/d; cp repo/bare/config p2/d",
    );
    for part in ["p1", "p2"] {
        stage.isle(&["sync", "pull", &format!("box:{part}"), &at("pieces")]);
    }
    assert!(!own.join("pieces/d/refs").exists() && !own.join("pieces/d/config").exists());
    // One file of a git directory is bytes like others.
    stage.isle(&["cp", "box:repo/.git/config", &at("a-config")]);
    assert!(std::fs::read_to_string(own.join("a-config")).unwrap().contains("fsmonitor"));
}
