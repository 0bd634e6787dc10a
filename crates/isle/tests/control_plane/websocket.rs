//! As much of a WebSocket client as an attack needs: it sends what no library would.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use serde_json::Value;

use crate::support::Target;

/// Asks for an upgrade of `/v1/session`; gives the status and the connection.
pub(crate) fn handshake(
    mut stream: TcpStream,
    target: &Target,
    headers: &[&str],
) -> (u16, BufReader<TcpStream>) {
    let mut request = format!(
        "GET /v1/session HTTP/1.1\r\nHost: {}\r\n{}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
        target.address,
        target.bearer(),
    );
    for header in headers {
        request.push_str(header);
        request.push_str("\r\n");
    }
    request.push_str("\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert_ne!(reader.read_line(&mut head).unwrap(), 0, "{head}");
    }
    (head[9..12].parse().unwrap(), reader)
}

/// One text frame, masked with zeros as a client must mask it.
pub(crate) fn text_frame(payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x81, 0x80 | 127];
    frame.extend_from_slice(&u64::try_from(payload.len()).unwrap().to_be_bytes());
    frame.extend_from_slice(&[0; 4]);
    frame.extend_from_slice(payload);
    frame
}

/// The next message in JSON; `None` when the server closed.
pub(crate) fn next_message(reader: &mut impl Read) -> Option<Value> {
    loop {
        let mut head = [0; 2];
        reader.read_exact(&mut head).ok()?;
        let length = match head[1] & 0x7f {
            126 => {
                let mut length = [0; 2];
                reader.read_exact(&mut length).ok()?;
                usize::from(u16::from_be_bytes(length))
            }
            127 => {
                let mut length = [0; 8];
                reader.read_exact(&mut length).ok()?;
                usize::try_from(u64::from_be_bytes(length)).unwrap()
            }
            length => usize::from(length),
        };
        let mut payload = vec![0; length];
        reader.read_exact(&mut payload).ok()?;
        match head[0] & 0x0f {
            1 => return Some(serde_json::from_slice(&payload).unwrap()),
            8 => return None,
            _ => {}
        }
    }
}
