//! Tier `process` through the real backend and the real wire: what works in it, and what does not
//! get out of it. Runs as whoever runs the tests; as root it runs once more as an ordinary user.

#![expect(clippy::unwrap_used, reason = "tests")]

mod files;
mod house;
mod life;
mod walls;

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;

/// Set in the run as an ordinary user.
const AGAIN: &str = "ISLE_TEST_AS_ORDINARY_USER";
/// No account of any distribution.
const ORDINARY: u32 = 64_321;

#[test]
fn all_of_this_holds_for_an_ordinary_user_too() {
    isle_e2e::require!(isle_e2e::needs_root("run the tests of this program as another user"));
    // What is built may be in a directory that only root can read.
    let directory = std::env::temp_dir().join(format!("isle-process-tier-user-{}", std::process::id()));
    std::fs::create_dir(&directory).unwrap();
    std::os::unix::fs::chown(&directory, Some(ORDINARY), Some(ORDINARY)).unwrap();
    let program = directory.join("process_tier");
    // By another process: a file this one had open for writing could not be executed while a child that
    // some other test is just starting still has it too.
    let copied =
        std::process::Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&program).status();
    assert!(copied.unwrap().success());
    let open_to_all = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&program, open_to_all).unwrap();
    let output = std::process::Command::new(&program)
        .args(["--skip", "all_of_this_holds_for_an_ordinary_user_too"])
        .env(AGAIN, "1")
        .env("HOME", &directory)
        .env("TMPDIR", &directory)
        .uid(ORDINARY)
        .gid(ORDINARY)
        .current_dir("/")
        .output()
        .unwrap();
    std::fs::remove_dir_all(&directory).unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(!text.contains("running 0 tests"), "{text}");
}
