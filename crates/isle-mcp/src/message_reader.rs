//! Reads JSON-RPC messages, one per line. The SDK accepts duplicate keys (the last one wins) and silently skips
//! lines that are too long; here both are rejected with an error, so that what was checked is what is executed.

use isle_core::{Code, Error, strict_json};
use rmcp::RoleServer;
use rmcp::model::{ClientJsonRpcMessage, ErrorCode, ErrorData, RequestId};
use rmcp::service::TxJsonRpcMessage;
use serde::Deserialize;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

/// A line that was read.
#[derive(Debug)]
pub(crate) enum Received {
    /// A message.
    Message(Box<ClientJsonRpcMessage>),
    /// An invalid message, with the error to send.
    Rejected(Box<Rejected>),
}

/// The error response to an invalid message.
#[derive(Debug, Clone)]
pub struct Rejected {
    /// Id of the request; unknown when the message has none or several.
    pub id: Option<RequestId>,
    /// The error.
    pub error: ErrorData,
}

impl Rejected {
    fn new(code: ErrorCode, id: Option<RequestId>, error: &Error) -> Self {
        Self { id, error: ErrorData::new(code, error.message.clone(), Some(error.to_json())) }
    }

    /// The JSON-RPC error message to send.
    #[must_use]
    pub fn into_message(self) -> TxJsonRpcMessage<RoleServer> {
        TxJsonRpcMessage::<RoleServer>::error(self.error, self.id)
    }
}

/// Parses one message. `None` for lines that are ignored: those that do not look like JSON, and unknown
/// notifications.
pub fn read_message(text: &[u8]) -> Result<Option<ClientJsonRpcMessage>, Box<Rejected>> {
    let text = text.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(text).trim_ascii();
    if !matches!(text.first(), Some(b'{' | b'[')) {
        tracing::debug!(bytes = text.len(), "ignored a line that is not JSON");
        return Ok(None);
    }
    let value = strict_json::parse(text)
        .map_err(|error| Box::new(Rejected::new(ErrorCode::PARSE_ERROR, id_of(text), &error)))?;
    let is_notification = value.get("id").is_none() && value.get("method").is_some_and(Value::is_string);
    match serde_json::from_value(value) {
        Ok(message) => Ok(Some(message)),
        Err(_) if is_notification => Ok(None),
        Err(error) => {
            let error = Error::new(Code::InvalidArgument, format!("invalid JSON-RPC message: {error}"))
                .next("send a JSON-RPC 2.0 request or notification");
            Err(Box::new(Rejected::new(ErrorCode::INVALID_REQUEST, id_of(text), &error)))
        }
    }
}

/// The id of an invalid message, if it has exactly one.
fn id_of(text: &[u8]) -> Option<RequestId> {
    #[derive(Deserialize)]
    struct OnlyId {
        id: RequestId,
    }
    serde_json::from_slice::<OnlyId>(text).ok().map(|found| found.id)
}

fn too_long(limit: usize) -> Rejected {
    let error = Error::new(Code::TooLarge, format!("message exceeds {limit} bytes"))
        .next("write large files in parts, or copy them with `isle cp`");
    Rejected::new(ErrorCode::INVALID_REQUEST, None, &error)
}

/// Reads lines of bounded length.
#[derive(Debug)]
pub(crate) struct MessageReader<R> {
    read: BufReader<R>,
    line: Vec<u8>,
    limit: usize,
    /// Skips the rest of a line that was too long.
    skipping: bool,
}

/// Result of processing the buffered bytes.
enum Step {
    More,
    Whole,
    TooLong,
}

impl<R: AsyncRead + Unpin> MessageReader<R> {
    pub(crate) fn new(read: R, limit: usize) -> Self {
        Self { read: BufReader::new(read), line: Vec::new(), limit, skipping: false }
    }

    /// The next message; `None` at end of file. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Option<Received> {
        loop {
            let available = match self.read.fill_buf().await {
                Ok([]) => return None,
                Ok(available) => available,
                Err(error) => {
                    tracing::debug!(%error, "cannot read from the client");
                    return None;
                }
            };
            let end = available.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(available.len(), |at| at + 1);
            let step = if self.skipping {
                self.skipping = end.is_none();
                Step::More
            } else if self.line.len() + taken > self.limit {
                self.skipping = end.is_none();
                Step::TooLong
            } else {
                self.line.extend_from_slice(&available[..taken]);
                if end.is_some() { Step::Whole } else { Step::More }
            };
            self.read.consume(taken);
            let read = match step {
                Step::More => continue,
                Step::Whole => read_message(&self.line),
                Step::TooLong => Err(Box::new(too_long(self.limit))),
            };
            // Long lines are rare: release their memory.
            self.line.clear();
            self.line.shrink_to(64 * 1024);
            match read {
                Ok(Some(message)) => return Some(Received::Message(Box::new(message))),
                Ok(None) => {}
                Err(rejected) => return Some(Received::Rejected(rejected)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_says_a_thing_twice_is_refused_with_its_id() {
        let twice =
            br#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"exec","name":"kill"}}"#;
        let rejected = read_message(twice).unwrap_err();
        assert_eq!(rejected.id, Some(RequestId::Number(7)));
        assert_eq!(rejected.error.code, ErrorCode::PARSE_ERROR);
        let two_ids = br#"{"jsonrpc":"2.0","id":7,"id":8,"method":"ping"}"#;
        assert_eq!(read_message(two_ids).unwrap_err().id, None);
    }

    #[test]
    fn what_is_no_message_is_passed_over() {
        for line in [&b"hello"[..], b"", b"\xff\xfe", br#"{"jsonrpc":"2.0","method":"ping","params":7}"#] {
            assert!(matches!(read_message(line), Ok(None)), "{line:?}");
        }
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_is_refused_and_the_next_is_read() {
        let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
        let text = format!("{{\"x\":\"{}\"}}\n{ping}\n", "x".repeat(100_000));
        let mut lines = MessageReader::new(text.as_bytes(), 50_000);
        assert!(matches!(lines.next().await, Some(Received::Rejected(rejected)) if rejected.id.is_none()));
        assert!(matches!(lines.next().await, Some(Received::Message(_))));
        assert!(lines.next().await.is_none());
    }
}
