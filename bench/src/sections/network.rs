//! The gate: bulk data and new connections through it, compared with a plain proxy and a user-space network;
//! a thousand concurrent connections; the cost of a sandbox with a network. TLS interception is in
//! `tls_intercept.rs`.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::crowd::{agents, mebibytes};
use super::{Bench, SANDBOX};
use crate::daemon::{Daemon, Setup};
use crate::error::{Error, Result};
use crate::http::json_request;
use crate::interrupt;
use crate::peers::slirp::{self, Slirp};
use crate::peers::tinyproxy::Proxy;
use crate::processes;
use crate::report::{Report, Row, Target};
use crate::statistics::Samples;

pub(super) const SECTION: &str = "network";
const CONFIG: &str = "[network_hosts]\n\"bench.test\" = \"127.0.0.1\"\n";
const SANDBOXES: usize = 50;
const EACH: usize = 20;

/// The client of every arm: `HOST PORT PROXY DEED NUMBER`. Prints the seconds its deed took.
const CLIENT: &str = r#"
import socket, sys, time
host, port, proxy, deed, number = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], int(sys.argv[5])
def connect(kind):
    if not proxy: stream = socket.create_connection((host, port), 120)
    else:
        stream = socket.create_connection(('127.0.0.1', proxy), 120)
        stream.sendall(b'CONNECT %s:%d HTTP/1.1\r\nHost: %s:%d\r\n\r\n' % (host.encode(), port, host.encode(), port))
        heard = b''
        while not heard.endswith(b'\r\n\r\n'): heard += stream.recv(1)
        assert b' 200 ' in heard, heard
    stream.sendall(kind)
    return stream
size = number << 20
if deed == 'receive':
    stream, buffer, got = connect(b'r' + b'%15d' % size), bytearray(1 << 20), 0
    stream.recv_into(buffer, 1)
    begin = time.perf_counter()
    while count := stream.recv_into(buffer): got += count
    took = time.perf_counter() - begin
    assert got == size - 1, got
elif deed == 'send':
    stream, piece, left = connect(b's' + b'%15d' % size), bytes(1 << 20), size
    begin = time.perf_counter()
    while left: stream.sendall(piece); left -= len(piece)
    assert stream.recv(1) == b'!'
    took = time.perf_counter() - begin
elif deed == 'connect':
    for turn in range(number + 10):
        if turn == 10: begin = time.perf_counter()
        stream = connect(b'e' + b'%15d' % 0)
        assert stream.recv(1) == b'!'
        stream.close()
    took = (time.perf_counter() - begin) / number
else:
    begin = time.perf_counter()
    held = [connect(b'w' + b'%15d' % 0) for turn in range(number)]
    for stream in held: assert stream.recv(1) == b'!'
    took = time.perf_counter() - begin
print(took)"#;

/// What waits until so many others wait.
#[derive(Debug, Default)]
struct Crowd {
    waiting: Mutex<usize>,
    enough: Condvar,
    most: AtomicUsize,
}

/// Every connection is a descriptor here, too. The limit is raised as far as possible.
fn many_descriptors() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both calls are given a valid limit, to write to and to read from.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        limit.rlim_cur = limit.rlim_max;
        libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
    }
}

/// Serves the clients until the benchmark ends.
fn serve(crowd: &Arc<Crowd>) -> io::Result<u16> {
    many_descriptors();
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    let crowd = Arc::clone(crowd);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let crowd = Arc::clone(&crowd);
            // Errors are reported by the client.
            thread::Builder::new().stack_size(64 * 1024).spawn(move || answer(stream, &crowd)).ok();
        }
    });
    Ok(port)
}

fn answer(mut stream: TcpStream, crowd: &Crowd) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut wish = [0; 16];
    stream.read_exact(&mut wish)?;
    let size: usize = String::from_utf8_lossy(&wish[1..]).trim().parse().map_err(io::Error::other)?;
    match wish[0] {
        b'r' => {
            let piece = vec![0; 1 << 18];
            let mut left = size;
            while left > 0 {
                let count = left.min(piece.len());
                stream.write_all(&piece[..count])?;
                left -= count;
            }
            Ok(())
        }
        b's' => {
            let mut piece = vec![0; 1 << 18];
            let mut left = size;
            while left > 0 {
                match stream.read(&mut piece)? {
                    0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                    count => left -= count,
                }
            }
            stream.write_all(b"!")
        }
        b'w' => {
            let mut waiting = crowd.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            *waiting += 1;
            crowd.most.fetch_max(*waiting, Ordering::Relaxed);
            crowd.enough.notify_all();
            let enough = |count: &mut usize| *count < SANDBOXES * EACH;
            drop(crowd.enough.wait_timeout_while(waiting, Duration::from_secs(60), enough));
            stream.write_all(b"!")
        }
        _ => stream.write_all(b"!"),
    }
}

/// A path from a client to the server.
enum Way<'w> {
    Plain,
    Proxy(&'w Proxy),
    Slirp(&'w Slirp),
    Gate(&'w Daemon, &'w str),
}

impl Way<'_> {
    fn name(&self) -> &'static str {
        match self {
            Self::Plain => "plain loopback",
            Self::Proxy(_) => "tinyproxy",
            Self::Slirp(_) => "slirp4netns",
            Self::Gate(..) => "the gate",
        }
    }

    /// The seconds that a deed takes.
    fn seconds(&self, port: u16, deed: &str, number: usize) -> Result<f64> {
        interrupt::check()?;
        let (host, proxy) = match self {
            Self::Plain => ("127.0.0.1", 0),
            // A name, as programs give one to their proxy.
            Self::Proxy(proxy) => ("localhost", proxy.port),
            Self::Slirp(_) => (slirp::HOST, 0),
            Self::Gate(..) => ("bench.test", 0),
        };
        let words =
            [host.to_owned(), port.to_string(), proxy.to_string(), deed.to_owned(), number.to_string()];
        let python = ["/usr/bin/python3", "-c", CLIENT];
        let said = match self {
            Self::Gate(daemon, sandbox) => {
                let argv: Vec<&str> = python.into_iter().chain(words.iter().map(String::as_str)).collect();
                let path = format!("/v1/sandboxes/{sandbox}/exec");
                let wish = json!({ "argv": argv, "wait": "150s", "timeout": "140s" });
                let body = daemon.connect()?.exchange(&json_request("POST", &path, &wish))?.ok("exec")?;
                let run: Value = serde_json::from_slice(&body).map_err(io::Error::other)?;
                if run["exit_code"] != 0 {
                    return Err(Error::answer("a client in a sandbox", &body));
                }
                run["stdout"].as_str().unwrap_or_default().to_owned()
            }
            Self::Plain | Self::Proxy(_) | Self::Slirp(_) => {
                let mut command = match self {
                    Self::Slirp(slirp) => {
                        let mut command = slirp.command();
                        command.arg(python[0]);
                        command
                    }
                    Self::Plain | Self::Proxy(_) | Self::Gate(..) => Command::new(python[0]),
                };
                command.args(&python[1..]).args(&words).stdin(Stdio::null());
                let output = command.output()?;
                if !output.status.success() {
                    return Err(Error::answer("a client", &output.stderr));
                }
                String::from_utf8_lossy(&output.stdout).into_owned()
            }
        };
        said.trim().parse().map_err(|_| Error::answer("a client", said.as_bytes()))
    }
}

impl Bench {
    pub(super) fn network(&self, report: &mut Report) -> Result<()> {
        let setup = Setup { pool_size: Some(0), default_sandbox: false, config: CONFIG };
        let daemon = Daemon::start(&self.isle, setup)?;
        let crowd = Arc::new(Crowd::default());
        let port = serve(&crowd)?;
        grant(&daemon, SANDBOX, port)?;
        self.idle(&daemon, port, report)?;
        let proxy = Proxy::start().map_err(|why| report.skip("the gate beside tinyproxy", why)).ok();
        let slirp = Slirp::start().map_err(|why| report.skip("the gate beside slirp4netns", why)).ok();
        let mut ways = vec![Way::Plain, Way::Gate(&daemon, SANDBOX)];
        ways.extend(proxy.as_ref().map(Way::Proxy));
        ways.extend(slirp.as_ref().map(Way::Slirp));
        self.bulk(&ways, port, report)?;
        self.connections(&ways, port, report)?;
        drop(ways);
        self.thousand(&daemon, port, &crowd, report)?;
        daemon.stop()?;
        self.tls_intercept(report)
    }

    /// A sandbox that has used a grant.
    fn idle(&self, daemon: &Daemon, port: u16, report: &mut Report) -> Result<()> {
        Way::Gate(daemon, SANDBOX).seconds(port, "connect", 20)?;
        // The processes of the last command have exited by then.
        thread::sleep(Duration::from_millis(200));
        match agents(daemon)?.iter().map(|pid| processes::proportional(*pid)).sum::<io::Result<u64>>() {
            Ok(bytes) => report.add(
                Row::single(
                    SECTION,
                    "one idle sandbox with a network, PSS with its agent",
                    "MiB",
                    mebibytes(bytes),
                )
                .target(Target::AtMost(2.5)),
            ),
            Err(error) => report.skip("PSS of an idle sandbox with a network", error),
        }
        Ok(())
    }

    fn bulk(&self, ways: &[Way<'_>], port: u16, report: &mut Report) -> Result<()> {
        let (rounds, size) = self.choose((2, 32), (7, 256), (15, 512));
        for deed in ["receive", "send"] {
            let mut rates: HashMap<&str, Samples> = HashMap::new();
            for round in 0..rounds {
                for turn in 0..ways.len() {
                    let way = &ways[(turn + round) % ways.len()];
                    let seconds = way.seconds(port, deed, size)?;
                    let mebibytes = f64::from(u32::try_from(size).unwrap_or(u32::MAX));
                    rates.entry(way.name()).or_default().push(mebibytes / seconds);
                }
            }
            let median = |name: &str| rates.get(name).map(Samples::median);
            for way in ways {
                let row = Row::new(
                    SECTION,
                    format!("bulk data, {deed}, {}", way.name()),
                    "MiB/s",
                    rates.get(way.name()).unwrap_or(&Samples::default()),
                );
                let row = match (way, median("tinyproxy")) {
                    (Way::Gate(..), Some(base)) => {
                        row.against("tinyproxy", base).target(Target::AtLeast(0.6))
                    }
                    _ => row,
                };
                report.add(row);
            }
            if let (Some(gate), Some(base)) = (median("the gate"), median("slirp4netns")) {
                report.add(
                    Row::single(SECTION, format!("bulk data, {deed}, the gate again"), "MiB/s", gate)
                        .against("slirp4netns", base)
                        .target(Target::AtLeast(2.0)),
                );
            }
        }
        Ok(())
    }

    /// Name looked up, connected, one byte back, closed.
    fn connections(&self, ways: &[Way<'_>], port: u16, report: &mut Report) -> Result<()> {
        let (rounds, number) = self.choose((2, 50), (9, 300), (20, 500));
        let mut times: HashMap<&str, Samples> = HashMap::new();
        for round in 0..rounds {
            for turn in 0..ways.len() {
                let way = &ways[(turn + round) % ways.len()];
                times.entry(way.name()).or_default().push(way.seconds(port, "connect", number)? * 1e3);
            }
        }
        let base = times.get("tinyproxy").map(Samples::median);
        for way in ways {
            let row = Row::new(
                SECTION,
                format!("a new connection, {}", way.name()),
                "ms",
                times.get(way.name()).unwrap_or(&Samples::default()),
            );
            let row = match (way, base) {
                (Way::Gate(..), Some(base)) => row.against("tinyproxy", base).target(Target::AtMost(2.0)),
                _ => row,
            };
            report.add(row);
        }
        Ok(())
    }

    /// All connections open at the same time.
    fn thousand(&self, daemon: &Daemon, port: u16, crowd: &Crowd, report: &mut Report) -> Result<()> {
        let names: Vec<String> = (0..SANDBOXES).map(|number| format!("crowd-{number}")).collect();
        for name in &names {
            grant(daemon, name, port)?;
        }
        let begin = Instant::now();
        let failed: usize = thread::scope(|scope| {
            let working: Vec<_> = names
                .iter()
                .map(|name| scope.spawn(move || Way::Gate(daemon, name).seconds(port, "wait", EACH)))
                .collect();
            working.into_iter().map(|one| usize::from(!matches!(one.join(), Ok(Ok(_))))).sum()
        });
        let took = begin.elapsed().as_secs_f64() * 1e3;
        let number = |count: usize| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
        report.add(
            Row::single(
                SECTION,
                format!("connections open at once, of {SANDBOXES} sandboxes"),
                "connections",
                number(crowd.most.load(Ordering::Relaxed)),
            )
            .target(Target::AtLeast(number(SANDBOXES * EACH))),
        );
        report.add(
            Row::single(SECTION, "sandboxes of those that saw an error", "sandboxes", number(failed))
                .target(Target::AtMost(0.0)),
        );
        report.add(Row::single(SECTION, "all of it, interpreters included", "ms", took));
        Ok(())
    }
}

fn grant(daemon: &Daemon, sandbox: &str, port: u16) -> Result<()> {
    let wish = json!({ "hosts": [format!("bench.test:{port}/tcp"), format!("127.0.0.1:{port}")] });
    let path = format!("/v1/sandboxes/{sandbox}/grants");
    daemon.connect()?.exchange(&json_request("POST", &path, &wish))?.ok("granting")?;
    Ok(())
}
