//! A request body without trailers that override the request line. Some servers treat trailers as headers, so
//! those that name another method, path or host are removed.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{HeaderMap, HeaderName};
use hyper::body::{Body, Frame, Incoming, SizeHint};

use crate::http::override_headers::{Override, override_of};

/// A body whose trailers are filtered.
#[derive(Debug)]
pub(crate) struct FilteredBody<B = Incoming>(pub(crate) B);

impl<B: Body<Data = Bytes> + Unpin> Body for FilteredBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        Pin::new(&mut self.0).poll_frame(context).map_ok(|frame| match frame.into_trailers() {
            Ok(trailers) => Frame::trailers(without_overrides(trailers)),
            Err(frame) => frame,
        })
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

fn without_overrides(mut trailers: HeaderMap) -> HeaderMap {
    // Host and credentials belong before the body.
    let taken = |name: &&HeaderName| {
        override_of(name.as_str()) != Override::None || ["host", "authorization"].contains(&name.as_str())
    };
    let names: Vec<HeaderName> = trailers.keys().filter(taken).cloned().collect();
    for name in names {
        trailers.remove(name);
    }
    trailers
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt, Full};

    use super::*;

    #[tokio::test]
    async fn trailers_that_override_the_request_are_removed() {
        let mut trailers = HeaderMap::new();
        for name in ["x-http-method-override", "x_original_url", "host", "x-checksum", "grpc-status"] {
            trailers.insert(HeaderName::from_static(name), "x".parse().unwrap());
        }
        let body = Full::new(Bytes::from_static(b"data")).with_trailers(async { Some(Ok(trailers)) });
        let got = FilteredBody(Box::pin(body)).collect().await.unwrap();
        let mut names: Vec<String> =
            got.trailers().unwrap().keys().map(|name| name.as_str().to_owned()).collect();
        names.sort();
        assert_eq!(names, ["grpc-status", "x-checksum"]);
        assert_eq!(got.to_bytes(), "data");
    }
}
