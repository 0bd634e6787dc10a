//! Files of a sandbox beyond reading and writing one: edited, moved, searched, watched, and whole
//! trees carried in either direction.

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use isle_trees::{Kind, ManifestEntry};
use isle_wire::{
    ArchiveRefused, Carried, EditRequest, Edited, FileKind, Frame, GuestUser, ManifestPart, ManifestRequest,
    Matches, MoveRequest, PackRequest, PruneRequest, Reply, Request, SearchRequest, UnpackRequest,
    WatchBatch, WatchRequest, read_frame, write_frame,
};
use tokio::io::AsyncWrite;

use super::{
    AgentClient, AgentStream, answer, broken, file_error, frame_name, gone, path_request, unexpected,
};
use isle_core::values::{ByteSize, GuestPath};
use isle_core::{Code, Error, Result};

/// Largest piece in one frame.
const PIECE: usize = 256 * 1024;

/// A tree on its way out.
pub(crate) struct PackedTree {
    stream: AgentStream,
    path: String,
}

impl PackedTree {
    /// The next bytes of the archive; `None` after its end. What was left out is said in the archive.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>> {
        loop {
            match read_frame(&mut self.stream).await.map_err(broken)?.ok_or_else(gone)? {
                Frame::Data(bytes) => return Ok(Some(bytes)),
                Frame::End => return Ok(None),
                frame @ Frame::Message(_) => match frame.decode().map_err(broken)? {
                    Reply::Carried(_) => {}
                    Reply::Failed(failure) => return Err(file_error(&failure, &self.path)),
                    other => return Err(unexpected(&other)),
                },
                other => {
                    return Err(Error::internal(format!(
                        "the agent sent {} amid a tree",
                        frame_name(&other)
                    )));
                }
            }
        }
    }
}

impl AgentClient {
    /// Replaces text in a file.
    pub(crate) async fn edit(&self, path: &GuestPath, request: EditRequest) -> Result<Edited> {
        let edits = request.edits.clone();
        match self.ask(&Request::Edit(request)).await? {
            Reply::Edited(edited) => Ok(edited),
            Reply::Failed(failure) => Err(file_error(&failure, path.as_str())),
            Reply::EditRefused(refused) => {
                let index = usize::try_from(refused.index).unwrap_or(0);
                let old = edits.get(index).map(|edit| String::from_utf8_lossy(&edit.old).into_owned());
                let old: String = old.unwrap_or_default().chars().take(200).collect();
                let error = if refused.found == 0 {
                    Error::new(
                        Code::TextNotFound,
                        format!("{path} does not contain the text of edit {index}"),
                    )
                    .next("read the file and give the text exactly as it stands there, spaces included")
                } else {
                    let times = refused.found;
                    Error::new(
                        Code::TextNotUnique,
                        format!("{path} contains the text of edit {index} {times} times"),
                    )
                    .detail("lines", refused.lines)
                    .next("give more of the text around it, or set replace_all")
                };
                Err(error.detail("edit", refused.index).detail("old", old).detail("found", refused.found))
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Moves a file or directory.
    pub(crate) async fn relocate(
        &self,
        from: &GuestPath,
        to: &GuestPath,
        user: GuestUser,
        replace: bool,
    ) -> Result<()> {
        let request = MoveRequest { from: path_request(from, user), to: path_request(to, user), replace };
        match self.ask(&Request::Move(Box::new(request))).await? {
            Reply::Done => Ok(()),
            Reply::Failed(failure) => {
                use isle_wire::FailureKind::{Exists, IsDirectory, NotDirectory, NotEmpty};
                let about_target = matches!(failure.kind, Exists | IsDirectory | NotDirectory | NotEmpty);
                let error = file_error(&failure, if about_target { to.as_str() } else { from.as_str() });
                Err(match failure.kind {
                    NotEmpty => {
                        Error::new(Code::FileExists, format!("{to} is a directory that is not empty"))
                            .next("remove it first, or choose another place")
                    }
                    IsDirectory => Error::new(Code::IsDirectory, format!("{to} is a directory"))
                        .next("name the place itself, such as the directory and the file's name"),
                    _ => error,
                })
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Searches files.
    pub(crate) async fn search(&self, path: &GuestPath, request: SearchRequest) -> Result<Matches> {
        match self.ask(&Request::Search(request)).await? {
            Reply::Matches(matches) => Ok(matches),
            Reply::Failed(failure) => Err(file_error(&failure, path.as_str())),
            other => Err(unexpected(&other)),
        }
    }

    /// Tells what happens to files; the stream ends when they are gone, or breaks with the sandbox.
    pub(crate) async fn watch(
        &self,
        path: &GuestPath,
        user: GuestUser,
        recursive: bool,
    ) -> Result<BoxStream<'static, Result<WatchBatch>>> {
        let request = Request::Watch(WatchRequest { at: path_request(path, user), recursive });
        let mut stream = self.request(&request).await?;
        match answer(&mut stream).await? {
            Reply::Done => {}
            Reply::Failed(failure) => return Err(file_error(&failure, path.as_str())),
            other => return Err(unexpected(&other)),
        }
        // From here on it says something only when something happens.
        stream.may_be_quiet();
        Ok(stream::try_unfold(stream, |mut stream| async move {
            match read_frame(&mut stream).await.map_err(broken)? {
                None => Ok(None),
                Some(frame) => Ok(Some((frame.decode().map_err(broken)?, stream))),
            }
        })
        .boxed())
    }

    /// Starts sending a tree out, all of it or only the paths named.
    pub(crate) async fn pack(
        &self,
        path: &GuestPath,
        user: GuestUser,
        only: Option<Vec<Vec<u8>>>,
        hollow: u64,
    ) -> Result<PackedTree> {
        let at = path_request(path, user);
        let mut stream =
            self.request(&Request::Pack(PackRequest { at, listed: only.is_some(), hollow })).await?;
        if let Some(paths) = only {
            send_names(&mut stream, &paths).await?;
        }
        match answer(&mut stream).await? {
            Reply::Stat(_) => Ok(PackedTree { stream, path: path.to_string() }),
            Reply::Failed(failure) => Err(file_error(&failure, path.as_str())),
            other => Err(unexpected(&other)),
        }
    }

    /// Unpacks an archive as it comes; nothing is in place before all of it has come and is good.
    pub(crate) async fn unpack(
        &self,
        path: &GuestPath,
        user: GuestUser,
        entries: u64,
        bytes: u64,
        body: BoxStream<'static, Result<Bytes>>,
    ) -> Result<Carried> {
        let request = Request::Unpack(UnpackRequest { at: path_request(path, user), entries, bytes });
        let stream = self.request(&request).await?;
        let (mut reader, mut writer) = tokio::io::split(stream);
        let sending = send_body(&mut writer, body);
        let answering = read_frame(&mut reader);
        tokio::pin!(sending, answering);
        let frame = tokio::select! {
            frame = &mut answering => frame,
            sent = &mut sending => {
                // The caller's bytes did not come: the stream is dropped, and all is undone.
                sent?;
                answering.await
            }
        };
        match frame.map_err(broken)?.ok_or_else(gone)?.decode().map_err(broken)? {
            Reply::Carried(carried) => Ok(carried),
            Reply::Failed(failure) => Err(unpack_error(&failure, path)),
            Reply::ArchiveRefused(refused) => Err(archive_error(&refused)),
            other => Err(unexpected(&other)),
        }
    }

    /// What a tree holds, with the hash of every file.
    pub(crate) async fn manifest(
        &self,
        path: &GuestPath,
        user: GuestUser,
        (most, bytes): (u64, ByteSize),
    ) -> Result<Vec<ManifestEntry>> {
        let at = path_request(path, user);
        let request = Request::Manifest(ManifestRequest { at, most, bytes: Some(bytes.0) });
        let mut stream = self.request(&request).await?;
        match answer(&mut stream).await? {
            Reply::Done => {}
            Reply::Failed(failure) => return Err(file_error(&failure, path.as_str())),
            other => return Err(unexpected(&other)),
        }
        let mut entries = Vec::new();
        loop {
            match read_frame(&mut stream).await.map_err(broken)?.ok_or_else(gone)? {
                Frame::End => return Ok(entries),
                frame @ Frame::Message(_) => {
                    let part: ManifestPart = frame.decode().map_err(broken)?;
                    if part.truncated
                        || entries.len() + part.entries.len() > usize::try_from(most).unwrap_or(0)
                    {
                        return Err(Error::new(
                            Code::TooLarge,
                            format!("{path} holds more than {most} files, or more bytes than its disk ({bytes}), files with several names counted with each"),
                        )
                        .next("choose a smaller directory"));
                    }
                    entries.extend(part.entries.into_iter().filter_map(described));
                }
                other => {
                    return Err(Error::internal(format!(
                        "the agent sent {} amid a list",
                        frame_name(&other)
                    )));
                }
            }
        }
    }

    /// Removes files and empty directories below a directory; how many there were.
    pub(crate) async fn prune(&self, path: &GuestPath, user: GuestUser, paths: &[Vec<u8>]) -> Result<u64> {
        let mut stream = self.request(&Request::Prune(PruneRequest { at: path_request(path, user) })).await?;
        send_names(&mut stream, paths).await?;
        match answer(&mut stream).await? {
            Reply::Pruned(count) => Ok(count),
            Reply::Failed(failure) => Err(file_error(&failure, path.as_str())),
            other => Err(unexpected(&other)),
        }
    }
}

/// An entry as the agent tells it; one whose path would lead elsewhere is no entry.
fn described(entry: isle_wire::ManifestEntry) -> Option<ManifestEntry> {
    let path: Vec<u8> = entry.path.into();
    let plain = path.split(|&byte| byte == b'/').all(|part| !matches!(part, b"" | b"." | b".."));
    if !plain || path.contains(&0) {
        return None;
    }
    let kind = match entry.kind {
        FileKind::File => Kind::File,
        FileKind::Directory => Kind::Directory,
        FileKind::Symlink => Kind::Symlink,
        FileKind::Other => Kind::Other,
    };
    let hash = entry.hash.and_then(|hash| <[u8; 32]>::try_from(&hash[..]).ok());
    Some(ManifestEntry { path, kind, mode: entry.mode, size: entry.size, hash })
}

async fn send_names(stream: &mut AgentStream, paths: &[Vec<u8>]) -> Result<()> {
    let mut piece = Vec::new();
    for path in paths {
        piece.extend_from_slice(path);
        piece.push(0);
        if piece.len() >= PIECE {
            write_frame(stream, &Frame::Data(std::mem::take(&mut piece).into())).await.map_err(broken)?;
        }
    }
    if !piece.is_empty() {
        write_frame(stream, &Frame::Data(piece.into())).await.map_err(broken)?;
    }
    write_frame(stream, &Frame::End).await.map_err(broken)
}

async fn send_body<W: AsyncWrite + Unpin>(
    writer: &mut W,
    mut body: BoxStream<'static, Result<Bytes>>,
) -> Result<()> {
    while let Some(bytes) = body.next().await {
        let mut bytes = bytes?;
        while !bytes.is_empty() {
            let piece = bytes.split_to(bytes.len().min(PIECE));
            // The agent's answer says why it takes no more.
            if write_frame(writer, &Frame::Data(piece)).await.is_err() {
                return Ok(());
            }
        }
    }
    write_frame(writer, &Frame::End).await.ok();
    Ok(())
}

fn unpack_error(failure: &isle_wire::Failure, path: &GuestPath) -> Error {
    // What is in the way is named by the agent, which knows where.
    let in_the_way = failure.errno == 0 && failure.doing.contains("; cannot replace it by ");
    let error = file_error(failure, path.as_str());
    if in_the_way {
        return Error::new(error.code, format!("nothing was unpacked: {}", failure.doing))
            .next("move it away, or choose another directory");
    }
    error
}

fn archive_error(refused: &ArchiveRefused) -> Error {
    let code = if refused.too_large { Code::TooLarge } else { Code::ArchiveRefused };
    let next = if refused.too_large {
        "send it in parts, or make the sandbox with a larger `disk`"
    } else {
        "pack files, directories and links among them only, by names below one directory"
    };
    Error::new(code, format!("nothing was unpacked: {}", refused.why)).next(next)
}
