//! Just enough of an HTTP/1.1 client to ask a question over a kept connection and read the answer,
//! so that what is measured is the server.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;

use crate::error::{Error, Result};
use crate::interrupt;

/// What bytes travel on.
pub(crate) trait Wire: Read + Write + Send {}
impl<T: Read + Write + Send> Wire for T {}

/// A kept connection.
pub(crate) struct Connection {
    wire: Box<dyn Wire>,
    buffer: Vec<u8>,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// The value of a header.
    pub(crate) fn header(&self, wanted: &str) -> Option<&str> {
        header(&self.head, wanted)
    }

    /// The body, when the status says it worked.
    pub(crate) fn ok(self, who: &'static str) -> Result<Vec<u8>> {
        if (200..300).contains(&self.status) { Ok(self.body) } else { Err(Error::answer(who, &self.body)) }
    }
}

impl Connection {
    pub(crate) fn unix(socket: &Path) -> io::Result<Self> {
        Ok(Self { wire: Box::new(UnixStream::connect(socket)?), buffer: Vec::new() })
    }

    pub(crate) fn tcp(address: &str) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        Ok(Self { wire: Box::new(stream), buffer: Vec::new() })
    }

    /// Sends a whole request and reads the whole answer.
    pub(crate) fn exchange(&mut self, request: &[u8]) -> Result<Answer> {
        interrupt::check()?;
        self.wire.write_all(request)?;
        loop {
            let answer = self.answer()?;
            // An interim answer announces the real one.
            if answer.status >= 200 {
                return Ok(answer);
            }
        }
    }

    /// Sends a request whose answer lasts until the other side closes.
    pub(crate) fn exchange_to_end(mut self, request: &[u8]) -> io::Result<Vec<u8>> {
        self.wire.write_all(request)?;
        self.wire.read_to_end(&mut self.buffer)?;
        Ok(self.buffer)
    }

    fn answer(&mut self) -> Result<Answer> {
        let head_length = loop {
            if let Some(found) = find(&self.buffer, b"\r\n\r\n") {
                break found + 4;
            }
            self.fill()?;
        };
        let head = String::from_utf8_lossy(&self.buffer[..head_length]).into_owned();
        self.buffer.drain(..head_length);
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
        let chunked = header(&head, "transfer-encoding").is_some_and(|value| value == "chunked");
        let length = header(&head, "content-length").and_then(|value| value.parse::<usize>().ok());
        let body = match length {
            _ if chunked => self.chunks()?,
            Some(length) => self.take(length)?,
            None => Vec::new(),
        };
        Ok(Answer { status, head, body })
    }

    fn chunks(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let line = loop {
                if let Some(found) = find(&self.buffer, b"\r\n") {
                    break found;
                }
                self.fill()?;
            };
            let text = String::from_utf8_lossy(&self.buffer[..line]);
            let length = usize::from_str_radix(text.split(';').next().unwrap_or_default().trim(), 16)
                .map_err(io::Error::other)?;
            self.buffer.drain(..line + 2);
            let mut piece = self.take(length + 2)?;
            if length == 0 {
                return Ok(body);
            }
            piece.truncate(length);
            body.append(&mut piece);
        }
    }

    fn take(&mut self, length: usize) -> io::Result<Vec<u8>> {
        let mut taken = std::mem::take(&mut self.buffer);
        if taken.len() > length {
            self.buffer = taken.split_off(length);
            return Ok(taken);
        }
        let have = taken.len();
        taken.resize(length, 0);
        self.wire.read_exact(&mut taken[have..])?;
        Ok(taken)
    }

    fn fill(&mut self) -> io::Result<()> {
        let have = self.buffer.len();
        self.buffer.resize(have + 16 * 1024, 0);
        let count = self.wire.read(&mut self.buffer[have..])?;
        self.buffer.truncate(have + count);
        if count == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }
}

/// A request with its body, as bytes to send again and again.
pub(crate) fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    request_to("localhost", method, path, headers, body)
}

/// The same, to a server that wants to be called by its name.
pub(crate) fn request_to(
    host: &str,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Vec<u8> {
    let mut text = format!("{method} {path} HTTP/1.1\r\nhost: {host}\r\ncontent-length: {}\r\n", body.len());
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str("\r\n");
    let mut bytes = text.into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

/// A request with a JSON body.
pub(crate) fn json_request(method: &str, path: &str, body: &serde_json::Value) -> Vec<u8> {
    request(method, path, &[("content-type", "application/json")], body.to_string().as_bytes())
}

/// Whether `needle` occurs.
pub(crate) fn contains(bytes: &[u8], needle: &str) -> bool {
    find(bytes, needle.as_bytes()).is_some()
}

fn header<'a>(head: &'a str, wanted: &str) -> Option<&'a str> {
    head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case(wanted).then(|| value.trim())
    })
}

fn find(bytes: &[u8], needle: &[u8]) -> Option<usize> {
    bytes.windows(needle.len()).position(|window| window == needle)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A wire that answers with what it was given.
    struct Script(io::Cursor<Vec<u8>>);

    impl Read for Script {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let small = into.len().min(7);
            self.0.read(&mut into[..small])
        }
    }

    impl Write for Script {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn connection(answers: &str) -> Connection {
        Connection { wire: Box::new(Script(io::Cursor::new(answers.into()))), buffer: Vec::new() }
    }

    #[test]
    fn two_answers_in_one_piece_are_two_answers() {
        let mut connection = connection(
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\noneHTTP/1.1 404 No\r\ncontent-length: 3\r\n\r\ntwo",
        );
        assert_eq!(connection.exchange(b"").unwrap().body, b"one");
        let second = connection.exchange(b"").unwrap();
        assert_eq!((second.status, second.body.as_slice()), (404, b"two".as_slice()));
    }

    #[test]
    fn chunks_are_put_together() {
        let mut connection = connection(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\na\r\n0123456789\r\n0\r\n\r\n",
        );
        assert_eq!(connection.exchange(b"").unwrap().body, b"one0123456789");
    }
}
