//! Writing files from the host, all or none. Each file is written under a temporary name in its directory;
//! when all have arrived they are renamed. A failure undoes the renames and removes everything that was
//! created, directories included.

use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;

use isle_wire::{
    Failure, FileKind, Frame, FrameError, GuestUser, PathRequest, Reply, Stream, WriteHeader, WriteRequest,
    read_frame, write_message,
};
use rustix::fs::{AtFlags, Mode as FileMode, OFlags, RenameFlags, SeekFrom};

use super::{As, Resolved, failure, kind_of, leased, shown};
use crate::mode::Mode;

/// One file that is being written.
struct Pending {
    directory: OwnedFd,
    name: Vec<u8>,
    temporary: Vec<u8>,
    file: OwnedFd,
    written: u64,
    swapped: Swapped,
    shown: String,
}

/// What the commit has done with it so far.
#[derive(PartialEq, Eq)]
enum Swapped {
    No,
    /// No file existed before.
    New,
    /// The old contents are under the temporary name.
    Exchanged,
}

struct Batch<'a> {
    mode: &'a Mode,
    user: GuestUser,
    files: Vec<Pending>,
    made: Vec<(PathRequest, Vec<u8>)>,
}

pub(crate) async fn write(
    stream: &mut Stream,
    mode: &Mode,
    request: &WriteRequest,
) -> Result<(), FrameError> {
    let mut batch = Batch { mode, user: request.user, files: Vec::new(), made: Vec::new() };
    let mut failed: Option<Failure> = None;
    loop {
        let frame = match read_frame(stream).await {
            Ok(Some(frame)) => frame,
            Ok(None) => {
                batch.undo();
                return Err(FrameError::Ended);
            }
            Err(error) => {
                batch.undo();
                return Err(error);
            }
        };
        let step = match frame {
            Frame::End => break,
            // After a failure the rest is read and dropped, so that the host reads the reply.
            _ if failed.is_some() => Ok(()),
            Frame::Data(bytes) => batch.data(&bytes),
            message @ Frame::Message(_) => match message.decode::<WriteHeader>() {
                Ok(header) => batch.begin(&header),
                Err(error) => {
                    batch.undo();
                    return Err(error);
                }
            },
            _ => {
                batch.undo();
                return Err(FrameError::Unexpected("a file"));
            }
        };
        failed = failed.or(step.err());
    }
    let outcome = match failed {
        Some(failure) => Err(failure),
        None => batch.commit(),
    };
    let reply = match outcome {
        Ok(()) => Reply::Written(batch.files.iter().map(|file| file.written).collect()),
        Err(failure) => {
            batch.undo();
            Reply::Failed(failure)
        }
    };
    write_message(stream, &reply).await
}

impl Batch<'_> {
    fn begin(&mut self, header: &WriteHeader) -> Result<(), Failure> {
        let _as = As::user(self.mode, self.user);
        let shown = shown(&header.at.path);
        let pending = self.open(header).map_err(|error| failure(&error, format!("write {shown}")))?;
        self.files.push(Pending { shown, ..pending });
        Ok(())
    }

    fn open(&mut self, header: &WriteHeader) -> io::Result<Pending> {
        let at = Resolved::new(self.mode, &header.at)?;
        let mut made = Vec::new();
        let parents = at.make_parents(&mut made);
        self.made.extend(made.into_iter().map(|path| (header.at.clone(), path)));
        parents?;
        let (directory, name) = at.parent()?;
        let (existing, kept) = match rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => (Some(kind_of(&stat)), Some(stat.st_mode & 0o7777)),
            Err(rustix::io::Errno::NOENT) => (None, None),
            Err(error) => return Err(error.into()),
        };
        // A link in the last place is written through, by the same rules that found it.
        let (directory, name) = match existing {
            Some(FileKind::Directory) => return Err(io::Error::from_raw_os_error(libc::EISDIR)),
            Some(FileKind::Other) => return Err(io::Error::from_raw_os_error(libc::ENXIO)),
            Some(FileKind::Symlink) => return Err(io::Error::from_raw_os_error(libc::ELOOP)),
            Some(FileKind::File) | None => (directory, name.to_vec()),
        };
        if existing.is_some() {
            // A rename would bypass the permissions of a read-only file, so write permission is checked.
            let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            rustix::fs::openat(&directory, &name[..], flags, FileMode::empty()).map_err(leased)?;
        }
        let temporary = temporary_name()?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&directory, &temporary[..], flags, FileMode::from_raw_mode(0o600))?;
        let mode = kept.filter(|_| header.keep_mode).unwrap_or(header.mode) & 0o777;
        rustix::fs::fchmod(&file, FileMode::from_raw_mode(mode))?;
        let pending = Pending {
            directory,
            name,
            temporary,
            file,
            written: 0,
            swapped: Swapped::No,
            shown: String::new(),
        };
        if header.append
            && existing.is_some()
            && let Err(error) = copy_existing(&pending)
        {
            pending.discard();
            return Err(error);
        }
        Ok(pending)
    }

    fn data(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let Some(current) = self.files.last_mut() else {
            return Err(failure(&io::ErrorKind::InvalidInput.into(), "write bytes without a name"));
        };
        let mut rest = bytes;
        while !rest.is_empty() {
            match rustix::io::write(&current.file, rest) {
                Ok(count) => rest = &rest[count..],
                Err(error) => return Err(failure(&error.into(), format!("write {}", current.shown))),
            }
        }
        current.written += bytes.len() as u64;
        Ok(())
    }

    fn commit(&mut self) -> Result<(), Failure> {
        let _as = As::user(self.mode, self.user);
        for file in &mut self.files {
            file.swap_in().map_err(|error| failure(&error, format!("put {} in place", file.shown)))?;
        }
        for file in &self.files {
            if file.swapped == Swapped::Exchanged {
                // The old content, under the temporary name.
                rustix::fs::unlinkat(&file.directory, &file.temporary[..], AtFlags::empty()).ok();
            }
        }
        Ok(())
    }

    fn undo(&mut self) {
        let _as = As::user(self.mode, self.user);
        for file in self.files.iter().rev() {
            match file.swapped {
                Swapped::No => {}
                Swapped::New => {
                    rustix::fs::unlinkat(&file.directory, &file.name[..], AtFlags::empty()).ok();
                    continue;
                }
                Swapped::Exchanged => {
                    let (old, new) = (&file.temporary[..], &file.name[..]);
                    rustix::fs::renameat_with(
                        &file.directory,
                        old,
                        &file.directory,
                        new,
                        RenameFlags::EXCHANGE,
                    )
                    .ok();
                }
            }
            file.discard();
        }
        self.files.clear();
        for (request, path) in self.made.drain(..).rev() {
            let inner = PathRequest { path: path.into(), ..request };
            if let Ok(at) = Resolved::new(self.mode, &inner)
                && let Ok((parent, name)) = at.parent()
            {
                rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR).ok();
            }
        }
    }
}

impl Pending {
    fn swap_in(&mut self) -> io::Result<()> {
        let (from, to) = (&self.temporary[..], &self.name[..]);
        match rustix::fs::renameat_with(&self.directory, from, &self.directory, to, RenameFlags::NOREPLACE) {
            Ok(()) => self.swapped = Swapped::New,
            Err(rustix::io::Errno::EXIST) => {
                rustix::fs::renameat_with(&self.directory, from, &self.directory, to, RenameFlags::EXCHANGE)?;
                self.swapped = Swapped::Exchanged;
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    fn discard(&self) {
        rustix::fs::unlinkat(&self.directory, &self.temporary[..], AtFlags::empty()).ok();
    }
}

fn copy_existing(pending: &Pending) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let old = rustix::fs::openat(&pending.directory, &pending.name[..], flags, FileMode::empty())
        .map_err(leased)?;
    // The file may have been replaced since it was checked.
    let stat = rustix::fs::fstat(&old)?;
    if kind_of(&stat) != FileKind::File {
        return Err(io::Error::from_raw_os_error(libc::ENXIO));
    }
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    let mut buffer = vec![0u8; 256 * 1024];
    let mut at = 0;
    // Only data is copied: holes of the old file stay holes in the new one.
    while at < size {
        let start = match rustix::fs::seek(&old, SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(rustix::io::Errno::NXIO) => break,
            Err(error) => return Err(error.into()),
        };
        at = rustix::fs::seek(&old, SeekFrom::Hole(start))?.min(size);
        copy_range(&old, &pending.file, start..at, &mut buffer)?;
    }
    rustix::fs::ftruncate(&pending.file, size)?;
    rustix::fs::seek(&pending.file, SeekFrom::Start(size))?;
    Ok(())
}

fn copy_range(from: &OwnedFd, to: &OwnedFd, range: Range<u64>, buffer: &mut [u8]) -> io::Result<()> {
    let mut offset = range.start;
    while offset < range.end {
        let wanted = usize::try_from(range.end - offset).unwrap_or(buffer.len()).min(buffer.len());
        let count = rustix::io::pread(from, &mut buffer[..wanted], offset)?;
        if count == 0 {
            break;
        }
        let mut written = 0;
        while written < count {
            written += rustix::io::pwrite(to, &buffer[written..count], offset + written as u64)?;
        }
        offset += count as u64;
    }
    Ok(())
}

/// Writes a file under a temporary name and renames it.
pub(super) fn swap_in(directory: &OwnedFd, name: &[u8], mode: u32, contents: &[u8]) -> io::Result<()> {
    let temporary = temporary_name()?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(directory, &temporary[..], flags, FileMode::from_raw_mode(0o600))?;
    let fill = || -> io::Result<()> {
        let mut rest = contents;
        while !rest.is_empty() {
            let count = rustix::io::write(&file, rest)?;
            rest = &rest[count..];
        }
        rustix::fs::fchmod(&file, FileMode::from_raw_mode(mode))?;
        Ok(rustix::fs::renameat(directory, &temporary[..], directory, name)?)
    };
    let filled = fill();
    if filled.is_err() {
        rustix::fs::unlinkat(directory, &temporary[..], AtFlags::empty()).ok();
    }
    filled
}

fn temporary_name() -> io::Result<Vec<u8>> {
    let mut random = [0u8; 12];
    // SAFETY: fills exactly the buffer.
    let filled = unsafe { libc::getrandom(random.as_mut_ptr().cast(), random.len(), 0) };
    if usize::try_from(filled).ok() != Some(random.len()) {
        return Err(io::Error::last_os_error());
    }
    let mut name = b".isle-".to_vec();
    for byte in random {
        name.extend(format!("{byte:02x}").bytes());
    }
    Ok(name)
}
