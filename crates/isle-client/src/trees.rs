//! Whole trees of a sandbox as tar archives, and what is needed to compare them.

use std::io;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::stream::BoxStream;
use hyper::Method;
use isle_trees::git::GitDirs;
use isle_trees::{Kind, ManifestEntry};
use serde::Deserialize;
use serde_json::Value;

use crate::client::Client;
use crate::connection::{pieces, whole};
use crate::error::{ClientError, Result};
use crate::files::FileBody;
use crate::route::encode;

impl Client {
    /// Reads a tree: all of it, or the paths named.
    pub async fn get_tree(
        &self,
        sandbox: &str,
        path: &str,
        only: Option<&[Vec<u8>]>,
        git_dirs: GitDirs,
    ) -> Result<FileBody> {
        let mut target = place(sandbox, "tree", path);
        if git_dirs == GitDirs::Copy {
            target.push_str("&git_dirs=copy");
        }
        let response = match only {
            None => self.stream(Method::GET, &target, &[], whole(Bytes::new())).await?,
            Some(paths) => self.stream(Method::POST, &target, &BINARY, whole(listed(paths))).await?,
        };
        Ok(FileBody::of(response))
    }

    /// Unpacks an archive; nothing is in place before all of it has come and is good.
    pub async fn put_tree(
        &self,
        sandbox: &str,
        path: &str,
        body: BoxStream<'static, io::Result<Bytes>>,
    ) -> Result<Value> {
        self.json(Method::PUT, &place(sandbox, "tree", path), &BINARY, pieces(body)).await
    }

    /// What a tree holds.
    pub async fn manifest(&self, sandbox: &str, path: &str) -> Result<Vec<ManifestEntry>> {
        let target = place(sandbox, "manifest", path);
        let response = self.stream(Method::GET, &target, &[], whole(Bytes::new())).await?;
        let mut body = FileBody::of(response);
        let (mut entries, mut rest) = (Vec::new(), Vec::new());
        while let Some(piece) = body.next().await? {
            rest.extend_from_slice(&piece);
            while let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = rest.drain(..=end).collect();
                entries.push(read_line(&line)?);
            }
        }
        Ok(entries)
    }

    /// Removes files and empty directories below a directory.
    pub async fn prune(&self, sandbox: &str, path: &str, paths: &[Vec<u8>]) -> Result<u64> {
        let target = place(sandbox, "prune", path);
        let answer = self.json(Method::POST, &target, &BINARY, whole(listed(paths))).await?;
        Ok(answer["removed"].as_u64().unwrap_or(0))
    }
}

const BINARY: [(&str, &str); 1] = [("content-type", "application/octet-stream")];

fn place(sandbox: &str, what: &str, path: &str) -> String {
    format!("/v1/sandboxes/{}/files/{what}?path={}", encode(sandbox), encode(path))
}

fn listed(paths: &[Vec<u8>]) -> Bytes {
    let mut all = Vec::new();
    for path in paths {
        all.extend_from_slice(path);
        all.push(0);
    }
    all.into()
}

fn read_line(line: &[u8]) -> Result<ManifestEntry> {
    #[derive(Deserialize)]
    struct Line {
        path: Option<String>,
        path_base64: Option<String>,
        kind: String,
        mode: u32,
        size: u64,
        sha256: Option<String>,
    }
    let line: Line = serde_json::from_slice(line).map_err(ClientError::not_understood)?;
    let path = match (line.path, line.path_base64) {
        (Some(path), _) => path.into_bytes(),
        (None, Some(text)) => STANDARD.decode(text).map_err(ClientError::not_understood)?,
        (None, None) => return Err(ClientError::not_understood("an entry has no path")),
    };
    let kind = match line.kind.as_str() {
        "file" => Kind::File,
        "directory" => Kind::Directory,
        "symlink" => Kind::Symlink,
        _ => Kind::Other,
    };
    Ok(ManifestEntry {
        path,
        kind,
        mode: line.mode,
        size: line.size,
        hash: line.sha256.as_deref().and_then(hash),
    })
}

fn hash(text: &str) -> Option<[u8; 32]> {
    let digits = text.as_bytes();
    if digits.len() != 64 || !text.is_ascii() {
        return None;
    }
    let mut bytes = [0u8; 32];
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(bytes)
}
