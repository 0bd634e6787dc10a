//! HTTP/1 as the gate reads it: strictly, so that the gate and the server behind it read the same request.

pub(crate) mod body_length;
pub(crate) mod guarded_stream;
pub(crate) mod override_headers;
pub(crate) mod path_ambiguity;
pub(crate) mod request_guard;
pub(crate) mod request_head;
pub(crate) mod strict_head;
pub(crate) mod trailers;
