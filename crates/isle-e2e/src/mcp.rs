//! A client of `isle mcp`: a child process with JSON-RPC on its standard streams.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::{TestDaemon, Watchdog};

/// No line of an answer takes this long, unless something hangs.
const HANGS: Duration = Duration::from_secs(60);

/// A client at the other end of the pipe.
#[derive(Debug)]
pub struct McpClient {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: mpsc::Receiver<Value>,
    next_id: u64,
    /// What came that was no answer to a request.
    pub notices: Vec<Value>,
    _watch: Watchdog,
}

impl McpClient {
    pub fn start(daemon: &TestDaemon) -> Self {
        Self::start_with(daemon, &[])
    }

    pub fn start_with(daemon: &TestDaemon, flags: &[&str]) -> Self {
        let arguments: Vec<&str> = ["mcp"].iter().chain(flags).copied().collect();
        let mut child = daemon.isle(&arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (sender, lines) = mpsc::channel();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let message = serde_json::from_str(&line).unwrap_or_else(|_| panic!("not JSON: {line}"));
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let (stdin, watch) = (child.stdin.take(), Watchdog::over(&child));
        Self { child, stdin, lines, next_id: 0, notices: Vec::new(), _watch: watch }
    }

    /// With the handshake of a revision.
    pub fn initialized(daemon: &TestDaemon, version: &str) -> (Self, Value) {
        Self::initialized_with(daemon, version, &[])
    }

    /// The same with flags behind `isle mcp`.
    pub fn initialized_with(daemon: &TestDaemon, version: &str, flags: &[&str]) -> (Self, Value) {
        Self::initialized_as(daemon, version, flags, json!({}))
    }

    /// The same for a client that can do something.
    pub fn initialized_as(
        daemon: &TestDaemon,
        version: &str,
        flags: &[&str],
        capabilities: Value,
    ) -> (Self, Value) {
        let mut client = Self::start_with(daemon, flags);
        let info = json!({"name": "test", "version": "1"});
        let hello = json!({"protocolVersion": version, "capabilities": capabilities, "clientInfo": info});
        let answer = client.request("initialize", hello)["result"].clone();
        client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        (client, answer)
    }

    pub fn send(&mut self, message: &Value) {
        self.send_line(message.to_string().as_bytes());
    }

    /// Sends a line that may be anything.
    pub fn send_line(&mut self, bytes: &[u8]) {
        let mut stdin = self.stdin.as_ref().unwrap();
        stdin.write_all(bytes).unwrap();
        stdin.write_all(b"\n").unwrap();
    }

    /// The next message, whatever it is.
    #[expect(clippy::should_implement_trait, reason = "there is always a next message, or the test fails")]
    pub fn next(&mut self) -> Value {
        self.lines.recv_timeout(HANGS).unwrap_or_else(|why| panic!("nothing came: {why}"))
    }

    /// Sends a request; gives its id.
    pub fn ask(&mut self, method: &str, params: Value) -> u64 {
        self.next_id += 1;
        self.send(&json!({"jsonrpc": "2.0", "id": self.next_id, "method": method, "params": params}));
        self.next_id
    }

    /// The answer to a request; what else comes before it is kept.
    pub fn answer(&mut self, id: u64) -> Value {
        loop {
            let message = self.next();
            if message["id"] == id {
                return message;
            }
            self.notices.push(message);
        }
    }

    pub fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.ask(method, params);
        self.answer(id)
    }

    pub fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.request("tools/call", json!({"name": tool, "arguments": arguments}))["result"].clone()
    }

    /// Ends our side of the pipe; gives how the program ended.
    pub fn hang_up(mut self) -> Option<i32> {
        drop(self.stdin.take());
        self.child.wait().unwrap().code()
    }
}

impl Drop for McpClient {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
