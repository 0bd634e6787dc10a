//! The events of a run, as they happen. A broken connection can be taken up again after the last
//! event that was seen.

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::{Method, Response};
use isle_api::shapes::RunResult;
use serde::Deserialize;

use crate::client::Client;
use crate::connection::whole;
use crate::error::{ClientError, Result};
use crate::route::encode;

/// Something that happened in a run.
#[derive(Debug, Clone, PartialEq)]
pub struct RunEvent {
    /// Position, for resuming.
    pub id: u64,
    /// What happened.
    pub kind: RunEventKind,
}

/// See [`RunEvent`].
#[derive(Debug, Clone, PartialEq)]
pub enum RunEventKind {
    /// The command was started.
    Started,
    /// Standard output.
    Stdout(String),
    /// Standard error.
    Stderr(String),
    /// So many bytes are missing here.
    Lost(u64),
    /// It is over. Last event.
    Ended(Box<RunResult>),
}

/// A run being followed.
#[derive(Debug)]
pub struct FollowedRun {
    body: Incoming,
    buffer: BytesMut,
}

impl Client {
    /// Follows a run from the event after `after` (0: from the start of what is kept, or from the last
    /// `tail` lines of each output).
    pub async fn follow(&self, run: &str, after: u64, tail: Option<u32>) -> Result<FollowedRun> {
        let mut path = format!("/v1/runs/{}/events", encode(run));
        if let Some(lines) = tail {
            path.push_str(&format!("?tail={lines}"));
        }
        let after = after.to_string();
        let headers = [("accept", "text/event-stream"), ("last-event-id", after.as_str())];
        let response = self.stream(Method::GET, &path, &headers, whole(Bytes::new())).await?;
        Ok(FollowedRun { body: response.into_body(), buffer: BytesMut::new() })
    }
}

impl FollowedRun {
    /// The next event; `None` when the stream ended.
    pub async fn next(&mut self) -> Result<Option<RunEvent>> {
        loop {
            while let Some(block) = take_block(&mut self.buffer) {
                if let Some(event) = read_block(&block)? {
                    return Ok(Some(event));
                }
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(frame) => {
                    if let Ok(data) = frame.map_err(ClientError::interrupted)?.into_data() {
                        self.buffer.extend_from_slice(&data);
                    }
                }
            }
        }
    }
}

/// One event of a stream, by its name, and what there is to say.
#[derive(Debug, Clone, PartialEq)]
pub struct StreamedEvent {
    /// Position, for resuming.
    pub id: u64,
    /// What happened: `watching` or `file` of a watch, `run_started` or `lost` of the daemon's events.
    pub name: String,
    /// The rest.
    pub data: serde_json::Value,
}

/// A stream of events.
#[derive(Debug)]
pub struct EventStream {
    body: Incoming,
    buffer: BytesMut,
}

impl Client {
    /// Watches files of a sandbox.
    pub async fn watch(&self, sandbox: &str, path: &str, recursive: bool) -> Result<EventStream> {
        let (sandbox, path) = (encode(sandbox), encode(path));
        let path = format!("/v1/sandboxes/{sandbox}/files/watch/events?path={path}&recursive={recursive}");
        self.event_stream(&path).await
    }

    /// Follows what happens in the daemon. The filters are those of the route `/v1/events`.
    pub async fn follow_events(&self, filters: &[(&str, &str)]) -> Result<EventStream> {
        let query: Vec<String> =
            filters.iter().map(|(name, value)| format!("{name}={}", encode(value))).collect();
        self.event_stream(&format!("/v1/events?{}", query.join("&"))).await
    }

    async fn event_stream(&self, path: &str) -> Result<EventStream> {
        let headers = [("accept", "text/event-stream")];
        Ok(EventStream::of(self.stream(Method::GET, path, &headers, whole(Bytes::new())).await?))
    }
}

impl EventStream {
    pub(crate) fn of(response: Response<Incoming>) -> Self {
        Self { body: response.into_body(), buffer: BytesMut::new() }
    }

    /// The next event; `None` when the stream ended.
    pub async fn next(&mut self) -> Result<Option<StreamedEvent>> {
        loop {
            while let Some(block) = take_block(&mut self.buffer) {
                let (id, name, data) = fields(&block)?;
                if !name.is_empty() {
                    let data = serde_json::from_str(&data).map_err(ClientError::not_understood)?;
                    return Ok(Some(StreamedEvent { id, name, data }));
                }
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(frame) => {
                    if let Ok(data) = frame.map_err(ClientError::interrupted)?.into_data() {
                        self.buffer.extend_from_slice(&data);
                    }
                }
            }
        }
    }
}

/// Takes the text up to the first empty line out of the buffer.
fn take_block(buffer: &mut BytesMut) -> Option<Bytes> {
    let end = buffer.windows(2).position(|pair| pair == b"\n\n")?;
    let block = buffer.split_to(end + 2).freeze();
    Some(block.slice(..end))
}

/// Reads one block of `id:`, `event:` and `data:` lines; comments and unknown events give nothing.
fn read_block(block: &[u8]) -> Result<Option<RunEvent>> {
    #[derive(Deserialize)]
    struct Piece {
        data: String,
    }
    #[derive(Deserialize)]
    struct Missing {
        bytes: u64,
    }
    let (id, name, data) = fields(block)?;
    let wrong = ClientError::not_understood;
    let kind = match name.as_str() {
        "started" => RunEventKind::Started,
        "stdout" => RunEventKind::Stdout(serde_json::from_str::<Piece>(&data).map_err(wrong)?.data),
        "stderr" => RunEventKind::Stderr(serde_json::from_str::<Piece>(&data).map_err(wrong)?.data),
        "lost" => RunEventKind::Lost(serde_json::from_str::<Missing>(&data).map_err(wrong)?.bytes),
        "ended" => RunEventKind::Ended(serde_json::from_str(&data).map_err(wrong)?),
        _ => return Ok(None),
    };
    Ok(Some(RunEvent { id, kind }))
}

/// Id, name and data of a block.
fn fields(block: &[u8]) -> Result<(u64, String, String)> {
    let text = std::str::from_utf8(block).map_err(ClientError::not_understood)?;
    let (mut id, mut name, mut data) = (0, String::new(), String::new());
    for line in text.lines() {
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "id" => id = value.parse().map_err(ClientError::not_understood)?,
            "event" => value.clone_into(&mut name),
            "data" => {
                if !data.is_empty() {
                    data.push('\n');
                }
                data.push_str(value);
            }
            _ => {}
        }
    }
    Ok((id, name, data))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_found_in_pieces_that_do_not_end_where_events_do() {
        let mut buffer = BytesMut::from(&b": beat\n\nid: 4\nevent: stdout\ndata: {\"data\":\"a\\n\"}\n"[..]);
        assert_eq!(read_block(&take_block(&mut buffer).unwrap()).unwrap(), None);
        assert_eq!(take_block(&mut buffer), None);
        buffer.extend_from_slice(b"\nid: 5");
        let event = read_block(&take_block(&mut buffer).unwrap()).unwrap();
        assert_eq!(event, Some(RunEvent { id: 4, kind: RunEventKind::Stdout("a\n".into()) }));
        assert_eq!(&buffer[..], b"id: 5");
    }
}
