//! The byte pipe MCP clients speak through: an upgraded HTTP connection, in blocking form. Two
//! threads that only copy have less latency than any runtime, and need none.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use isle_api::Toolsets;
use isle_core::{Code, Error, SocketPath};

use crate::connection::{INSTANCE, NAMESPACE};
use crate::endpoint::Endpoint;
use crate::error::{ClientError, Result, VERSION_HEADER, same_instance, same_version};

/// An open pipe.
#[derive(Debug)]
pub struct Pipe {
    /// The connection.
    pub stream: UnixStream,
    /// What the daemon sent right behind its answer.
    pub first: Vec<u8>,
    /// Set when the daemon is of another version. The session lives in the daemon, so it works; who
    /// expects something new of it should know.
    pub mismatch: Option<ClientError>,
}

/// Opens the pipe. Without `toolsets` the daemon's own choice counts.
pub fn open_pipe(endpoint: &Endpoint, toolsets: Option<&Toolsets>) -> Result<Pipe> {
    let path = match endpoint.socket() {
        Some(path) => path,
        None => {
            return Err(Error::new(
                Code::InvalidArgument,
                "the MCP pipe leads to this user's own daemon only",
            )
            .next(format!("point the MCP client at {endpoint}/mcp with the token as bearer"))
            .next("or unset ISLE_URL")
            .into());
        }
    };
    let mut pipe = SocketPath::new(path)
        .and_then(|address| UnixStream::connect(&address))
        .map_err(|error| ClientError::unreachable(&endpoint.to_string(), &error))?;
    let query = toolsets.map_or_else(String::new, |toolsets| format!("?toolsets={toolsets}"));
    let namespace =
        endpoint.namespace().map_or_else(String::new, |namespace| format!("{NAMESPACE}: {namespace}\r\n"));
    let instance =
        endpoint.instance().map_or_else(String::new, |instance| format!("{INSTANCE}: {instance}\r\n"));
    let request = format!(
        "GET /v1/mcp-stdio{query} HTTP/1.1\r\nHost: localhost\r\n{namespace}{instance}Connection: Upgrade\r\nUpgrade: isle-mcp\r\n\r\n"
    );
    pipe.write_all(request.as_bytes()).map_err(ClientError::interrupted)?;
    let (head, rest) = read_head(&mut pipe)?;
    let status = head.split(' ').nth(1).unwrap_or_default();
    if status == "101" {
        let header = |wanted: &str| {
            head.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case(wanted).then(|| value.trim())
            })
        };
        same_instance(endpoint, header(INSTANCE))?;
        let version = header(VERSION_HEADER);
        let mismatch = version.and_then(|theirs| same_version(theirs).err());
        return Ok(Pipe { stream: pipe, first: rest, mismatch });
    }
    if status == "421" {
        // The body may still be on its way; its first piece came with the head or says nothing new.
        same_instance(endpoint, Some(""))?;
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
