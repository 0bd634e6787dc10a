//! `isle shell` on a real pseudo-terminal: keys, window size, job control, and the terminal as it was
//! afterwards.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcgetattr, tcsetwinsize};

use crate::harness::{TestDaemon, Watchdog, until};

pub(crate) struct Terminal {
    master: File,
    slave: File,
    seen: Arc<Mutex<String>>,
}

impl Terminal {
    pub(crate) fn open(rows: u16, columns: u16) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let slave = File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
        let terminal = Self { master: File::from(master), slave, seen: Arc::default() };
        terminal.resize(rows, columns);
        let (mut reader, seen) = (terminal.master.try_clone().unwrap(), Arc::clone(&terminal.seen));
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = reader.read(&mut buffer) {
                seen.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..count]));
            }
        });
        terminal
    }

    pub(crate) fn resize(&self, rows: u16, columns: u16) {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&self.master, size).unwrap();
    }

    /// Runs the program with this as its controlling terminal.
    pub(crate) fn run(&self, daemon: &TestDaemon, arguments: &[&str]) -> (Child, Watchdog) {
        let mut command = Command::new("setsid");
        command.args(["--ctty", "--wait", env!("CARGO_BIN_EXE_isle")]).args(arguments);
        daemon.home().dress(&mut command);
        let end = || Stdio::from(self.slave.try_clone().unwrap());
        let child = command.env("TERM", "xterm").stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
        let watch = Watchdog::over(&child);
        (child, watch)
    }

    /// How it handles what is typed, and what it does on its own.
    pub(crate) fn modes(&self) -> (u64, u64) {
        let modes = tcgetattr(&self.slave).unwrap();
        (modes.local_modes.bits().into(), modes.input_modes.bits().into())
    }

    pub(crate) fn type_keys(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).unwrap();
    }

    pub(crate) fn sees(&self, text: &str) {
        until(&format!("the terminal shows {text:?}"), || self.seen.lock().unwrap().contains(text));
    }
}

#[test]
fn a_shell_is_a_real_terminal_and_follows_the_window() {
    let daemon = TestDaemon::start();
    let mut terminal = Terminal::open(30, 100);
    let before = tcgetattr(&terminal.slave).unwrap();
    let (mut child, _watch) = terminal.run(&daemon, &["shell", "box"]);
    terminal.type_keys("tty; echo size $(stty size) term $TERM\r");
    terminal.sees("/dev/pts/");
    terminal.sees("size 30 100 term xterm");
    terminal.resize(41, 123);
    // The new size is there when the program inside hears of it.
    terminal.type_keys("until [ \"$(stty size)\" = '41 123' ]; do sleep 0.02; done; echo now $(stty size)\r");
    terminal.sees("now 41 123");
    // Keys go through as they are: an interrupt is for the program inside.
    let marker = format!("78201{:07}", std::process::id());
    terminal.type_keys(&format!("sleep {marker}\r"));
    until("it sleeps", || !crate::harness::processes_with(&format!("sleep {marker} ")).is_empty());
    terminal.type_keys("\u{3}");
    terminal.type_keys("echo status $?\r");
    terminal.sees("status 130");
    terminal.type_keys("echo kept > /workspace/file; exit 7\r");
    assert_eq!(child.wait().unwrap().code(), Some(7));
    let after = tcgetattr(&terminal.slave).unwrap();
    assert_eq!(before.local_modes, after.local_modes, "the terminal is as it was");
    assert_eq!(before.input_modes, after.input_modes);
    assert_eq!(daemon.shell("box", "cat file"), "kept\n");
}

#[test]
fn a_one_shot_with_a_terminal_has_one() {
    let daemon = TestDaemon::start();
    let terminal = Terminal::open(24, 80);
    let (mut child, _watch) = terminal
        .run(&daemon, &["run", "--tty", "--", "sh", "-c", "test -t 0 && test -t 1 && echo yes $(stty size)"]);
    terminal.sees("yes 24 80");
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_terminal_that_goes_away_takes_its_command_with_it() {
    let daemon = TestDaemon::start();
    let mut terminal = Terminal::open(24, 80);
    let marker = format!("78202{:07}", std::process::id());
    let (mut child, _watch) = terminal.run(&daemon, &["shell", "box"]);
    terminal.type_keys(&format!("trap '' HUP; sleep {marker}\r"));
    until("it sleeps", || !crate::harness::processes_with(&format!("sleep {marker} ")).is_empty());
    child.kill().unwrap();
    drop(terminal);
    child.wait().unwrap();
    until("nothing runs on", || crate::harness::processes_with(&format!("sleep {marker} ")).is_empty());
}
