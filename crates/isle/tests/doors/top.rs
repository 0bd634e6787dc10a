//! `isle top`: live on a real pseudo-terminal, and as one picture for scripts.

use serde_json::{Value, json};

use crate::harness::{TestDaemon, finish, until};
use crate::terminal::Terminal;

#[test]
fn one_picture_shows_what_each_sandbox_uses() {
    let daemon = TestDaemon::start();
    daemon.shell("quiet", "true");
    daemon.shell("busy", "head -c 3M /dev/zero > file");
    daemon.exec("busy", json!({"command": "while :; do :; done", "wait": "0s"}));
    let row = |name: &str| -> Value {
        let shown: Value = serde_json::from_str(&daemon.succeeds(&["--json", "top"])).unwrap();
        assert_eq!(shown["total"], 2, "{shown}");
        let rows = shown["sandboxes"].as_array().unwrap().clone();
        rows.into_iter().find(|row| row["name"] == name).unwrap()
    };
    let busy = row("busy");
    assert_eq!((&busy["state"], &busy["running_runs"]), (&json!("running"), &json!(1)), "{busy}");
    assert_eq!((&busy["pids_limit"], &busy["memory_limit_bytes"]), (&json!(256), &json!(1 << 30)), "{busy}");
    until("what it uses is seen", || {
        let busy = row("busy");
        busy["cpu_percent"].as_f64().is_some_and(|percent| percent > 1.0)
            && busy["memory_bytes"].as_u64().is_some_and(|bytes| bytes > 0)
            && busy["pids"].as_u64().is_some_and(|pids| pids >= 2)
            && busy["io_write_bytes_per_second"].is_u64()
    });
    let shown = daemon.succeeds(&["top", "--once", "--sort", "sandbox"]);
    let lines: Vec<&str> = shown.lines().collect();
    assert!(lines[0].starts_with("SANDBOX  STATE") && lines[0].contains("CPU%"), "{shown}");
    assert!(lines[1].starts_with("busy") && lines[2].starts_with("quiet"), "{shown}");
    assert_eq!(daemon.succeeds(&["top", "--sort", "sandbox"]).lines().count(), 3, "no terminal, one picture");
    for bad in [["--sort", "colour"], ["--interval", "1ms"], ["--interval", "soon"]] {
        let output = finish(&mut daemon.isle(&["top", bad[0], bad[1]]));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains("error[INVALID_"), "{bad:?}: {said}");
    }
}

#[test]
fn a_live_view_follows_keys_window_and_sandboxes_and_leaves_the_terminal_as_it_was() {
    let daemon = TestDaemon::start();
    daemon.shell("alpha", "true");
    let mut terminal = Terminal::open(24, 120);
    let before = terminal.modes();
    let (mut child, _watch) = terminal.run(&daemon, &["top", "--interval", "200ms"]);
    terminal.sees("\u{1b}[?1049h");
    terminal.sees("alpha");
    terminal.sees("CPU%↓");
    daemon.shell("omega", "true");
    terminal.sees("omega");
    terminal.type_keys("i");
    terminal.sees("IO/S↓");
    terminal.type_keys("m");
    terminal.sees("MEMORY↓");
    terminal.type_keys("r");
    terminal.sees("MEMORY↑");
    terminal.type_keys("\u{1b}[D\u{1b}[D");
    terminal.sees("TIER↑");
    // A narrow window holds less of each line: the last word of the line above is cut.
    terminal.resize(10, 12);
    terminal.sees("isle: 2 sand\u{1b}[K\r\n");
    terminal.type_keys("q");
    assert!(child.wait().unwrap().success());
    terminal.sees("\u{1b}[?1049l");
    assert_eq!(terminal.modes(), before, "the terminal is as it was");
}
