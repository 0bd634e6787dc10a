//! MCP clients that do only what the protocol demands: one over the stdio of `isle mcp`, one over
//! HTTP with a session on a kept connection.

use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::daemon::Daemon;
use crate::error::{Error, Result};
use crate::http::{Connection, contains, request_to};

/// The revision with sessions over HTTP.
const REVISION: &str = "2025-11-25";

fn initialize() -> Value {
    json!({
        "jsonrpc": "2.0", "id": 0, "method": "initialize",
        "params": {
            "protocolVersion": REVISION,
            "capabilities": {},
            "clientInfo": { "name": "isle-bench", "version": env!("CARGO_PKG_VERSION") },
        },
    })
}

fn initialized() -> Value {
    json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })
}

fn call_exec(sandbox: &str) -> Value {
    json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": "exec", "arguments": { "sandbox": sandbox, "argv": ["/bin/true"] } },
    })
}

fn check(answer: &[u8], who: &'static str) -> Result<()> {
    if contains(answer, r#""exit_code":0"#) { Ok(()) } else { Err(Error::answer(who, answer)) }
}

/// A session through `isle mcp`.
#[derive(Debug)]
pub(crate) struct StdioSession {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    call: Vec<u8>,
    line: Vec<u8>,
}

impl StdioSession {
    pub(crate) fn open(daemon: &Daemon, sandbox: &str) -> Result<Self> {
        let mut command = Command::new(daemon.isle());
        command.arg("mcp").env_clear().envs(daemon.variables());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = child.stdin.take();
        let output = child.stdout.take().ok_or_else(|| io::Error::from(io::ErrorKind::BrokenPipe))?;
        let call = format!("{}\n", call_exec(sandbox)).into_bytes();
        let mut session = Self { child, input, output: BufReader::new(output), call, line: Vec::new() };
        session.send(format!("{}\n", initialize()).as_bytes())?;
        session.receive()?;
        session.send(format!("{}\n", initialized()).as_bytes())?;
        Ok(session)
    }

    pub(crate) fn time_exec(&mut self) -> Result<Duration> {
        let call = std::mem::take(&mut self.call);
        let begin = Instant::now();
        self.send(&call)?;
        self.receive()?;
        let took = begin.elapsed();
        self.call = call;
        check(&self.line, "exec over MCP stdio")?;
        Ok(took)
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.input.as_mut().ok_or(io::ErrorKind::BrokenPipe)?.write_all(bytes)
    }

    fn receive(&mut self) -> io::Result<()> {
        self.line.clear();
        match self.output.read_until(b'\n', &mut self.line)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}

impl Drop for StdioSession {
    /// The end of its input ends `isle mcp`.
    fn drop(&mut self) {
        drop(self.input.take());
        self.child.wait().ok();
    }
}

/// A session over HTTP.
pub(crate) struct HttpSession {
    connection: Connection,
    call: Vec<u8>,
}

impl HttpSession {
    pub(crate) fn open(daemon: &Daemon, sandbox: &str) -> Result<Self> {
        let authorization = format!("Bearer {}", daemon.token()?);
        let post = |session: Option<&str>, message: &Value| {
            let mut headers = vec![
                ("authorization", authorization.as_str()),
                ("content-type", "application/json"),
                ("accept", "application/json, text/event-stream"),
            ];
            if let Some(session) = session {
                headers.extend([("mcp-session-id", session), ("mcp-protocol-version", REVISION)]);
            }
            request_to(daemon.address(), "POST", "/mcp", &headers, message.to_string().as_bytes())
        };
        let mut connection = Connection::tcp(daemon.address())?;
        let welcome = connection.exchange(&post(None, &initialize()))?;
        let session = welcome.header("mcp-session-id").map(str::to_owned);
        let session = session.ok_or_else(|| Error::answer("initialize over MCP HTTP", &welcome.body))?;
        connection.exchange(&post(Some(&session), &initialized()))?.ok("initialized over MCP HTTP")?;
        Ok(Self { connection, call: post(Some(&session), &call_exec(sandbox)) })
    }

    pub(crate) fn time_exec(&mut self) -> Result<Duration> {
        let begin = Instant::now();
        let answer = self.connection.exchange(&self.call)?;
        let took = begin.elapsed();
        check(&answer.body, "exec over MCP HTTP")?;
        Ok(took)
    }
}
