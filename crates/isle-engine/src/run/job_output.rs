//! All that a job printed, in files of the host, so that its middle is not lost to what is kept in memory
//! and in the database; output that is kept there whole has no file. Each output has two files at most, named
//! by where they begin in it; when the second is full the first goes. They hold what may be shown: values of
//! secrets are hidden before.

use std::collections::VecDeque;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use isle_fail::Point;

use super::events::{StreamName, complete_until};
use super::output::KeptOutput;
use isle_core::values::{ByteSize, RunId};

/// What the files of all jobs may come to, in caps of one output.
const ALL: u64 = 16;

/// Where the output of jobs is kept, and how much of each.
#[derive(Debug, Clone)]
pub(crate) struct JobOutput {
    directory: PathBuf,
    cap: u64,
}

/// What is known of a run whose files are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunFate {
    /// It goes on.
    Open,
    /// It is on record.
    Ended,
    /// Nobody remembers it.
    Forgotten,
}

/// One file: where it begins in its output, and how long it is.
#[derive(Debug, Clone)]
struct Segment {
    start: u64,
    length: u64,
    path: PathBuf,
}

impl Segment {
    fn end(&self) -> u64 {
        self.start + self.length
    }
}

/// Writes one output of a job.
#[derive(Debug)]
pub(crate) struct JobOutputWriter {
    directory: PathBuf,
    prefix: String,
    half: u64,
    segments: VecDeque<Segment>,
    open: Option<File>,
    failed: bool,
}

impl JobOutput {
    /// None where there is no place for them, or none is wanted.
    pub(crate) fn new(directory: Option<&Path>, cap: ByteSize) -> Option<Self> {
        let directory = directory.filter(|_| cap.0 > 0)?.to_owned();
        Some(Self { directory, cap: cap.0 })
    }

    /// What one output of a run is written to; what an earlier engine wrote is gone on with.
    pub(crate) fn of(&self, run: &RunId, stream: StreamName) -> JobOutputWriter {
        let prefix = prefix(run, stream);
        let segments = self.segments(&prefix);
        let directory = self.directory.clone();
        JobOutputWriter {
            directory,
            prefix,
            half: (self.cap / 2).max(1),
            segments,
            open: None,
            failed: false,
        }
    }

    fn segments(&self, prefix: &str) -> VecDeque<Segment> {
        let entries = fs::read_dir(&self.directory).into_iter().flatten().flatten();
        let mut found: Vec<Segment> = entries
            .filter_map(|entry| {
                let start = entry.file_name().to_str()?.strip_prefix(prefix)?.parse().ok()?;
                Some(Segment { start, length: entry.metadata().ok()?.len(), path: entry.path() })
            })
            .collect();
        found.sort_unstable_by_key(|segment| segment.start);
        found.into()
    }

    /// Whether there are files of an output.
    pub(crate) fn has(&self, run: &RunId, stream: StreamName) -> bool {
        !self.segments(&prefix(run, stream)).is_empty()
    }

    /// What is there from a position on, or from the next that is there: at most so many bytes, with where
    /// they stand.
    pub(crate) fn read(&self, run: &RunId, stream: StreamName, from: u64, most: usize) -> Option<KeptOutput> {
        let mut segments = self.segments(&prefix(run, stream)).into_iter().filter(|one| one.end() > from);
        let first = segments.next()?;
        let start = first.start.max(from);
        let mut bytes = Vec::new();
        let mut next = Some(first);
        while let Some(segment) = next {
            let at = start + bytes.len() as u64;
            let room = (most - bytes.len()) as u64;
            if segment.start > at || room == 0 {
                break;
            }
            let mut file = File::open(&segment.path).ok()?;
            file.seek(SeekFrom::Start(at - segment.start)).ok()?;
            file.take(room).read_to_end(&mut bytes).ok()?;
            next = segments.next();
        }
        // A character whose rest is beyond what was read comes with the next page.
        let whole = complete_until(&bytes);
        if whole > 0 && bytes.len() == most {
            bytes.truncate(whole);
        }
        Some(KeptOutput { head: Vec::new(), total: start + bytes.len() as u64, tail: bytes })
    }

    /// Removes what belongs to no run any more, and of ended ones the oldest while all together are too
    /// large.
    pub(crate) fn sweep(&self, fate: impl Fn(&RunId) -> RunFate) {
        let entries = fs::read_dir(&self.directory).into_iter().flatten().flatten();
        // Ids of runs sort by time.
        let mut all: Vec<(String, PathBuf, u64)> = entries
            .filter_map(|entry| {
                let name = entry.file_name().to_str()?.to_owned();
                Some((name, entry.path(), entry.metadata().ok()?.len()))
            })
            .collect();
        all.sort_unstable();
        let mut held: u64 = all.iter().map(|(_, _, length)| length).sum();
        for (name, path, length) in all {
            let run = name.split('.').next().unwrap_or_default().parse();
            let goes = match run.map_or(RunFate::Forgotten, |run| fate(&run)) {
                RunFate::Open => false,
                RunFate::Ended => held > self.cap.saturating_mul(ALL),
                RunFate::Forgotten => true,
            };
            if goes && fs::remove_file(&path).is_ok() {
                held -= length;
                isle_fail::pass(Point::SpoolSwept);
            }
        }
    }
}

fn prefix(run: &RunId, stream: StreamName) -> String {
    let stream = match stream {
        StreamName::Stdout => "stdout",
        StreamName::Stderr => "stderr",
    };
    format!("{}.{stream}.", run.as_str())
}

impl JobOutputWriter {
    /// Adds what stands at a position of the output. What is there already is not written again; a job
    /// whose files cannot be written goes on without.
    pub(crate) fn append(&mut self, position: u64, bytes: &[u8]) {
        if self.failed {
            return;
        }
        let end = self.segments.back().map_or(0, Segment::end);
        let known = usize::try_from(end.saturating_sub(position)).unwrap_or(usize::MAX);
        let Some(rest) = bytes.get(known..).filter(|rest| !rest.is_empty()) else { return };
        if let Err(error) = self.write(position.max(end), rest) {
            tracing::warn!(%error, output = self.prefix, "the output of a job is not kept in files any more");
            self.failed = true;
            self.open = None;
        }
    }

    fn write(&mut self, mut position: u64, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let fits = |last: &Segment| last.end() == position && last.length < self.half;
            if !self.segments.back().is_some_and(fits) {
                self.begin(position)?;
            }
            let Some(last) = self.segments.back_mut() else { return Ok(()) };
            let file = match &mut self.open {
                Some(file) => file,
                none => none.insert(OpenOptions::new().append(true).open(&last.path)?),
            };
            let room = usize::try_from(self.half - last.length).unwrap_or(usize::MAX);
            let (part, rest) = bytes.split_at(room.min(bytes.len()));
            file.write_all(part)?;
            isle_fail::fail(Point::SpoolWritten)?;
            last.length += part.len() as u64;
            position += part.len() as u64;
            bytes = rest;
        }
        Ok(())
    }

    /// Begins a file; the oldest goes.
    fn begin(&mut self, start: u64) -> io::Result<()> {
        if self.segments.is_empty() {
            DirBuilder::new().recursive(true).mode(0o700).create(&self.directory)?;
        }
        let path = self.directory.join(format!("{}{start:020}", self.prefix));
        self.open = Some(OpenOptions::new().append(true).create_new(true).mode(0o600).open(&path)?);
        self.segments.push_back(Segment { start, length: 0, path });
        isle_fail::fail(Point::SpoolBegun)?;
        while self.segments.len() > 2 {
            if let Some(oldest) = self.segments.pop_front() {
                fs::remove_file(oldest.path)?;
                isle_fail::fail(Point::SpoolDropped)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(cap: u64) -> (tempfile::TempDir, JobOutput) {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("jobs");
        (place, JobOutput { directory, cap })
    }

    fn text(kept: &KeptOutput) -> (u64, String) {
        (kept.total - kept.tail.len() as u64, String::from_utf8(kept.tail.clone()).unwrap())
    }

    #[test]
    fn what_is_written_is_read_again_from_anywhere() {
        let (_place, files) = files(1000);
        let run = RunId::fresh();
        let mut writer = files.of(&run, StreamName::Stdout);
        writer.append(0, b"one ");
        writer.append(4, b"two");
        let read = |from, most| files.read(&run, StreamName::Stdout, from, most);
        assert_eq!(text(&read(0, 100).unwrap()), (0, "one two".into()));
        assert_eq!(text(&read(2, 3).unwrap()), (2, "e t".into()));
        assert!(read(7, 100).is_none());
        assert!(files.read(&run, StreamName::Stderr, 0, 100).is_none());
    }

    #[test]
    fn the_files_stay_within_the_cap_and_the_end_is_what_stays() {
        let (_place, files) = files(8);
        let run = RunId::fresh();
        let mut writer = files.of(&run, StreamName::Stdout);
        writer.append(0, b"0123456789abcdefgh");
        let held: u64 = files.segments(&prefix(&run, StreamName::Stdout)).iter().map(|one| one.length).sum();
        assert!(held <= 8);
        assert_eq!(text(&files.read(&run, StreamName::Stdout, 3, 100).unwrap()), (12, "cdefgh".into()));
    }

    #[test]
    fn a_later_engine_goes_on_where_the_files_end() {
        let (_place, files) = files(1000);
        let run = RunId::fresh();
        files.of(&run, StreamName::Stdout).append(0, b"before ");
        // An agent tells what it kept again: the beginning, and the end after a gap.
        let mut later = files.of(&run, StreamName::Stdout);
        later.append(0, b"bef");
        later.append(5, b"e after");
        later.append(20, b"far");
        let read = |from| text(&files.read(&run, StreamName::Stdout, from, 100).unwrap());
        assert_eq!(read(0), (0, "before after".into()));
        assert_eq!(read(12), (20, "far".into()), "what is missing is seen by the position");
    }

    #[test]
    fn a_page_does_not_end_within_a_character() {
        let (_place, files) = files(1000);
        let run = RunId::fresh();
        files.of(&run, StreamName::Stdout).append(0, "a€b".as_bytes());
        assert_eq!(text(&files.read(&run, StreamName::Stdout, 0, 3).unwrap()), (0, "a".into()));
    }

    #[test]
    fn files_go_with_their_run_and_when_all_are_too_large() {
        let (_place, files) = files(2);
        let runs: Vec<RunId> = (0..40).map(|_| RunId::fresh()).collect();
        for run in &runs {
            files.of(run, StreamName::Stdout).append(0, b"x");
        }
        let left = |run: &RunId| files.read(run, StreamName::Stdout, 0, 9).is_some();
        let mut sorted = runs.clone();
        sorted.sort_unstable();
        let (open, forgotten) = (sorted[0].clone(), sorted[39].clone());
        files.sweep(|run| match run {
            run if *run == open => RunFate::Open,
            run if *run == forgotten => RunFate::Forgotten,
            _ => RunFate::Ended,
        });
        assert!(left(&open) && !left(&forgotten) && !left(&sorted[1]) && left(&sorted[38]));
        assert!(sorted.iter().filter(|run| left(run)).count() <= 33);
    }
}
