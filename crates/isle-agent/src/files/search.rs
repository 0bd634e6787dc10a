//! Searching the text of files, line by line, in linear time and short slices. Files with a NUL byte near
//! their start are binary and skipped; `.git` is skipped unless it is where the search starts.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use isle_trees::{Glob, Kind, Walker, compile_regex, open_regular};
use isle_wire::{Cut, FileKind, Match, Matches, Reply, SearchRequest};
use regex::bytes::Regex;
use rustix::fs::OFlags;

use super::time_slice::TimeSlice;
use super::{As, Resolved, failure, kind_of, shown};
use crate::mode::Mode;

/// How much is read at a time.
const PIECE: usize = 128 * 1024;
/// The part of a file that is checked for NUL bytes.
const HEAD: usize = 8 * 1024;
/// Maximum length of a line in the result.
const LONGEST_LINE: usize = 500;
/// Longer lines are searched in parts.
const LONGEST_PART: usize = 1 << 20;

pub(crate) async fn search(mode: &Mode, request: &SearchRequest) -> Reply {
    let started = {
        let _as = As::user(mode, request.at.user);
        Search::begin(mode, request)
    };
    let mut search = match started {
        Ok(search) => search,
        Err(error) => return Reply::Failed(failure(&error, format!("search {}", shown(&request.at.path)))),
    };
    let deadline = Instant::now() + Duration::from_millis(request.time_ms);
    let mut slice = TimeSlice::begin();
    loop {
        let has_more = {
            let _as = As::user(mode, request.at.user);
            loop {
                if !search.step() {
                    break false;
                }
                if slice.is_over() {
                    break true;
                }
            }
        };
        if !has_more {
            break;
        }
        if Instant::now() > deadline {
            search.result.cut.get_or_insert(Cut::Time);
            break;
        }
        slice.end().await;
    }
    Reply::Matches(search.result)
}

struct Search {
    expression: Regex,
    glob: Option<Glob>,
    context: usize,
    limit: usize,
    budget: u64,
    walker: Option<Walker>,
    open: Option<Scan>,
    result: Matches,
}

/// One file that is being searched.
struct Scan {
    path: Vec<u8>,
    file: OwnedFd,
    at: u64,
    end: u64,
    rest: Vec<u8>,
    line: u64,
    before: VecDeque<Vec<u8>>,
    /// Matches that still need context lines after them: their index, and how many lines are missing.
    waiting: Vec<(usize, usize)>,
}

impl Search {
    fn begin(mode: &Mode, request: &SearchRequest) -> io::Result<Self> {
        let invalid = |_| io::Error::from_raw_os_error(libc::EINVAL);
        let mut search = Self {
            expression: compile_regex(&request.pattern)
                .map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?,
            glob: request.glob.as_deref().map(Glob::new).transpose().map_err(invalid)?,
            context: usize::try_from(request.context).unwrap_or(0),
            limit: usize::try_from(request.limit).unwrap_or(usize::MAX),
            budget: request.budget,
            walker: None,
            open: None,
            result: Matches { matches: Vec::new(), files: 0, skipped: 0, cut: None },
        };
        let at = Resolved::new(mode, &request.at)?;
        let top = at.open(OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)?;
        let stat = rustix::fs::fstat(&top)?;
        match kind_of(&stat) {
            FileKind::Directory => search.walker = Some(Walker::new(top)?),
            FileKind::File => search.open_file(Vec::new(), top, u64::try_from(stat.st_size).unwrap_or(0)),
            FileKind::Symlink | FileKind::Other => return Err(io::Error::from_raw_os_error(libc::ENXIO)),
        }
        Ok(search)
    }

    /// Does a small part of the work; returns whether there is more.
    fn step(&mut self) -> bool {
        if self.result.cut.is_some() {
            return false;
        }
        if let Some(scan) = self.open.take() {
            self.scan(scan);
            return true;
        }
        let Some(walker) = &mut self.walker else { return false };
        let Some(found) = walker.step() else { return false };
        match found.kind {
            Kind::Directory if found.name == b".git" => walker.skip(),
            Kind::File if self.glob.as_ref().is_none_or(|glob| glob.matches(&found.path)) => {
                let opened = walker
                    .directory()
                    .ok_or_else(|| io::ErrorKind::NotFound.into())
                    .and_then(|directory| open_regular(directory.as_fd(), &found.name));
                match opened {
                    Ok((file, stat)) => {
                        self.open_file(found.path, file, u64::try_from(stat.st_size).unwrap_or(0));
                    }
                    Err(_) => self.result.skipped += 1,
                }
            }
            Kind::File | Kind::Directory | Kind::Symlink | Kind::Other => {}
        }
        true
    }

    fn open_file(&mut self, path: Vec<u8>, file: OwnedFd, end: u64) {
        let mut head = vec![0u8; HEAD];
        match rustix::io::pread(&file, &mut head, 0) {
            Ok(count) if !head[..count].contains(&0) => {
                self.result.files += 1;
                self.open = Some(Scan {
                    path,
                    file,
                    at: 0,
                    end,
                    rest: Vec::new(),
                    line: 0,
                    before: VecDeque::new(),
                    waiting: Vec::new(),
                });
            }
            Ok(_) | Err(_) => self.result.skipped += 1,
        }
    }

    fn scan(&mut self, mut scan: Scan) {
        let start = scan.rest.len();
        // Up to the size when it was opened: a growing file would never end.
        let wanted = usize::try_from(scan.end.saturating_sub(scan.at)).unwrap_or(PIECE).min(PIECE);
        let mut text = std::mem::take(&mut scan.rest);
        text.resize(start + wanted, 0);
        let count = rustix::io::pread(&scan.file, &mut text[start..], scan.at).unwrap_or(0);
        text.truncate(start + count);
        scan.at += count as u64;
        let is_last = count == 0 || scan.at >= scan.end;
        let whole = match memchr::memrchr(b'\n', &text) {
            _ if is_last || text.len() >= LONGEST_PART => text.len(),
            Some(at) => at + 1,
            None => 0,
        };
        scan.rest = text.split_off(whole);
        for line in text.split_inclusive(|&byte| byte == b'\n') {
            if self.line(&mut scan, line.strip_suffix(b"\n").unwrap_or(line)) {
                return;
            }
        }
        if !is_last {
            self.open = Some(scan);
        }
    }

    /// Handles one line; returns whether the search is over.
    fn line(&mut self, scan: &mut Scan, line: &[u8]) -> bool {
        scan.line += 1;
        scan.waiting.retain_mut(|(at, missing)| {
            self.budget = self.budget.saturating_sub(line.len().min(LONGEST_LINE) as u64);
            self.result.matches[*at].after.push(shortened(line).into());
            *missing -= 1;
            *missing > 0
        });
        let full = self.result.matches.len() >= self.limit;
        if let Some(found) = self.expression.find(line) {
            if full || self.budget == 0 {
                self.result.cut = Some(if full { Cut::Matches } else { Cut::Bytes });
                return true;
            }
            let before: Vec<_> = scan.before.iter().map(|line| line.clone().into()).collect();
            let cost = shortened(line).len() + scan.path.len() + 32;
            self.budget = self.budget.saturating_sub(cost as u64);
            self.result.matches.push(Match {
                path: scan.path.clone().into(),
                line: scan.line,
                column: found.start() as u64 + 1,
                text: shortened(line).into(),
                before,
                after: Vec::new(),
            });
            if self.context > 0 {
                scan.waiting.push((self.result.matches.len() - 1, self.context));
            }
        }
        if self.context > 0 {
            if scan.before.len() >= self.context {
                scan.before.pop_front();
            }
            scan.before.push_back(shortened(line));
        }
        false
    }
}

fn shortened(line: &[u8]) -> Vec<u8> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    line[..line.len().min(LONGEST_LINE)].to_vec()
}
