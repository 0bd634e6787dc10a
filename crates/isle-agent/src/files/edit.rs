//! Replacing text in a file: all replacements or none, with one rename.

use std::io;
use std::os::fd::OwnedFd;

use isle_wire::{EditRefused, EditRequest, Edited, FailureKind, FileKind, Reply};
use memchr::memmem;
use rustix::fs::{Mode as FileMode, OFlags};

use super::write::swap_in;
use super::{As, Resolved, facts, failure, leased, shown};
use crate::mode::Mode;

/// How many lines are reported for a text that occurs more than once.
const MAX_LINES: usize = 10;

pub(crate) fn edit(mode: &Mode, request: &EditRequest) -> Reply {
    let _as = As::user(mode, request.at.user);
    let doing = || format!("edit {}", shown(&request.at.path));
    let work = || -> io::Result<Reply> {
        let at = Resolved::new(mode, &request.at)?;
        let (directory, name) = at.parent()?;
        // Opened for writing too: a user without write permission must not replace the file.
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&directory, name, flags, FileMode::empty()).map_err(leased)?;
        let stat = facts(mode, &rustix::fs::fstat(&file)?);
        match stat.kind {
            FileKind::File => {}
            FileKind::Directory => return Err(io::Error::from_raw_os_error(libc::EISDIR)),
            FileKind::Symlink | FileKind::Other => return Err(io::Error::from_raw_os_error(libc::ENXIO)),
        }
        let too_large = || {
            let mut failed = failure(&io::Error::from_raw_os_error(0), doing());
            failed.kind = FailureKind::TooLarge;
            Ok(Reply::Failed(failed))
        };
        if stat.size > request.largest {
            return too_large();
        }
        let mut text = read_all(&file, stat.size)?;
        let mut replaced = Vec::new();
        for (index, edit) in request.edits.iter().enumerate() {
            let places: Vec<usize> = memmem::find_iter(&text, &edit.old[..]).collect();
            if places.is_empty() || (places.len() > 1 && !edit.all) {
                let line = |&place: &usize| 1 + memchr::memchr_iter(b'\n', &text[..place]).count() as u64;
                let lines = places.iter().take(MAX_LINES).map(line).collect();
                let found = places.len() as u64;
                return Ok(Reply::EditRefused(EditRefused { index: index as u64, found, lines }));
            }
            replaced.push(places.len() as u64);
            let grown = places.len() as u64 * edit.new.len() as u64;
            if text.len() as u64 + grown > request.largest.saturating_mul(2) {
                return too_large();
            }
            text = put(&text, &places, edit.old.len(), &edit.new);
        }
        if text.len() as u64 > request.largest {
            return too_large();
        }
        swap_in(&directory, name, stat.mode & 0o777, &text)?;
        Ok(Reply::Edited(Edited { replaced, size: text.len() as u64 }))
    };
    work().unwrap_or_else(|error| Reply::Failed(failure(&error, doing())))
}

fn read_all(file: &OwnedFd, size: u64) -> io::Result<Vec<u8>> {
    let mut text = vec![0u8; usize::try_from(size).unwrap_or(0)];
    let mut at = 0;
    while at < text.len() {
        match rustix::io::pread(file, &mut text[at..], at as u64)? {
            0 => break,
            count => at += count,
        }
    }
    text.truncate(at);
    Ok(text)
}

fn put(text: &[u8], places: &[usize], old: usize, new: &[u8]) -> Vec<u8> {
    let mut result = Vec::with_capacity(text.len() + places.len() * new.len());
    let mut from = 0;
    for &place in places {
        result.extend_from_slice(&text[from..place]);
        result.extend_from_slice(new);
        from = place + old;
    }
    result.extend_from_slice(&text[from..]);
    result
}
