//! Parses the requests of a connection strictly, beside another parser, and reports for each whether its head
//! is unambiguous. A request that only the other parser finds, or that the two parse differently, has no
//! verdict and is not served. An Upgrade header changes nothing: only a connection that really was switched
//! is no longer parsed.

use std::collections::VecDeque;

use crate::http::body_length::{RemainingBody, RequestBody, RequestRest};
use crate::http::strict_head::{HeadDefect, read_head};

/// Maximum length of a head; the limits of the other parsers are not larger.
const LONGEST: usize = 128 * 1024;

/// The strict parser of a connection.
#[derive(Debug)]
pub struct RequestGuard {
    state: ParserState,
    verdicts: VecDeque<Result<RequestSeen, HeadDefect>>,
}

/// The position in a connection.
#[derive(Debug)]
enum ParserState {
    /// In a head: its bytes so far.
    Head(Vec<u8>),
    /// In a body.
    RequestBody(RemainingBody),
    /// After the last head that is parsed.
    Over,
}

/// A request whose head was parsed strictly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestSeen {
    method: String,
    target: String,
}

impl RequestSeen {
    /// Whether another parser has read the same method, path and query. Absolute URIs are compared elsewhere.
    #[must_use]
    pub fn is(&self, method: &str, path_and_query: Option<&str>) -> bool {
        self.method == method
            && (!self.target.starts_with('/') || path_and_query == Some(self.target.as_str()))
    }
}

impl Default for RequestGuard {
    fn default() -> Self {
        Self { state: ParserState::Head(Vec::new()), verdicts: VecDeque::new() }
    }
}

impl RequestGuard {
    /// Parses received bytes.
    pub fn read(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            match &mut self.state {
                ParserState::Over => return,
                ParserState::RequestBody(count) => match count.take(bytes) {
                    Ok(taken) => {
                        bytes = &bytes[taken..];
                        if count.is_over() {
                            self.state = ParserState::Head(Vec::new());
                        } else if taken == 0 {
                            return;
                        }
                    }
                    // The start of the next head is not known, so no more are parsed.
                    Err(_) => self.state = ParserState::Over,
                },
                ParserState::Head(head) => {
                    // Empty lines before a request are not part of it.
                    if head.is_empty() && (bytes[0] == b'\r' || bytes[0] == b'\n') {
                        bytes = &bytes[1..];
                        continue;
                    }
                    let before = head.len();
                    let here = bytes.len().min(LONGEST + 1 - before);
                    head.extend_from_slice(&bytes[..here]);
                    // The end may have begun in earlier bytes.
                    let from = before.saturating_sub(3);
                    let Some(length) = lenient_end(&head[from..]).map(|length| from + length) else {
                        bytes = &bytes[here..];
                        if head.len() > LONGEST {
                            self.end(HeadDefect::TooLarge);
                        }
                        continue;
                    };
                    bytes = &bytes[length - before..];
                    head.truncate(length);
                    match read_head(head) {
                        Ok(read) => {
                            let (method, target) = (read.method.to_owned(), read.target.to_owned());
                            let follows = read.body;
                            self.verdicts.push_back(Ok(RequestSeen { method, target }));
                            self.state = match RequestRest::from(follows) {
                                RequestRest::Counted(count) if follows != RequestBody::Length(0) => {
                                    ParserState::RequestBody(count)
                                }
                                RequestRest::Counted(_) | RequestRest::IfAgreed => {
                                    ParserState::Head(Vec::new())
                                }
                            };
                        }
                        Err(flaw) => self.end(flaw),
                    }
                }
            }
        }
    }

    /// The verdict on the next request; `None` if none was found.
    pub fn next_verdict(&mut self) -> Option<Result<RequestSeen, HeadDefect>> {
        self.verdicts.pop_front()
    }

    /// The connection was switched to another protocol.
    pub fn switch(&mut self) {
        self.state = ParserState::Over;
        self.verdicts.clear();
    }

    /// Whether a head is incomplete.
    #[must_use]
    pub fn is_in_head(&self) -> bool {
        matches!(&self.state, ParserState::Head(head) if !head.is_empty())
    }

    fn end(&mut self, flaw: HeadDefect) {
        self.verdicts.push_back(Err(flaw));
        self.state = ParserState::Over;
    }
}

/// The position after the empty line that ends a head, also with lines that end without CR, where lenient
/// parsers stop.
fn lenient_end(bytes: &[u8]) -> Option<usize> {
    let ends: [&[u8]; 2] = [b"\n\r\n", b"\n\n"];
    let find = |end: &[u8]| memchr::memmem::find(bytes, end).map(|at| at + end.len());
    ends.into_iter().filter_map(find).min()
}

#[cfg(test)]
#[path = "request_guard_tests.rs"]
mod tests;
