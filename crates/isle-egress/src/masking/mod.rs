//! Masking of secret values in what a sandbox receives: response headers, bodies and WebSocket messages.

pub(crate) mod content_decoder;
pub(crate) mod encodings;
pub(crate) mod mask_stream;
pub(crate) mod response;
pub(crate) mod secret_finder;
pub(crate) mod websocket;
