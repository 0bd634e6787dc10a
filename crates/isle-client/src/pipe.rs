//! The byte pipe MCP clients speak through: an upgraded HTTP connection, in blocking form. Two
//! threads that only copy have less latency than any runtime, and need none.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use isle_engine::{Code, Error};

use crate::endpoint::Endpoint;
use crate::error::{ClientError, Result};

const REQUEST: &[u8] =
    b"GET /v1/mcp-stdio HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: isle-mcp\r\n\r\n";

/// Opens the pipe. What the daemon sent right behind its answer comes back too.
pub fn open_pipe(endpoint: &Endpoint) -> Result<(UnixStream, Vec<u8>)> {
    let path = match endpoint {
        Endpoint::Unix(path) => path,
        Endpoint::Tcp { .. } => {
            return Err(Error::new(
                Code::InvalidArgument,
                "the MCP pipe leads to this user's own daemon only",
            )
            .next(format!("point the MCP client at {endpoint}/mcp with the token as bearer"))
            .next("or unset ISLE_URL")
            .into());
        }
    };
    let mut pipe =
        UnixStream::connect(path).map_err(|error| ClientError::unreachable(&endpoint.to_string(), &error))?;
    pipe.write_all(REQUEST).map_err(ClientError::interrupted)?;
    let (head, rest) = read_head(&mut pipe)?;
    let status = head.split(' ').nth(1).unwrap_or_default();
    if status == "101" {
        return Ok((pipe, rest));
    }
    Err(ClientError::not_understood(format!("HTTP status {status} instead of an MCP pipe")))
}

/// Reads to the empty line that ends the head of the answer.
fn read_head(pipe: &mut UnixStream) -> Result<(String, Vec<u8>)> {
    const LONGEST: usize = 16 * 1024;
    let mut bytes = Vec::new();
    let mut buffer = [0; 1024];
    loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let rest = bytes.split_off(end + 4);
            return Ok((String::from_utf8_lossy(&bytes).into_owned(), rest));
        }
        if bytes.len() > LONGEST {
            return Err(ClientError::not_understood("its head is too long"));
        }
        match pipe.read(&mut buffer).map_err(ClientError::interrupted)? {
            0 => return Err(ClientError::interrupted("the daemon closed it")),
            count => bytes.extend_from_slice(&buffer[..count]),
        }
    }
}
