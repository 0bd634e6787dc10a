//! The HTTP doors, spoken byte by byte: nothing between a test and what the server really sends.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

/// No answer takes this long, unless the daemon hangs.
const HANGS: Duration = Duration::from_secs(90);

/// A whole answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    /// The code of an error answer.
    pub fn code(&self) -> String {
        self.json()["error"]["code"].as_str().unwrap_or_else(|| panic!("{}", self.text())).to_owned()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }
}

/// One JSON request over a Unix socket.
pub fn unix(socket: &Path, method: &str, path: &str, body: Option<&Value>) -> Answer {
    let body = body.map(Value::to_string).unwrap_or_default();
    let kind: &[&str] = if method == "GET" { &[] } else { &["Content-Type: application/json"] };
    unix_raw(socket, &format!("{method} {path}"), kind, body.as_bytes())
}

/// One request with exactly these headers over TCP.
pub fn tcp(address: &str, line: &str, headers: &[&str], body: &[u8]) -> Answer {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(HANGS)).unwrap();
    send(stream, line, headers, body).unwrap().whole().unwrap()
}

/// One request with exactly these headers over a Unix socket.
pub fn unix_raw(socket: &Path, line: &str, headers: &[&str], body: &[u8]) -> Answer {
    try_unix(socket, line, headers, body).unwrap_or_else(|why| panic!("{line}: {why}"))
}

/// The same for a daemon that may be gone before it has answered.
pub fn try_unix(socket: &Path, line: &str, headers: &[&str], body: &[u8]) -> std::io::Result<Answer> {
    send(connect(socket)?, line, headers, body)?.whole()
}

fn connect(socket: &Path) -> std::io::Result<UnixStream> {
    let stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(HANGS))?;
    Ok(stream)
}

/// Server-sent events, as they come.
#[derive(Debug)]
pub struct Events {
    answer: Arriving<UnixStream>,
    pending: String,
}

/// One of them.
#[derive(Debug, Clone)]
pub struct Event {
    pub id: u64,
    pub name: String,
    pub data: Value,
}

impl Events {
    /// Asks for events; the answer must be a stream of them.
    pub fn open(socket: &Path, line: &str, headers: &[&str], body: &str) -> Self {
        let answer = send(connect(socket).unwrap(), line, headers, body.as_bytes()).unwrap();
        assert_eq!(answer.status, 200, "{line}");
        Self { answer, pending: String::new() }
    }

    /// The id of the run they are about.
    pub fn run_id(&self) -> String {
        let found = self.answer.headers.iter().find(|(name, _)| name == "isle-run-id");
        found.unwrap().1.clone()
    }

    /// Everything until the stream ends.
    pub fn rest(&mut self) -> Vec<Event> {
        self.collect()
    }

    /// The data of the next one that has some, of a server whose events have no names.
    pub fn data(&mut self) -> Option<Value> {
        self.find_block(|block| {
            let data = block.lines().find_map(|line| line.strip_prefix("data:"))?.trim();
            (!data.is_empty()).then(|| serde_json::from_str(data).unwrap())
        })
    }

    fn find_block<T>(&mut self, read: impl Fn(&str) -> Option<T>) -> Option<T> {
        loop {
            if let Some(end) = self.pending.find("\n\n") {
                let block: String = self.pending.drain(..end + 2).collect();
                if let Some(found) = read(&block) {
                    return Some(found);
                }
                continue;
            }
            let piece = self.answer.piece().unwrap()?;
            self.pending.push_str(std::str::from_utf8(&piece).unwrap());
        }
    }
}

impl Iterator for Events {
    type Item = Event;

    /// `None` when the stream ended.
    fn next(&mut self) -> Option<Event> {
        self.find_block(read_event)
    }
}

fn read_event(block: &str) -> Option<Event> {
    let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name));
    Some(Event {
        id: field("id: ")?.parse().unwrap(),
        name: field("event: ")?.to_owned(),
        data: serde_json::from_str(field("data: ")?).unwrap(),
    })
}

/// An answer whose body is still coming.
#[derive(Debug)]
struct Arriving<S> {
    status: u16,
    headers: Vec<(String, String)>,
    reader: BufReader<S>,
    body: Body,
}

#[derive(Debug)]
enum Body {
    /// So many bytes are left.
    Length(usize),
    /// In pieces that say their length.
    Chunks,
    /// Until the connection ends.
    Rest,
}

fn send<S: Read + Write>(
    mut stream: S,
    line: &str,
    headers: &[&str],
    body: &[u8],
) -> std::io::Result<Arriving<S>> {
    let mut request = format!("{line} HTTP/1.1\r\nConnection: close\r\n");
    let named = headers.iter().any(|header| header.starts_with("Host:"));
    for header in headers.iter().chain((!named).then_some(&"Host: localhost")) {
        request.push_str(header);
        request.push_str("\r\n");
    }
    if !body.is_empty() {
        request.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    request.push_str("\r\n");
    let mut request = request.into_bytes();
    request.extend_from_slice(body);
    // A server that refuses may answer and hang up before it has read everything.
    let sent = stream.write_all(&request);
    let mut reader = BufReader::new(stream);
    let status = read_line(&mut reader)?;
    let status = status.split(' ').nth(1).and_then(|number| number.parse().ok());
    let Some(status) = status else {
        sent?;
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    };
    let mut headers = Vec::new();
    loop {
        let line = read_line(&mut reader)?;
        let Some((name, value)) = line.split_once(": ") else { break };
        headers.push((name.to_ascii_lowercase(), value.to_owned()));
    }
    let value = |name: &str| headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone());
    let body = match (value("content-length"), value("transfer-encoding")) {
        (Some(length), _) => Body::Length(length.parse().unwrap()),
        (None, Some(_)) => Body::Chunks,
        (None, None) => Body::Rest,
    };
    Ok(Arriving { status, headers, reader, body })
}

fn read_line(reader: &mut impl BufRead) -> std::io::Result<String> {
    let mut line = String::new();
    reader.read_line(&mut line)?;
    Ok(line.trim_end().to_owned())
}

impl<S: Read> Arriving<S> {
    fn whole(mut self) -> std::io::Result<Answer> {
        let mut body = Vec::new();
        while let Some(piece) = self.piece()? {
            body.extend_from_slice(&piece);
        }
        Ok(Answer { status: self.status, headers: self.headers, body })
    }

    /// The next piece of the body; `None` at its end.
    fn piece(&mut self) -> std::io::Result<Option<Vec<u8>>> {
        match &mut self.body {
            Body::Length(0) => Ok(None),
            Body::Length(left) => {
                let mut piece = vec![0; (*left).min(64 * 1024)];
                self.reader.read_exact(&mut piece)?;
                *left -= piece.len();
                Ok(Some(piece))
            }
            Body::Chunks => {
                let line = read_line(&mut self.reader)?;
                let length = usize::from_str_radix(&line, 16).map_err(std::io::Error::other)?;
                let mut piece = vec![0; length + 2];
                self.reader.read_exact(&mut piece)?;
                piece.truncate(length);
                Ok((length > 0).then_some(piece))
            }
            Body::Rest => {
                let mut piece = vec![0; 64 * 1024];
                let count = self.reader.read(&mut piece)?;
                piece.truncate(count);
                Ok((count > 0).then_some(piece))
            }
        }
    }
}
