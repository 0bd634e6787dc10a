//! Responses of hosts that a secret is sent to: a value that the server returns is masked before the program
//! receives it, in headers and body, which are decoded for that. A response that cannot be searched is not
//! passed on. Requests to such hosts do not accept encodings that cannot be searched.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Method, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::ext::ReasonPhrase;
use tokio::time::Sleep;

use crate::masking::content_decoder::{ACCEPTED, Decoder};
use crate::masking::mask_stream::{MaskStream, masked};
use crate::masking::secret_finder::SecretFinder;
use crate::policy::denial::{Denial, Reason};
use crate::policy::host::Target;
use crate::secret_substitution::{ReflectedIn, Reflection, SecretSource};

/// How long the last bytes of a body are delayed while nothing follows.
const HOLD_BACK: Duration = Duration::from_millis(50);

/// Request headers that lead to partial responses, or to ones that cannot be searched.
const NOT_ASKED: [&str; 8] = [
    "a-im",
    "accept-charset",
    "available-dictionary",
    "connect-accept-encoding",
    "grpc-accept-encoding",
    "if-range",
    "range",
    "sec-websocket-extensions",
];
/// Headers that give the encoding of messages within a body.
const OF_MESSAGES: [&str; 2] = ["connect-content-encoding", "grpc-encoding"];
/// Response headers that describe the encoded bytes.
const OF_ENCODING: [&str; 7] = [
    "accept-ranges",
    "content-digest",
    "content-encoding",
    "content-length",
    "content-md5",
    "digest",
    "repr-digest",
];

/// Changes a request so that the response is complete and can be searched.
pub(crate) fn request_readable_response(parts: &mut Parts) {
    let headers = &mut parts.headers;
    for name in NOT_ASKED {
        headers.remove(name);
    }
    let trailers = words(headers, &header::TE).iter().any(|word| word == "trailers");
    if headers.remove(header::TE).is_some() && trailers {
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
    }
    if headers.contains_key(header::ACCEPT_ENCODING) {
        let wanted = words(headers, &header::ACCEPT_ENCODING);
        let readable = |word: &&String| {
            let name = word.split(';').next().unwrap_or_default().trim();
            ACCEPTED.contains(&name) || name == "identity"
        };
        let kept: Vec<&str> = wanted.iter().filter(readable).map(String::as_str).collect();
        let kept = if kept.is_empty() { "identity".to_owned() } else { kept.join(", ") };
        let kept = HeaderValue::from_str(&kept).unwrap_or(HeaderValue::from_static("identity"));
        headers.insert(header::ACCEPT_ENCODING, kept);
    }
}

/// The items of a list header in lower case.
fn words(headers: &HeaderMap, name: &HeaderName) -> Vec<String> {
    let values = headers.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes()));
    values
        .flat_map(|value| value.split(',').map(|word| word.trim().to_ascii_lowercase()).collect::<Vec<_>>())
        .filter(|word| !word.is_empty())
        .collect()
}

/// Masks the responses of one host.
#[derive(Debug, Clone)]
pub(crate) struct ResponseMasker {
    pub(crate) finder: Arc<SecretFinder>,
    pub(crate) secrets: Arc<dyn SecretSource>,
    pub(crate) target: Target,
}

impl ResponseMasker {
    /// Reports values that were found.
    pub(crate) fn report(&self, secrets: Vec<String>, part: ReflectedIn) {
        for secret in secrets {
            self.secrets.secret_reflected(&Reflection { secret, target: self.target.to_string(), part });
        }
    }

    /// The masked response, or why it cannot be passed on.
    pub(crate) fn mask(
        &self,
        response: Response<Incoming>,
        asked: &Method,
    ) -> Result<Response<MaskedBody>, Denial> {
        let (mut parts, body) = response.into_parts();
        if words(&parts.headers, &header::TRANSFER_ENCODING).iter().any(|word| word != "chunked") {
            return Err(self.unreadable("Transfer-Encoding"));
        }
        for name in OF_MESSAGES {
            let name = HeaderName::from_static(name);
            if words(&parts.headers, &name).iter().any(|word| word != "identity") {
                return Err(self.unreadable(name.as_str()));
            }
        }
        let has_body = *asked != Method::HEAD
            && ![StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED, StatusCode::SWITCHING_PROTOCOLS]
                .contains(&parts.status);
        let encodings = words(&parts.headers, &header::CONTENT_ENCODING).join(",");
        let decoder = match Decoder::for_encodings(&encodings) {
            Some(decoder) => decoder,
            None if !has_body => Decoder::identity(),
            None => return Err(self.unreadable(&format!("Content-Encoding: {encodings}"))),
        };
        if !decoder.is_identity() {
            OF_ENCODING.iter().for_each(|name| drop(parts.headers.remove(*name)));
            weaken(&mut parts.headers);
        }
        self.mask_fields(&mut parts.headers);
        let reason =
            parts.extensions.get::<ReasonPhrase>().and_then(|reason| masked(&self.finder, reason.as_bytes()));
        if let Some((_, names)) = reason {
            parts.extensions.remove::<ReasonPhrase>();
            self.report(names, ReflectedIn::Header);
        }
        let body = MaskedBody {
            inner: body,
            input: Bytes::new(),
            decoder,
            stream: MaskStream::new(Arc::clone(&self.finder)),
            reflections: self.clone(),
            waiting: None,
            state: State::Open,
        };
        Ok(Response::from_parts(parts, body))
    }

    fn unreadable(&self, what: &str) -> Denial {
        Denial::of(&self.target, Reason::UnreadableResponse).detail(what.to_owned())
    }

    /// Masks headers; one whose name contains a value is removed.
    fn mask_fields(&self, headers: &mut HeaderMap) {
        let mut found = Vec::new();
        let named: Vec<(HeaderName, Vec<String>)> = headers
            .keys()
            .filter_map(|name| Some((name.clone(), masked(&self.finder, name.as_str().as_bytes())?.1)))
            .collect();
        for (name, names) in named {
            headers.remove(name);
            found.extend(names);
        }
        for value in headers.values_mut() {
            if let Some((bytes, names)) = masked(&self.finder, value.as_bytes()) {
                *value = HeaderValue::from_bytes(&bytes).unwrap_or(HeaderValue::from_static("*"));
                found.extend(names);
            }
        }
        found.sort_unstable();
        found.dedup();
        self.report(found, ReflectedIn::Header);
    }
}

/// Makes the ETag weak, because the bytes differ from those the server sent.
fn weaken(headers: &mut HeaderMap) {
    let Some(tag) = headers.get(header::ETAG).filter(|tag| !tag.as_bytes().starts_with(b"W/")) else {
        return;
    };
    match HeaderValue::from_bytes(&[b"W/", tag.as_bytes()].concat()) {
        Ok(weak) => drop(headers.insert(header::ETAG, weak)),
        Err(_) => drop(headers.remove(header::ETAG)),
    }
}

/// The state of a body.
enum State {
    Open,
    /// The last bytes, then optional trailers.
    Ending(Option<HeaderMap>),
    Over,
}

/// A masked body.
pub(crate) struct MaskedBody {
    inner: Incoming,
    /// Received bytes that are still encoded.
    input: Bytes,
    decoder: Decoder,
    stream: MaskStream,
    reflections: ResponseMasker,
    /// The timer while bytes are delayed.
    waiting: Option<Pin<Box<Sleep>>>,
    state: State,
}

impl fmt::Debug for MaskedBody {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("MaskedBody").field("decoder", &self.decoder).finish_non_exhaustive()
    }
}

impl MaskedBody {
    /// Masks decoded bytes.
    fn pass(&mut self, bytes: Bytes) -> Bytes {
        let out = self.stream.push(bytes);
        self.report_found();
        out
    }

    fn report_found(&mut self) {
        let found = self.stream.take_found();
        if !found.is_empty() {
            self.reflections.report(found, ReflectedIn::Body);
        }
    }

    /// The last bytes.
    fn finish(&mut self) -> io::Result<Bytes> {
        let rest = self.decoder.finish()?;
        let passed = self.stream.push(rest);
        let last = self.stream.finish();
        self.report_found();
        Ok(if passed.is_empty() { last } else { [passed, last].concat().into() })
    }

    /// Whether bytes were held back long enough.
    fn waited(&mut self, context: &mut Context<'_>) -> bool {
        if self.stream.held() == 0 {
            self.waiting = None;
            return false;
        }
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(tokio::time::sleep(HOLD_BACK)));
        let over = waiting.as_mut().poll(context).is_ready();
        if over {
            self.waiting = None;
        }
        over
    }
}

impl Body for MaskedBody {
    type Data = Bytes;
    type Error = Box<dyn StdError + Send + Sync>;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = self.get_mut();
        loop {
            while !this.input.is_empty() {
                let decoded = match this.decoder.step(&mut this.input) {
                    Ok(decoded) => decoded,
                    Err(error) => {
                        this.state = State::Over;
                        return Poll::Ready(Some(Err(error.into())));
                    }
                };
                let out = this.pass(decoded);
                if !out.is_empty() {
                    return Poll::Ready(Some(Ok(Frame::data(out))));
                }
            }
            match std::mem::replace(&mut this.state, State::Over) {
                State::Over => return Poll::Ready(None),
                State::Ending(trailers) => {
                    return Poll::Ready(trailers.map(|mut trailers| {
                        this.reflections.mask_fields(&mut trailers);
                        Ok(Frame::trailers(trailers))
                    }));
                }
                State::Open => {}
            }
            let trailers = match Pin::new(&mut this.inner).poll_frame(context) {
                Poll::Pending => {
                    this.state = State::Open;
                    if this.waited(context) {
                        return Poll::Ready(Some(Ok(Frame::data(this.stream.release()))));
                    }
                    return Poll::Pending;
                }
                // Held back bytes of a truncated body are never passed on.
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error.into()))),
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => {
                        this.waiting = None;
                        this.state = State::Open;
                        this.input = data;
                        continue;
                    }
                    Err(frame) => frame.into_trailers().ok(),
                },
                Poll::Ready(None) => None,
            };
            let last = match this.finish() {
                Ok(last) => last,
                Err(error) => return Poll::Ready(Some(Err(error.into()))),
            };
            this.state = State::Ending(trailers);
            if !last.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(last))));
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.state {
            State::Open => {
                self.inner.is_end_stream()
                    && self.input.is_empty()
                    && self.stream.held() == 0
                    && self.decoder.is_settled()
            }
            State::Ending(trailers) => trailers.is_none(),
            State::Over => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        if self.decoder.is_identity()
            && matches!(self.state, State::Open)
            && self.stream.held() == 0
            && self.input.is_empty()
        {
            return self.inner.size_hint();
        }
        SizeHint::default()
    }
}
