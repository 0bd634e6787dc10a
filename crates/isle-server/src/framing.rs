//! How a request says where it ends. One that says it in two ways means one thing to us and may mean another
//! to whatever stands in front of us, which is how a request is smuggled past it. The parser behind the line
//! takes one of the two and forgets the other, so the heads are looked at here, as they come in. After a
//! request in chunks the line is closed, so that nobody has to find the next head behind them.

/// Longer heads are refused by the parser.
const LONGEST: usize = 128 * 1024;

/// Where a line is.
#[derive(Debug)]
enum Place {
    /// In a head: what there is of it.
    Head(Vec<u8>),
    /// In a body of which this much is to come.
    Body(u64),
    /// Behind the last head that matters.
    Over,
}

/// Reads along on a line.
#[derive(Debug)]
pub(crate) struct Framing {
    place: Place,
}

impl Default for Framing {
    fn default() -> Self {
        Self { place: Place::Head(Vec::new()) }
    }
}

impl Framing {
    /// Takes what came in. Whether a request said in two ways where it ends.
    pub(crate) fn read(&mut self, mut bytes: &[u8]) -> bool {
        loop {
            match &mut self.place {
                Place::Over => return false,
                Place::Body(left) => {
                    let here = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                    *left -= here as u64;
                    bytes = &bytes[here..];
                    if *left > 0 {
                        return false;
                    }
                    self.place = Place::Head(Vec::new());
                }
                Place::Head(head) => {
                    if bytes.is_empty() {
                        return false;
                    }
                    // An end may begin in what came before.
                    let from = head.len().saturating_sub(3);
                    head.extend_from_slice(&bytes[..bytes.len().min(LONGEST)]);
                    let Some(end) = end_of_head(&head[from..]).map(|end| from + end) else {
                        if head.len() > LONGEST {
                            self.place = Place::Over;
                        }
                        return false;
                    };
                    let rest = head.len() - end;
                    bytes = &bytes[bytes.len().min(LONGEST) - rest..];
                    head.truncate(end);
                    let says = Says::in_head(head);
                    let twice = says.chunked && says.length.is_some();
                    self.place = match says {
                        Says { chunked: false, upgrade: false, length } => Place::Body(length.unwrap_or(0)),
                        _ => Place::Over,
                    };
                    if twice {
                        return true;
                    }
                }
            }
        }
    }
}

/// Behind the empty line that ends a head. Line ends without a carriage return are line ends to the parser.
fn end_of_head(bytes: &[u8]) -> Option<usize> {
    let ends: [&[u8]; 2] = [b"\n\r\n", b"\n\n"];
    let find = |end: &[u8]| bytes.windows(end.len()).position(|part| part == end).map(|at| at + end.len());
    ends.into_iter().filter_map(find).min()
}

/// What a head says about what follows it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Says {
    length: Option<u64>,
    chunked: bool,
    upgrade: bool,
}

impl Says {
    fn in_head(head: &[u8]) -> Self {
        let mut says = Self::default();
        for line in head.split(|&byte| byte == b'\n').skip(1) {
            let Some(colon) = line.iter().position(|&byte| byte == b':') else { continue };
            let (name, value) = (line[..colon].trim_ascii(), line[colon + 1..].trim_ascii());
            if name.eq_ignore_ascii_case(b"transfer-encoding") {
                says.chunked = true;
            } else if name.eq_ignore_ascii_case(b"upgrade") {
                says.upgrade = true;
            } else if name.eq_ignore_ascii_case(b"content-length") {
                // One that is no number is refused by the parser.
                let length = std::str::from_utf8(value).ok().and_then(|value| value.parse().ok());
                says.length = Some(length.unwrap_or(0));
            }
        }
        says
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: &str = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab\ncd";
    const CHUNKED: &str = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    const TWICE: [&str; 3] = [
        "POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\nX: y\r\ncontent-LENGTH: 3\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\nContent-Length: 3\nTransfer-Encoding: chunked\n\n0\r\n\r\n",
    ];

    /// Whatever the pieces in which it comes.
    fn says_twice(bytes: &[u8]) -> bool {
        let whole = Framing::default().read(bytes);
        for piece in 1..7 {
            let mut framing = Framing::default();
            let in_pieces = bytes.chunks(piece).any(|chunk| framing.read(chunk));
            assert_eq!(in_pieces, whole, "{piece}: {}", String::from_utf8_lossy(bytes));
        }
        whole
    }

    #[test]
    fn a_request_that_ends_in_two_ways_is_found_wherever_it_stands() {
        for twice in TWICE {
            assert!(says_twice(twice.as_bytes()), "{twice}");
            assert!(says_twice(format!("{PLAIN}GET / HTTP/1.1\r\n\r\n{twice}").as_bytes()), "{twice}");
        }
        assert!(!says_twice(format!("{PLAIN}{PLAIN}{CHUNKED}").as_bytes()));
    }

    #[test]
    fn what_a_body_says_is_no_head() {
        let hidden = TWICE[0];
        let body = format!("POST / HTTP/1.1\r\nContent-Length: {}\r\n\r\n{hidden}", hidden.len());
        assert!(!says_twice(format!("{body}{PLAIN}").as_bytes()));
        assert!(!says_twice(b"GET / HTTP/1.1\r\nUpgrade: websocket\r\n\r\n"));
        assert!(!Framing::default().read(&vec![b'x'; 1 << 20]));
    }
}
