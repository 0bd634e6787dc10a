//! Messages, one a line. The SDK reads a repeated key as its last and passes over a line that is too
//! long in silence; here whoever sends such a thing is told, and what is executed is what was checked.

use isle_engine::{Code, Error, strict_json};
use rmcp::RoleServer;
use rmcp::model::{ClientJsonRpcMessage, ErrorCode, ErrorData, RequestId};
use rmcp::service::TxJsonRpcMessage;
use serde::Deserialize;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

/// A line.
#[derive(Debug)]
pub(crate) enum Line {
    /// A message.
    Message(Box<ClientJsonRpcMessage>),
    /// Something to answer right away.
    Refused(Box<Refused>),
}

/// A message that is not passed on, and the answer to it.
#[derive(Debug, Clone)]
pub struct Refused {
    /// Whose answer this is; unknown when the message does not say so in one way only.
    pub id: Option<RequestId>,
    /// What is wrong.
    pub error: ErrorData,
}

impl Refused {
    fn new(code: ErrorCode, id: Option<RequestId>, error: &Error) -> Self {
        Self { id, error: ErrorData::new(code, error.message.clone(), Some(error.to_json())) }
    }

    /// As the message that is sent back.
    #[must_use]
    pub fn into_message(self) -> TxJsonRpcMessage<RoleServer> {
        TxJsonRpcMessage::<RoleServer>::error(self.error, self.id)
    }
}

/// Reads one message. `None` for what other servers pass over too: lines that are no JSON by the looks of
/// them, and notifications of other protocols.
pub fn read_message(text: &[u8]) -> Result<Option<ClientJsonRpcMessage>, Box<Refused>> {
    let text = text.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(text).trim_ascii();
    if !matches!(text.first(), Some(b'{' | b'[')) {
        tracing::debug!(bytes = text.len(), "passed over a line that is no message");
        return Ok(None);
    }
    let value = strict_json::parse(text)
        .map_err(|error| Box::new(Refused::new(ErrorCode::PARSE_ERROR, id_of(text), &error)))?;
    let is_notification = value.get("id").is_none() && value.get("method").is_some_and(Value::is_string);
    match serde_json::from_value(value) {
        Ok(message) => Ok(Some(message)),
        Err(_) if is_notification => Ok(None),
        Err(error) => {
            let error =
                Error::new(Code::InvalidArgument, format!("this is no message of the protocol: {error}"))
                    .next("send a JSON-RPC 2.0 request or notification");
            Err(Box::new(Refused::new(ErrorCode::INVALID_REQUEST, id_of(text), &error)))
        }
    }
}

/// The id of a message that is otherwise unusable, if there is exactly one.
fn id_of(text: &[u8]) -> Option<RequestId> {
    #[derive(Deserialize)]
    struct OnlyId {
        id: RequestId,
    }
    serde_json::from_slice::<OnlyId>(text).ok().map(|found| found.id)
}

fn too_long(longest: usize) -> Refused {
    let error = Error::new(Code::TooLarge, format!("a message is longer than {longest} bytes"))
        .next("write large files in pieces, or with `isle cp`");
    Refused::new(ErrorCode::INVALID_REQUEST, None, &error)
}

/// Lines of bounded length.
#[derive(Debug)]
pub(crate) struct Lines<R> {
    read: BufReader<R>,
    line: Vec<u8>,
    longest: usize,
    /// The rest of a line that was too long is passed over.
    skipping: bool,
}

/// What became of the bytes at hand.
enum Step {
    More,
    Whole,
    TooLong,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(crate) fn new(read: R, longest: usize) -> Self {
        Self { read: BufReader::new(read), line: Vec::new(), longest, skipping: false }
    }

    /// The next line that is something; `None` at the end. Nothing is lost when it is dropped halfway.
    pub(crate) async fn next(&mut self) -> Option<Line> {
        loop {
            let available = match self.read.fill_buf().await {
                Ok([]) => return None,
                Ok(available) => available,
                Err(error) => {
                    tracing::debug!(%error, "the stream broke");
                    return None;
                }
            };
            let end = available.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(available.len(), |at| at + 1);
            let step = if self.skipping {
                self.skipping = end.is_none();
                Step::More
            } else if self.line.len() + taken > self.longest {
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
                Step::TooLong => Err(Box::new(too_long(self.longest))),
            };
            // A long line is the exception; its memory is not kept for the next.
            self.line.clear();
            self.line.shrink_to(64 * 1024);
            match read {
                Ok(Some(message)) => return Some(Line::Message(Box::new(message))),
                Ok(None) => {}
                Err(refused) => return Some(Line::Refused(refused)),
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
        let refused = read_message(twice).unwrap_err();
        assert_eq!(refused.id, Some(RequestId::Number(7)));
        assert_eq!(refused.error.code, ErrorCode::PARSE_ERROR);
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
        let mut lines = Lines::new(text.as_bytes(), 50_000);
        assert!(matches!(lines.next().await, Some(Line::Refused(refused)) if refused.id.is_none()));
        assert!(matches!(lines.next().await, Some(Line::Message(_))));
        assert!(lines.next().await.is_none());
    }
}
