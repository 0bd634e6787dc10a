//! The head of an intercepted request: its host is checked, hop-by-hop headers are removed, and its URI is
//! rewritten for the server.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::uri::{Authority as UriAuthority, PathAndQuery, Scheme, Uri};
use http::{Method, Version};

use crate::http::request_head::is_target;
use crate::policy::denial::{Denial, Reason};
use crate::tls::certificate_authority::HttpVersion;
use crate::tls_intercept::connection::InterceptedConnection;
use crate::tls_intercept::upstream::UpstreamError;

impl InterceptedConnection {
    /// Checks that a request names the granted host and no other, in its URI and in its Host header.
    pub(super) fn check_host(&self, parts: &Parts) -> Result<(), Denial> {
        let target = &self.outside.target;
        let wrong = |detail: &str| Err(Denial::of(target, Reason::WrongHostHeader).detail(detail.to_owned()));
        if parts.method == Method::CONNECT {
            return wrong("CONNECT");
        }
        let mut named = 0;
        if let Some(authority) = parts.uri.authority() {
            if is_target(authority.as_str(), target).is_err() {
                return wrong(authority.as_str());
            }
            named += 1;
        }
        let mut fields = parts.headers.get_all(header::HOST).iter();
        if let Some(field) = fields.next() {
            let text = field.to_str().unwrap_or_default();
            if is_target(text, target).is_err() || fields.next().is_some() {
                return wrong(text);
            }
            named += 1;
        }
        let needed = match parts.version {
            Version::HTTP_2 => parts.uri.authority().is_some(),
            _ => parts.headers.contains_key(header::HOST),
        };
        if named == 0 || !needed { wrong("none") } else { Ok(()) }
    }

    /// Removes hop-by-hop headers; returns whether the connection may be upgraded to WebSocket.
    pub(super) fn remove_hop_by_hop_headers(&self, parts: &mut Parts) -> bool {
        let headers = &mut parts.headers;
        if self.http_version == HttpVersion::Http2 {
            headers.remove(header::HOST);
            return false;
        }
        let words = |name: &HeaderName, headers: &HeaderMap| -> Vec<String> {
            let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
            values.flat_map(|value| value.split(',')).map(|word| word.trim().to_ascii_lowercase()).collect()
        };
        let connection = words(&header::CONNECTION, headers);
        let upgrades = connection.iter().any(|word| word == "upgrade")
            && words(&header::UPGRADE, headers) == ["websocket"];
        for word in &connection {
            // Headers that define the request cannot be declared hop-by-hop.
            let kept = ["upgrade", "te", "host", "authorization", "content-length", "transfer-encoding"];
            if !kept.contains(&word.as_str()) {
                headers.remove(word.as_str());
            }
        }
        for name in ["connection", "keep-alive", "proxy-connection", "proxy-authorization", "http2-settings"]
        {
            headers.remove(name);
        }
        if upgrades {
            headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        } else {
            headers.remove(header::UPGRADE);
        }
        // The transfer encoding determines where the body ends; a length beside it is ignored.
        if headers.contains_key(header::TRANSFER_ENCODING) {
            headers.remove(header::CONTENT_LENGTH);
        }
        parts.version = Version::HTTP_11;
        upgrades
    }

    /// The URI in the form that the server expects.
    pub(super) fn upstream_uri(&self, uri: &Uri) -> Result<Uri, UpstreamError> {
        let unusable = |_| UpstreamError::Failed("the request has no valid URI".into());
        let path = uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
        let mut parts = http::uri::Parts::default();
        if self.http_version == HttpVersion::Http2 {
            let target = &self.outside.target;
            let text = if target.port == 443 { target.host.to_string() } else { target.to_string() };
            parts.scheme = Some(Scheme::HTTPS);
            parts.authority = Some(
                UriAuthority::try_from(text)
                    .map_err(|_| UpstreamError::Failed("the request has no valid URI".into()))?,
            );
        }
        parts.path_and_query = Some(path);
        Uri::from_parts(parts).map_err(unusable)
    }
}
