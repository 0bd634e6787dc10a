//! `isle cp`, in both directions, and its streaming routes.

use std::os::unix::fs::PermissionsExt;

use crate::harness::http::unix_raw;
use crate::harness::{TestDaemon, finish, until};

#[test]
fn files_of_any_size_are_copied_in_and_out_with_their_modes() {
    let daemon = TestDaemon::start();
    // Larger than the JSON doors allow, and not text.
    let bytes: Vec<u8> = (0..20_000_000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let from = daemon.home().path().join("big.bin");
    std::fs::write(&from, &bytes).unwrap();
    std::fs::set_permissions(&from, std::fs::Permissions::from_mode(0o750)).unwrap();
    daemon.shell("box", "true");
    daemon.succeeds(&["cp", "big.bin", "box:deep/er/copy.bin"]);
    assert_eq!(daemon.shell("box", "stat -c '%s %a %U' deep/er/copy.bin"), "20000000 750 sandbox\n");
    daemon.succeeds(&["cp", "box:/workspace/deep/er/copy.bin", "back.bin"]);
    let back = daemon.home().path().join("back.bin");
    assert!(std::fs::read(&back).unwrap() == bytes, "what came back is not what went in");
    assert_eq!(back.metadata().unwrap().permissions().mode() & 0o777, 0o750);
    let shown = finish(&mut daemon.isle(&["cp", "box:deep/er/copy.bin", "-"]));
    assert!(shown.stdout == bytes);
}

#[test]
fn directories_are_copied_whole_and_links_are_left_out() {
    let daemon = TestDaemon::start();
    for (path, text) in [("tree/a.txt", "a"), ("tree/sub/b.txt", "b"), ("tree/sub/deep/c.txt", "c")] {
        daemon.home().write(path, text);
    }
    daemon.shell("box", "true");
    daemon.succeeds(&["cp", "tree", "box:."]);
    assert_eq!(daemon.shell("box", "find tree -type f | sort | xargs cat"), "abc");
    daemon.shell("box", "ln -s /etc/passwd tree/link; chmod u+s tree/a.txt; mkdir tree/empty");
    daemon.succeeds(&["cp", "box:tree", "out"]);
    let out = daemon.home().path().join("out");
    assert_eq!(std::fs::read_to_string(out.join("sub/deep/c.txt")).unwrap(), "c");
    assert!(
        out.join("empty").is_dir() && !out.join("link").exists(),
        "a link could lead anywhere on this host"
    );
    let mode = out.join("a.txt").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o7000, 0, "nothing becomes set-uid here");
}

#[test]
fn what_cannot_be_copied_is_said_and_leaves_no_half_file() {
    let daemon = TestDaemon::start();
    daemon.home().write("file", &"x".repeat(3_000_000));
    daemon.shell("box", "mkfifo pipe; ln -s / out");
    let said = |arguments: &[&str]| {
        let output = finish(&mut daemon.isle(arguments));
        assert!(!output.status.success(), "{arguments:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let cases: [(&[&str], &str); 6] = [
        (&["cp", "box:missing", "x"], "FILE_NOT_FOUND"),
        (&["cp", "box:pipe", "x"], "NOT_REGULAR"),
        (&["cp", "file", "box:out/tmp/x"], "INVALID_PATH"),
        (&["cp", "file", "box:/usr/x"], ""),
        (&["cp", "nothing-here", "box:x"], ""),
        (&["cp", "box:x", "nobody:y"], "INVALID_ARGUMENT"),
    ];
    for (arguments, code) in cases {
        let said = said(arguments);
        assert!(said.contains(code) && said.contains("error["), "{arguments:?}: {said}");
        assert!(!said.contains("DAEMON_UNAVAILABLE"), "the reason must survive a refused upload: {said}");
    }
    let mut left: Vec<String> = std::fs::read_dir(daemon.home().path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    left.sort();
    assert_eq!(left, ["daemon.log", "file", "run", "state"]);
    assert_eq!(daemon.shell("box", "ls -A . /tmp"), ".:\nout\npipe\n\n/tmp:\n");
}

#[test]
fn an_upload_that_breaks_off_leaves_what_was_there() {
    use std::io::Write;
    let daemon = TestDaemon::start();
    daemon.shell("box", "echo old > file");
    let mut stream = std::os::unix::net::UnixStream::connect(daemon.socket()).unwrap();
    let head = "PUT /v1/sandboxes/box/files/content?path=file HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/octet-stream\r\n";
    write!(stream, "{head}Content-Length: 1000000\r\n\r\n{}", "x".repeat(500_000)).unwrap();
    drop(stream);
    until("nothing is left of the broken one", || daemon.shell("box", "ls -A") == "file\n");
    assert_eq!(daemon.shell("box", "cat file"), "old\n");
    let line = "PUT /v1/sandboxes/box/files/content?path=file";
    let whole = unix_raw(&daemon.socket(), line, &["Content-Type: application/octet-stream"], b"new\n");
    assert_eq!(whole.status, 200, "{}", whole.text());
    assert_eq!(daemon.shell("box", "cat file"), "new\n");
}
