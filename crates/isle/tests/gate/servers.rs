//! Servers on this machine's loopback, and what tests do to sandboxes beside them.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::harness::{Missing, TestDaemon, finish, needs_tier, until_some};

/// Names that only the daemon under test knows.
pub(crate) const NAMES: &str = "[network_hosts]\n\"web.test\" = \"127.0.0.1\"\n\"other.test\" = \"127.0.0.1\"\n\"a.wild.test\" = \"127.0.0.1\"\n";

pub(crate) fn start() -> TestDaemon {
    TestDaemon::start_configured(NAMES, &[])
}

/// Makes a sandbox of tier `process`, if there can be one.
pub(crate) fn make_process(daemon: &TestDaemon, name: &str) -> Result<(), Missing> {
    needs_tier("process")?;
    daemon.post("/v1/sandboxes", json!({ "sandbox": name, "tier": "process", "allow_downgrade": true }));
    Ok(())
}

/// What has to be granted to reach a server of this machine.
pub(crate) fn reaching(port: u16) -> [String; 2] {
    [format!("web.test:{port}"), format!("127.0.0.1:{port}")]
}

pub(crate) fn allow(daemon: &TestDaemon, sandbox: &str, hosts: &[String]) -> Value {
    daemon.post(&format!("/v1/sandboxes/{sandbox}/grants"), json!({ "hosts": hosts }))
}

/// A Python script in a sandbox, which has to complete; gives what it printed, as JSON.
pub(crate) fn python(daemon: &TestDaemon, sandbox: &str, script: &str, arguments: &[&str]) -> Value {
    let mut argv = vec!["python3", "-c", script];
    argv.extend(arguments);
    let run = daemon.exec(sandbox, json!({ "argv": argv, "timeout": "120s" }));
    let printed = run["stdout"].as_str().and_then(|text| serde_json::from_str(text).ok());
    printed.unwrap_or_else(|| panic!("{run:#}"))
}

/// The same script without a sandbox.
pub(crate) fn plain_python(script: &str, arguments: &[&str]) -> Value {
    let output = finish(Command::new("python3").args(["-c", script]).args(arguments));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
}

/// Whether the sandboxes of a daemon have a program.
pub(crate) fn has(daemon: &TestDaemon, program: &str) -> bool {
    daemon.has_program("look", program)
}

/// A program that the sandboxes of a daemon must have.
pub(crate) fn needs(daemon: &TestDaemon, program: &str) -> Result<(), Missing> {
    daemon.needs_program("look", program)
}

/// A server that answers each connection in a thread of its own and remembers what it heard.
#[derive(Debug, Clone)]
pub(crate) struct Server {
    pub(crate) port: u16,
    heard: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn start(address: &str, answer: fn(TcpStream, &Mutex<Vec<String>>)) -> Self {
        many_descriptors();
        let listener = TcpListener::bind(address).unwrap();
        let port = listener.local_addr().unwrap().port();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let remembered = Arc::clone(&heard);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let heard = Arc::clone(&remembered);
                thread::spawn(move || answer(stream, &heard));
            }
        });
        Self { port, heard }
    }

    /// Gives back what it hears.
    pub(crate) fn echo() -> Self {
        Self::start("127.0.0.1:0", |stream, heard| {
            heard.lock().unwrap().push("a connection".into());
            std::io::copy(&mut &stream, &mut &stream).ok();
        })
    }

    /// Takes connections and never reads from them.
    pub(crate) fn deaf() -> Self {
        Self::start("127.0.0.1:0", |stream, heard| {
            heard.lock().unwrap().push("a connection".into());
            thread::sleep(Duration::from_secs(600));
            drop(stream);
        })
    }

    /// Sends without end, after a first byte.
    pub(crate) fn endless() -> Self {
        Self::start("127.0.0.1:0", |mut stream, heard| {
            heard.lock().unwrap().push("a connection".into());
            let piece = vec![7; 1 << 18];
            if stream.read_exact(&mut [0]).is_ok() {
                while stream.write_all(&piece).is_ok() {}
            }
            heard.lock().unwrap().push("its end".into());
        })
    }

    /// Says who it is, to whoever connects.
    pub(crate) fn saying(address: &str, words: &'static str) -> Self {
        // A function has no place to keep words in; the list has.
        let server = Self::start(address, |mut stream, heard| {
            let words = heard.lock().unwrap()[0].clone();
            heard.lock().unwrap().push("a connection".into());
            stream.write_all(words.as_bytes()).ok();
        });
        server.heard.lock().unwrap().insert(0, words.to_owned());
        server
    }

    /// The worst kind of web server: whatever ends with an empty line is a request to it, whomever it is
    /// for, and it never closes a connection by itself. Remembers every request as it came.
    pub(crate) fn lenient() -> Self {
        Self::start("127.0.0.1:0", |mut stream, heard| {
            let mut kept = Vec::new();
            let mut piece = [0; 4096];
            while let Ok(count @ 1..) = stream.read(&mut piece) {
                kept.extend_from_slice(&piece[..count]);
                let ends = |bytes: &[u8]| {
                    let long = bytes.windows(4).position(|window| window == b"\r\n\r\n").map(|at| at + 4);
                    let short = bytes.windows(2).position(|window| window == b"\n\n").map(|at| at + 2);
                    long.into_iter().chain(short).min()
                };
                while let Some(end) = ends(&kept) {
                    let request: Vec<u8> = kept.drain(..end).collect();
                    heard.lock().unwrap().push(String::from_utf8_lossy(&request).into_owned());
                    if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nheard\n").is_err() {
                        return;
                    }
                }
            }
            // What ends without an empty line was said all the same.
            if !kept.is_empty() {
                heard.lock().unwrap().push(String::from_utf8_lossy(&kept).into_owned());
            }
        })
    }

    /// All it heard so far.
    pub(crate) fn heard(&self) -> Vec<String> {
        self.heard.lock().unwrap().clone()
    }

    pub(crate) fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }
}

/// Every connection is one here, too, and some tests have more than a thousand.
fn many_descriptors() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).ok();
}

/// A program of the host that serves until the test is over.
#[derive(Debug)]
pub(crate) struct Serving {
    child: Child,
    /// What it is told at the end, where it has something to put away.
    end: Signal,
}

impl Drop for Serving {
    fn drop(&mut self) {
        kill_process(Pid::from_child(&self.child), self.end).ok();
        let deadline = Instant::now() + Duration::from_secs(20);
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
        }
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

impl Serving {
    pub(crate) fn start(command: &mut Command) -> Self {
        Self::start_ending(command, Signal::KILL)
    }

    /// One that is ended by another signal.
    pub(crate) fn start_ending(command: &mut Command, end: Signal) -> Self {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        Self { child, end }
    }

    /// A server in Python, in a directory; it writes its port to the file `port` there.
    pub(crate) fn python(directory: &Path, script: &str) -> (Self, u16) {
        let port_file = directory.join("port");
        std::fs::remove_file(&port_file).ok();
        let serving = Self::start(Command::new("python3").args(["-c", script]).current_dir(directory));
        let port = until_some("the server listens", || {
            std::fs::read_to_string(&port_file).ok()?.trim().parse().ok()
        });
        (serving, port)
    }
}

/// A port nobody has, for a program that cannot choose one by itself.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
