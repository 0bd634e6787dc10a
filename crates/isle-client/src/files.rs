//! Files of a sandbox as streams of bytes, of any size.

use std::io;

use bytes::Bytes;
use futures::stream::BoxStream;
use http_body_util::BodyExt;
use hyper::Method;
use hyper::body::Incoming;
use serde_json::Value;

use crate::client::Client;
use crate::connection::{pieces, whole};
use crate::error::{ClientError, Result};
use crate::route::encode;

/// Permission bits of a file, such as `0o644`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileMode(pub u32);

/// The content of a file, piece by piece.
#[derive(Debug)]
pub struct FileBody {
    /// Permission bits, where the daemon says them.
    pub mode: Option<FileMode>,
    /// Bytes in all, where the daemon says them.
    pub size: Option<u64>,
    body: Incoming,
}

impl FileBody {
    pub(crate) fn of(response: hyper::Response<Incoming>) -> Self {
        let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
        let mode = header("isle-mode").and_then(|text| u32::from_str_radix(text, 8).ok()).map(FileMode);
        let size = header("content-length").and_then(|text| text.parse().ok());
        Self { mode, size, body: response.into_body() }
    }

    /// The next piece; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>> {
        while let Some(frame) = self.body.frame().await {
            let frame = frame.map_err(ClientError::interrupted)?;
            if let Ok(data) = frame.into_data() {
                return Ok(Some(data));
            }
        }
        Ok(None)
    }
}

impl Client {
    /// Reads a file.
    pub async fn get_file(&self, sandbox: &str, path: &str) -> Result<FileBody> {
        let target = content_path(sandbox, path);
        let response = self.stream(Method::GET, &target, &[], whole(Bytes::new())).await?;
        Ok(FileBody::of(response))
    }

    /// Writes a file; nothing is visible in the sandbox until all of it arrived.
    pub async fn put_file(
        &self,
        sandbox: &str,
        path: &str,
        mode: FileMode,
        body: BoxStream<'static, io::Result<Bytes>>,
    ) -> Result<Value> {
        let target = format!("{}&mode={:o}", content_path(sandbox, path), mode.0);
        let headers = [("content-type", "application/octet-stream")];
        self.json(Method::PUT, &target, &headers, pieces(body)).await
    }
}

fn content_path(sandbox: &str, path: &str) -> String {
    format!("/v1/sandboxes/{}/files/content?path={}", encode(sandbox), encode(path))
}
