//! Reading a file to the host.

use std::io;
use std::os::fd::OwnedFd;

use isle_wire::{FileKind, Frame, FrameError, ReadRequest, Reply, Stat, Stream, write_frame, write_message};
use rustix::fs::{AtFlags, OFlags};

use super::{As, Resolved, facts, failure, shown};
use crate::mode::Mode;

const CHUNK: usize = 256 * 1024;
/// Limit for files of size 0 whose content the kernel generates, such as those of `/proc`.
const MAX_WITHOUT_SIZE: u64 = 16 << 20;

/// Opens and reads the first chunk before replying, so that an error comes before any data.
pub(crate) async fn read(stream: &mut Stream, mode: &Mode, request: &ReadRequest) -> Result<(), FrameError> {
    let begun = open(mode, request).and_then(|(file, stat)| {
        // What is appended meanwhile is not read: that might never end.
        let there = if stat.size > 0 { stat.size.saturating_sub(request.offset) } else { MAX_WITHOUT_SIZE };
        let left = request.limit.unwrap_or(u64::MAX).min(there);
        let first = chunk(&file, request.offset, left)?;
        Ok((file, stat, left, first))
    });
    let (file, stat, mut left, mut piece) = match begun {
        Ok(begun) => begun,
        Err(error) => {
            let failed = failure(&error, format!("read {}", shown(&request.at.path)));
            return write_message(stream, &Reply::Failed(failed)).await;
        }
    };
    write_message(stream, &Reply::Stat(stat)).await?;
    let mut offset = request.offset;
    while !piece.is_empty() {
        offset += piece.len() as u64;
        left -= piece.len() as u64;
        write_frame(stream, &Frame::Data(piece.into())).await?;
        // Without the end frame the host knows that the content is incomplete.
        piece = chunk(&file, offset, left).map_err(|_| FrameError::Ended)?;
    }
    write_frame(stream, &Frame::End).await
}

/// The next piece, at most `left` bytes of it; empty at the end.
fn chunk(file: &OwnedFd, offset: u64, left: u64) -> io::Result<Vec<u8>> {
    let mut buffer = vec![0u8; CHUNK.min(usize::try_from(left).unwrap_or(CHUNK))];
    let count = rustix::io::pread(file, &mut buffer, offset)?;
    buffer.truncate(count);
    Ok(buffer)
}

fn open(mode: &Mode, request: &ReadRequest) -> io::Result<(OwnedFd, Stat)> {
    let _as = As::user(mode, request.at.user);
    // Non-blocking: a pipe without a writer must not block the agent.
    let file = Resolved::new(mode, &request.at)?.open(OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)?;
    let stat = facts(mode, &rustix::fs::statat(&file, "", AtFlags::EMPTY_PATH)?);
    match stat.kind {
        FileKind::File => Ok((file, stat)),
        FileKind::Directory => Err(io::Error::from_raw_os_error(libc::EISDIR)),
        FileKind::Symlink | FileKind::Other => Err(io::Error::from_raw_os_error(libc::ENXIO)),
    }
}
