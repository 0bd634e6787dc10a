//! `write_files`: many files, all or nothing.

use crate::inputs::{User, files};
use crate::{Effect, Method, Operation, Route, Toolset};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use isle_core::values::{GuestPath, SandboxName};
use isle_core::{Code, Error, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The operation `write_files`.
#[derive(Debug)]
pub struct WriteFiles;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Input {
    pub sandbox: Option<SandboxName>,
    #[serde(deserialize_with = "files")]
    pub files: Vec<FileInput>,
    pub user: Option<User>,
}

/// One file to write.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub struct FileInput {
    /// Relative to /workspace, or absolute. Parents are made.
    pub path: GuestPath,
    pub content: String,
    /// Default utf8.
    pub encoding: Option<Encoding>,
    /// Octal, such as "755".
    pub mode: Option<String>,
    pub append: Option<bool>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum Encoding {
    #[default]
    Utf8,
    Base64,
}

impl From<(GuestPath, String)> for FileInput {
    fn from((path, content): (GuestPath, String)) -> Self {
        Self { path, content, encoding: None, mode: None, append: None }
    }
}

impl FileInput {
    /// What the file is to hold.
    pub fn contents(self) -> Result<Bytes> {
        match self.encoding.unwrap_or_default() {
            Encoding::Utf8 => Ok(self.content.into_bytes().into()),
            Encoding::Base64 => STANDARD.decode(self.content.trim()).map(Bytes::from).map_err(|error| {
                Error::new(
                    Code::InvalidArgument,
                    format!("{}: the content is not base64: {error}", self.path),
                )
                .next("encode it with the standard alphabet and padding, or use encoding utf8")
            }),
        }
    }

    pub fn mode(&self) -> Result<Option<u32>> {
        let Some(text) = &self.mode else { return Ok(None) };
        let digits = text.strip_prefix("0o").unwrap_or(text);
        u32::from_str_radix(digits, 8).ok().filter(|mode| *mode <= 0o777).map(Some).ok_or_else(|| {
            Error::new(Code::InvalidArgument, format!("{}: {text:?} is not a mode", self.path))
                .next("write it in octal, such as \"644\" or \"755\"")
        })
    }
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Output {
    pub written: Vec<Written>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct Written {
    pub path: GuestPath,
    pub size: u64,
}

impl Operation for WriteFiles {
    type Input = Input;
    type Output = Output;
    const NAME: &'static str = "write_files";
    const TITLE: &'static str = "Write files";
    const DESCRIPTION: &'static str = "Write one or many files in a sandbox: all of them, or none.";
    const ROUTE: Route = Route { method: Method::Post, path: "/sandboxes/{sandbox}/files/write" };
    const TOOLSET: Toolset = Toolset::Core;
    const EFFECT: Effect = Effect::Changes;
}
