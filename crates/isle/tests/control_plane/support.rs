//! A daemon on both listeners, bytes sent to it exactly as written, what every refusal must look like,
//! and how much memory it all took.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

use crate::harness::http::Answer;
use crate::harness::{TestDaemon, until_some};

/// Nothing takes this long, unless the daemon hangs.
const HANGS: Duration = Duration::from_secs(90);
/// How much the daemon may grow under any attack: a handful of bodies of the largest size at once.
const GROWTH: u64 = 160 << 20;

pub(crate) const JSON: &str = "Content-Type: application/json";

/// A daemon that also listens on TCP.
pub(crate) struct Target {
    pub(crate) daemon: TestDaemon,
    pub(crate) address: String,
    pub(crate) token: String,
    resting: u64,
}

impl Target {
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    pub(crate) fn start_with(settings: &[(&str, &str)]) -> Self {
        let mut all = vec![("ISLE_LISTEN", "127.0.0.1:0")];
        all.extend(settings);
        let daemon = TestDaemon::start_with(&all);
        let address = until_some("the daemon says where it listens", || {
            let log = daemon.log();
            let at = log.find("\"tcp\":\"127.0.0.1:")? + "\"tcp\":\"".len();
            Some(log[at..].split('"').next()?.to_owned())
        });
        let token = std::fs::read_to_string(daemon.home().state_dir().join("token")).unwrap();
        let resting = daemon.memory("VmHWM");
        Self { daemon, address, token: token.trim().to_owned(), resting }
    }

    pub(crate) fn bearer(&self) -> String {
        format!("Authorization: Bearer {}", self.token)
    }

    /// Sends a request over TCP, with token and `Host` unless others are given.
    pub(crate) fn tcp(&self, line: &str, headers: &[&str], body: &[u8]) -> Answer {
        let (host, bearer) = (format!("Host: {}", self.address), self.bearer());
        let mut all: Vec<&str> = headers.to_vec();
        for (name, own) in [("host:", &host), ("authorization:", &bearer)] {
            if !headers.iter().any(|header| header.to_ascii_lowercase().starts_with(name)) {
                all.push(own);
            }
        }
        crate::harness::http::tcp(&self.address, line, &all, body)
    }

    /// Sends exactly these bytes and reads until the daemon closes.
    pub(crate) fn raw(&self, bytes: &[u8]) -> Raw {
        let mut stream = self.connect();
        // A daemon that refuses early need not take everything.
        let _ = stream.write_all(bytes);
        Raw::read(stream)
    }

    pub(crate) fn connect(&self) -> TcpStream {
        self.connect_to(&self.address)
    }

    /// The same to another listener of the daemon.
    pub(crate) fn connect_to(&self, address: &str) -> TcpStream {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(HANGS)).unwrap();
        stream.set_write_timeout(Some(HANGS)).unwrap();
        stream
    }

    /// The allowed thing still works, over TCP and to the end.
    pub(crate) fn still_works(&self) {
        let body = br#"{"command": "echo still here"}"#;
        let answer = self.tcp("POST /v1/sandboxes/control/exec", &[JSON], body);
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(answer.json()["stdout"], "still here\n");
    }

    /// The daemon has not grown beyond what it may.
    pub(crate) fn memory_is_bounded(&self, after: &str) {
        let (now, peak) = (self.daemon.memory("VmRSS"), self.daemon.memory("VmHWM"));
        let mib = |bytes: u64| bytes >> 20;
        println!(
            "{after}: {} MiB before, {} MiB after, {} MiB at most",
            mib(self.resting),
            mib(now),
            mib(peak)
        );
        assert!(peak < self.resting + GROWTH, "{after}: the daemon grew to {} MiB", mib(peak));
    }
}

/// A line of `/proc/PID/status`, in bytes.
/// Everything that came back over a connection.
#[derive(Debug)]
pub(crate) struct Raw(Vec<u8>);

impl Raw {
    pub(crate) fn read(mut stream: impl Read) -> Self {
        let mut bytes = Vec::new();
        let mut piece = [0; 16 * 1024];
        loop {
            match stream.read(&mut piece) {
                Ok(0) => break,
                Ok(count) => bytes.extend_from_slice(&piece[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => break,
                Err(error) => panic!("{error} after {}", String::from_utf8_lossy(&bytes)),
            }
        }
        Self(bytes)
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.0).into_owned()
    }

    /// How many answers there are in it.
    pub(crate) fn answers(&self) -> usize {
        // A message may speak of HTTP/1.1; an answer begins a line with it.
        let text = self.text();
        text.match_indices("HTTP/1.1 ")
            .filter(|(at, _)| *at == 0 || !text[..*at].ends_with([' ', '"']))
            .count()
    }

    pub(crate) fn status(&self) -> u16 {
        let text = self.text();
        let status = text.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok());
        status.unwrap_or_else(|| panic!("no answer: {text:?}"))
    }

    /// The error of a refusal.
    pub(crate) fn error(&self) -> Value {
        let text = self.text();
        let body = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}")).1;
        let answer: Value = serde_json::from_str(body).unwrap_or_else(|why| panic!("{why}: {text}"));
        proper(&answer["error"]).clone()
    }
}

/// Checks that an error has a code, a sentence and a next step.
pub(crate) fn proper(error: &Value) -> &Value {
    assert!(error["code"].as_str().is_some_and(|code| !code.is_empty()), "{error}");
    assert!(error["message"].as_str().is_some_and(|text| text.len() > 8), "{error}");
    assert!(error["next_steps"].as_array().is_some_and(|steps| !steps.is_empty()), "{error}");
    error
}

/// Checks that an answer is a refusal with this status and code.
pub(crate) fn refused(answer: &Answer, status: u16, code: &str, what: &str) {
    assert_eq!(answer.status, status, "{what}: {}", answer.text());
    let body = answer.json();
    assert_eq!(proper(&body["error"])["code"], code, "{what}");
}
