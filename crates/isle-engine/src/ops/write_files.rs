//! `write_files`: many files, all or nothing.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use isle_fail::Point;
use isle_wire::GuestUser;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::inputs::{User, files, sandbox_or_default};
use super::{Effect, Method, Operation, Route, Toolset};
use crate::agent::FileToWrite;
use crate::context::CallContext;
use crate::engine::Engine;
use crate::error::{Code, Error, Result};
use crate::failpoint;
use crate::journal::Audit;
use crate::sandbox::Sandbox;
use crate::values::{ByteSize, GuestPath, SandboxName};

pub(super) struct WriteFiles;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Input {
    sandbox: Option<SandboxName>,
    #[serde(deserialize_with = "files")]
    files: Vec<FileInput>,
    user: Option<User>,
}

/// One file to write.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub(super) struct FileInput {
    /// Relative to /workspace, or absolute. Parents are made.
    pub(super) path: GuestPath,
    content: String,
    /// Default utf8.
    encoding: Option<Encoding>,
    /// Octal, such as "755".
    mode: Option<String>,
    append: Option<bool>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum Encoding {
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
    pub(super) fn contents(self) -> Result<Bytes> {
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

    fn mode(&self) -> Result<Option<u32>> {
        let Some(text) = &self.mode else { return Ok(None) };
        let digits = text.strip_prefix("0o").unwrap_or(text);
        u32::from_str_radix(digits, 8).ok().filter(|mode| *mode <= 0o777).map(Some).ok_or_else(|| {
            Error::new(Code::InvalidArgument, format!("{}: {text:?} is not a mode", self.path))
                .next("write it in octal, such as \"644\" or \"755\"")
        })
    }
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Output {
    written: Vec<Written>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub(super) struct Written {
    path: GuestPath,
    size: u64,
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

    async fn call(engine: Engine, context: CallContext, input: Input) -> Result<Output> {
        if input.files.is_empty() {
            return Err(Error::new(Code::InvalidArgument, "files is empty").next("name at least one file"));
        }
        let files = checked(input.files, engine.inner.config.file_cap)?;
        let sandbox = engine.inner.ensure(&context, &sandbox_or_default(input.sandbox)).await?;
        let user = input.user.unwrap_or_default().into();
        let written = write(&engine, &context, &sandbox, user, files).await?;
        Ok(Output { written })
    }
}

/// Files as the agent takes them, each once and not too much together.
pub(super) fn checked(files: Vec<FileInput>, cap: ByteSize) -> Result<Vec<(GuestPath, FileToWrite)>> {
    let mut to_write: Vec<(GuestPath, FileToWrite)> = Vec::with_capacity(files.len());
    let mut total = 0;
    for file in files {
        let (path, mode, append) = (file.path.clone(), file.mode()?, file.append.unwrap_or(false));
        if to_write.iter().any(|(other, _)| *other == path) {
            return Err(Error::new(Code::InvalidArgument, format!("{path} is given twice"))
                .next("give every file once"));
        }
        let contents = file.contents()?;
        total += contents.len() as u64;
        to_write.push((path.clone(), FileToWrite::whole(path, mode, append, contents)));
    }
    if total > cap.0 {
        return Err(Error::new(Code::TooLarge, format!("the files hold {total} bytes, more than {cap}"))
            .next("write them in several calls, or use the streaming file route or `isle cp`"));
    }
    Ok(to_write)
}

/// Writes them and puts that on record.
pub(super) async fn write(
    engine: &Engine,
    context: &CallContext,
    sandbox: &Sandbox,
    user: GuestUser,
    files: Vec<(GuestPath, FileToWrite)>,
) -> Result<Vec<Written>> {
    let (paths, to_write): (Vec<_>, Vec<_>) = files.into_iter().unzip();
    let sizes = sandbox.agent()?.write_files(user, to_write).await?;
    failpoint(Point::WriteDone)?;
    let written: Vec<Written> =
        paths.into_iter().zip(sizes).map(|(path, size)| Written { path, size }).collect();
    let audit = Audit::files(context, WriteFiles::NAME, sandbox, json!({ "files": written }));
    engine.inner.journal.audit(&audit).map_err(|error| error.unrecorded("the files were written"))?;
    isle_fail::pass(Point::WriteAudited);
    Ok(written)
}
