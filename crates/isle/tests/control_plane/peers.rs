//! The Unix socket asks the kernel who calls. Even when its file is open to all, another user is
//! turned away.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use crate::harness::{TestDaemon, needs_root, require};
use crate::support::proper;

/// Nobody in particular.
const STRANGER: u32 = 65_534;

#[test]
fn another_user_is_refused_by_the_kernels_word() {
    require!(needs_root("be another user"));
    let daemon = TestDaemon::start();
    let socket = daemon.socket();
    let set = |mode: u32| {
        let ours = socket.ancestors().take_while(|path| path.starts_with(daemon.home().path()));
        for path in ours {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        }
    };
    // All doors but the last stand open.
    set(0o777);
    let ask = |user: u32, route: &str| {
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--max-time", "60", "--unix-socket"]).arg(&socket);
        curl.args(["-w", "\n%{http_code}"]).arg(format!("http://isle{route}"));
        curl.current_dir("/").stdin(Stdio::null()).uid(user).gid(user);
        let output = curl.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let (body, status) = text.rsplit_once('\n').unwrap_or_else(|| panic!("{:?}", output.stderr));
        (status.to_owned(), serde_json::from_str::<serde_json::Value>(body).unwrap())
    };
    for route in ["/v1/sandboxes", "/healthz", "/v1/version", "/mcp", "/v1/nowhere"] {
        let (status, answer) = ask(STRANGER, route);
        assert_eq!(status, "403", "{route}: {answer}");
        assert_eq!(proper(&answer["error"])["code"], "FORBIDDEN", "{route}");
    }
    assert_eq!(ask(0, "/v1/sandboxes").0, "200", "its owner is served");
    set(0o700);
}
