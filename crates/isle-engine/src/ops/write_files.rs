//! `write_files`: many files, all or nothing.

use super::Handler;
use crate::agent::FileToWrite;
use crate::context::CallContext;
use crate::engine::Engine;
use crate::failpoint;
use crate::journal::Audit;
use crate::sandbox::Sandbox;
use isle_api::Operation;
use isle_api::inputs::sandbox_or_default;
use isle_api::ops::write_files::{FileInput, Input, Output, WriteFiles, Written};
use isle_core::values::{ByteSize, GuestPath};
use isle_core::{Code, Error, Result};
use isle_fail::Point;
use isle_wire::GuestUser;
use serde_json::json;

impl Handler for WriteFiles {
    async fn call(engine: Engine, context: CallContext, input: Input) -> Result<Output> {
        if input.files.is_empty() {
            return Err(Error::new(Code::InvalidArgument, "files is empty").next("name at least one file"));
        }
        let files = checked(input.files, engine.inner.config.file_cap)?;
        let sandbox = engine.inner.sandboxes.ensure(&context, &sandbox_or_default(input.sandbox)).await?;
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
