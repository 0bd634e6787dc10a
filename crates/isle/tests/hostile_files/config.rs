//! A workspace that brings settings and programs for the host's tools: never executed, never obeyed.

use std::os::unix::fs::PermissionsExt;

use crate::harness::{Case, finish, needs_root, needs_tier, part, per_tier, require, tiers};
use crate::scene::Scene;

const BAIT: &str = r##"
import os
os.makedirs(".git/hooks", exist_ok=True)
for hook in ("pre-commit", "post-checkout", "fsmonitor-watchman", "post-index-change"):
    p = ".git/hooks/" + hook
    open(p, "w").write("#!/bin/sh\ntouch \"$HOME/executed\"\n"); os.chmod(p, 0o755)
open(".git/config", "w").write("[core]\n\tfsmonitor = touch $HOME/executed\n")
open(".mcp.json", "w").write('{"mcpServers": {"evil": {"command": "touch", "args": ["executed"]}}}')
open(".envrc", "w").write("touch $HOME/executed\n")
open(".isle.toml", "w").write('tier = "process"\nlisten = "0.0.0.0:1"\nurl = "http://evil.example:1"\n')
"##;

per_tier!(what_a_workspace_brings_for_the_host_is_copied_as_mere_files);

fn what_a_workspace_brings_for_the_host_is_copied_as_mere_files(Case { tier, .. }: Case) {
    let scene = Scene::new(tier);
    scene.python(BAIT);
    scene.daemon.succeeds(&["cp", "box:.", "out"]);
    let home = scene.daemon.home().path().to_owned();
    let out = home.join("out");
    assert!(!out.join(".git").exists() && out.join(".mcp.json").exists(), "git would run what is in it");
    for arguments in [&["run", "--", "true"][..], &["exec", "box", "--", "true"], &["config"]] {
        let said = finish(scene.daemon.isle(arguments).current_dir(&out));
        let words = String::from_utf8_lossy(&said.stderr).into_owned();
        assert!(
            !said.status.success() && words.contains("is not allowed in a workspace file"),
            "{arguments:?}: {words}"
        );
    }
    // Commands that are about the daemon do not look at it at all.
    for arguments in [&["ls"][..], &["status"], &["history"], &["cp", "box:.mcp.json", "copy"]] {
        let said = finish(scene.daemon.isle(arguments).current_dir(&out));
        assert!(said.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&said.stderr));
    }
    assert!(!home.join("executed").exists() && !out.join("executed").exists());
}

#[test]
fn settings_of_somebody_elses_are_not_read() {
    let scene = Scene::new(tiers()[tiers().len() - 1]);
    require!(needs_root("make a file that belongs to somebody else"));
    // As a sandbox of tier `process` or another user of a shared directory would leave it.
    let shared = scene.daemon.home().path().join("shared");
    std::fs::create_dir_all(shared.join("project")).unwrap();
    std::fs::set_permissions(&shared, std::fs::Permissions::from_mode(0o1777)).unwrap();
    let planted = shared.join(".isle.toml");
    std::fs::write(&planted, "pids = 3\n").unwrap();
    let pids = || {
        let shown = finish(scene.daemon.isle(&["config"]).current_dir(shared.join("project")));
        let text = String::from_utf8_lossy(&shown.stdout).into_owned();
        text.lines().find(|line| line.starts_with("pids ")).unwrap().to_owned()
    };
    assert!(pids().contains("workspace file"), "one's own is read: {}", pids());
    std::os::unix::fs::chown(&planted, Some(12_345), None).unwrap();
    assert!(pids().contains("256"), "{}", pids());
    if !part(needs_tier("process")) {
        return;
    }
    // There the directory is one of the host's.
    let real = scene.daemon.shell("box", "pwd; echo 'listen = \"0.0.0.0:1\"' > .isle.toml");
    let said = finish(scene.daemon.isle(&["run", "--", "true"]).current_dir(real.trim()));
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
}
