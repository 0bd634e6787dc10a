//! Files of a sandbox, read and written as streams.

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use isle_wire::{
    Frame, FrameError, GuestUser, ListRequest, Listing, ReadRequest, RemoveRequest, Reply, Request, Stat,
    WriteHeader, WriteRequest, read_frame, write_frame, write_message,
};
use tokio::io::AsyncWrite;

use super::{
    AgentClient, AgentStream, answer, broken, file_error, frame_name, gone, path_request, unexpected,
};
use isle_core::values::GuestPath;
use isle_core::{Error, Result};

/// Largest piece of a file in one frame.
const PIECE: usize = 256 * 1024;

/// Whether a file that is there keeps its permission bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeepMode {
    Yes,
    No,
}

/// One file of a write; its contents may still be on their way.
pub(crate) struct FileToWrite {
    /// Where.
    pub(crate) path: GuestPath,
    /// Permission bits.
    pub(crate) mode: u32,
    /// Append instead of replacing.
    pub(crate) append: bool,
    /// What becomes of the permission bits of a file that is there.
    pub(crate) keep_mode: KeepMode,
    /// What.
    pub(crate) body: BoxStream<'static, Result<Bytes>>,
}

impl FileToWrite {
    /// A file whose contents are at hand.
    pub(crate) fn whole(path: GuestPath, mode: Option<u32>, append: bool, contents: Bytes) -> Self {
        let keep_mode = if mode.is_none() { KeepMode::Yes } else { KeepMode::No };
        let mode = mode.unwrap_or(0o644);
        Self { path, mode, append, keep_mode, body: stream::once(async move { Ok(contents) }).boxed() }
    }
}

impl AgentClient {
    /// Reads a file from `offset`, at most `limit` bytes.
    pub(crate) async fn read_file(
        &self,
        path: &GuestPath,
        user: GuestUser,
        offset: u64,
        limit: Option<u64>,
    ) -> Result<(Stat, BoxStream<'static, Result<Bytes>>)> {
        let request = Request::ReadFile(ReadRequest { at: path_request(path, user), offset, limit });
        let mut stream = self.request(&request).await?;
        let stat = match answer(&mut stream).await? {
            Reply::Stat(stat) => stat,
            Reply::Failed(failure) => return Err(file_error(&failure, path.as_str())),
            other => return Err(unexpected(&other)),
        };
        Ok((stat, contents(stream)))
    }

    /// Writes files, all or none; returns their sizes.
    pub(crate) async fn write_files(&self, user: GuestUser, files: Vec<FileToWrite>) -> Result<Vec<u64>> {
        let names: Vec<String> = files.iter().map(|file| file.path.to_string()).collect();
        let stream = self.request(&Request::WriteFiles(WriteRequest { user })).await?;
        let (mut reader, mut writer) = tokio::io::split(stream);
        let sending = send_files(&mut writer, user, files);
        let answering = read_frame(&mut reader);
        tokio::pin!(sending, answering);
        // The agent may refuse before it has seen everything; its answer counts more than a
        // write that broke because of it.
        let frame = tokio::select! {
            frame = &mut answering => frame,
            sent = &mut sending => {
                if let Err(SendError::Source(error)) = sent {
                    return Err(error);
                }
                answering.await
            }
        };
        match frame.map_err(broken)?.ok_or_else(gone)?.decode().map_err(broken)? {
            Reply::Written(sizes) => Ok(sizes),
            Reply::Failed(failure) => {
                let named = names.iter().find(|name| failure.doing.contains(name.as_str()));
                Err(file_error(&failure, named.or(names.first()).map_or("the file", String::as_str)))
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Facts about a file.
    pub(crate) async fn stat(&self, path: &GuestPath, user: GuestUser) -> Result<Stat> {
        match self.ask(&Request::Stat(path_request(path, user))).await? {
            Reply::Stat(stat) => Ok(stat),
            Reply::Failed(failure) => Err(file_error(&failure, path.as_str())),
            other => Err(unexpected(&other)),
        }
    }

    /// Entries of a directory.
    pub(crate) async fn list(
        &self,
        path: &GuestPath,
        user: GuestUser,
        depth: u32,
        limit: u32,
        glob: Option<String>,
    ) -> Result<Listing> {
        let request = Request::List(ListRequest { at: path_request(path, user), depth, limit, glob });
        match self.ask(&request).await? {
            Reply::Listing(listing) => Ok(listing),
            Reply::Failed(failure) => Err(file_error(&failure, path.as_str())),
            other => Err(unexpected(&other)),
        }
    }

    /// Removes a file, or a tree when `recursive`.
    pub(crate) async fn remove(&self, path: &GuestPath, user: GuestUser, recursive: bool) -> Result<()> {
        let request = RemoveRequest { at: path_request(path, user), recursive, contents: false };
        self.remove_as_said(path, request).await
    }

    /// Removes all that a directory contains.
    pub(crate) async fn empty(&self, path: &GuestPath, user: GuestUser) -> Result<()> {
        let request = RemoveRequest { at: path_request(path, user), recursive: true, contents: true };
        self.remove_as_said(path, request).await
    }

    async fn remove_as_said(&self, path: &GuestPath, request: RemoveRequest) -> Result<()> {
        match self.ask(&Request::Remove(request)).await? {
            Reply::Done => Ok(()),
            Reply::Failed(failure) => Err(file_error(&failure, path.as_str())),
            other => Err(unexpected(&other)),
        }
    }
}

fn contents(stream: AgentStream) -> BoxStream<'static, Result<Bytes>> {
    stream::try_unfold(stream, |mut stream| async move {
        match read_frame(&mut stream).await.map_err(broken)?.ok_or_else(gone)? {
            Frame::Data(bytes) => Ok(Some((bytes, stream))),
            Frame::End => Ok(None),
            // The only message that may come here says why the rest cannot.
            frame @ Frame::Message(_) => match frame.decode().map_err(broken)? {
                Reply::Failed(failure) => Err(file_error(&failure, "the file")),
                other => Err(unexpected(&other)),
            },
            other => Err(Error::internal(format!("the agent sent {} amid a file", frame_name(&other)))),
        }
    })
    .boxed()
}

enum SendError {
    /// The caller's bytes did not come.
    Source(Error),
    /// The stream to the agent broke.
    Sink,
}

impl From<FrameError> for SendError {
    fn from(_: FrameError) -> Self {
        Self::Sink
    }
}

async fn send_files<W: AsyncWrite + Unpin>(
    writer: &mut W,
    user: GuestUser,
    files: Vec<FileToWrite>,
) -> Result<(), SendError> {
    for mut file in files {
        let header = WriteHeader {
            at: path_request(&file.path, user),
            mode: file.mode,
            append: file.append,
            keep_mode: file.keep_mode == KeepMode::Yes,
        };
        write_message(writer, &header).await?;
        while let Some(bytes) = file.body.next().await {
            let mut bytes = bytes.map_err(SendError::Source)?;
            while !bytes.is_empty() {
                let piece = bytes.split_to(bytes.len().min(PIECE));
                write_frame(writer, &Frame::Data(piece)).await?;
            }
        }
    }
    write_frame(writer, &Frame::End).await?;
    Ok(())
}
