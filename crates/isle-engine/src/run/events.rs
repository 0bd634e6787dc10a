//! The live log of a run for those who follow it: bounded, every event with an id, so that a
//! follower who comes late or reads slowly knows what it missed.

use std::collections::VecDeque;

use bytes::Bytes;

use super::output::border_before;

/// Bytes of output kept in the log of one run.
const CAP: usize = 256 * 1024;

/// Which output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamName {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// One thing that happened, with its output still as bytes cut on a border of characters.
#[derive(Debug, Clone)]
pub(crate) enum Happened {
    /// The command was started.
    Started,
    /// It wrote.
    Output(StreamName, Bytes),
    /// Bytes of each output that the agent had not kept.
    Gap([u64; 2]),
}

#[derive(Debug, Clone)]
struct Logged {
    id: u64,
    what: Happened,
}

/// The log.
#[derive(Debug, Default)]
pub(crate) struct EventLog {
    events: VecDeque<Logged>,
    kept_bytes: usize,
    dropped_bytes: u64,
    last_id: u64,
    carry: [Vec<u8>; 2],
}

/// What a follower gets next.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// Bytes that are missing before the first event.
    pub(crate) lost: u64,
    /// Events with their ids.
    pub(crate) events: Vec<(u64, Happened)>,
}

impl EventLog {
    /// Id of the newest event.
    pub(crate) fn last_id(&self) -> u64 {
        self.last_id
    }

    /// Bytes in memory.
    pub(crate) fn held(&self) -> usize {
        self.kept_bytes
    }

    /// Adds an event that is no output.
    pub(crate) fn note(&mut self, what: Happened) {
        self.last_id += 1;
        self.events.push_back(Logged { id: self.last_id, what });
    }

    /// Adds output. A character whose rest has not arrived is held back.
    pub(crate) fn output(&mut self, stream: StreamName, bytes: &Bytes) {
        let carry = &mut self.carry[stream as usize];
        let whole = if carry.is_empty() { bytes.clone() } else { [&carry[..], bytes].concat().into() };
        let border = complete_until(&whole);
        *carry = whole[border..].to_vec();
        self.push(stream, whole.slice(..border));
    }

    /// Adds what was held back; nothing more will come.
    pub(crate) fn flush(&mut self) {
        for stream in [StreamName::Stdout, StreamName::Stderr] {
            let rest = std::mem::take(&mut self.carry[stream as usize]);
            self.push(stream, rest.into());
        }
    }

    fn push(&mut self, stream: StreamName, bytes: Bytes) {
        if bytes.is_empty() {
            return;
        }
        self.kept_bytes += bytes.len();
        self.note(Happened::Output(stream, bytes));
        while self.kept_bytes > CAP && self.events.len() > 1 {
            if let Some(Logged { what: Happened::Output(_, bytes), .. }) = self.events.pop_front() {
                self.kept_bytes -= bytes.len();
                self.dropped_bytes += bytes.len() as u64;
            }
        }
    }

    /// Everything after event `after`. `told` is how many lost bytes the follower was told of or
    /// does not miss; the difference is what it missed since.
    pub(crate) fn after(&self, after: u64, told: u64) -> Batch {
        let first = self.events.front().map_or(self.last_id + 1, |event| event.id);
        let lost = if after + 1 < first { self.dropped_bytes.saturating_sub(told) } else { 0 };
        let skip = usize::try_from((after + 1).saturating_sub(first)).unwrap_or(usize::MAX);
        let events = self.events.iter().skip(skip).map(|event| (event.id, event.what.clone())).collect();
        Batch { lost, events }
    }

    /// The last `lines` lines of each output, as far as they are kept, in the order they were written.
    pub(crate) fn tail(&self, lines: usize) -> Batch {
        // Line ends still to be passed on the way back; the one behind the last line is none of them.
        let mut left = [lines; 2];
        let mut at_end = [true; 2];
        let mut events = Vec::new();
        for event in self.events.iter().rev() {
            match &event.what {
                Happened::Output(stream, bytes) if left[*stream as usize] > 0 => {
                    let newest = std::mem::take(&mut at_end[*stream as usize]);
                    let body = if newest { bytes.strip_suffix(b"\n").unwrap_or(bytes) } else { bytes };
                    let start = back_over_lines(body, &mut left[*stream as usize]);
                    if start < bytes.len() {
                        events.push((event.id, Happened::Output(*stream, bytes.slice(start..))));
                    }
                }
                Happened::Gap(counts) if left.iter().any(|left| *left > 0) => {
                    events.push((event.id, Happened::Gap(*counts)));
                }
                Happened::Output(..) | Happened::Gap(_) | Happened::Started => {}
            }
        }
        events.reverse();
        // Only who wanted more lines than there are misses what was dropped.
        let lost = if left.iter().all(|left| *left > 0) { self.dropped_bytes } else { 0 };
        Batch { lost, events }
    }

    /// Bytes of output dropped so far.
    pub(crate) fn dropped_bytes(&self) -> u64 {
        self.dropped_bytes
    }

    /// How far before the end of an output it begins.
    pub(crate) fn reaches_back(&self, stream: StreamName) -> u64 {
        let bytes = |event: &Logged| match &event.what {
            Happened::Output(other, bytes) if *other == stream => bytes.len() as u64,
            Happened::Gap(counts) => counts[stream as usize],
            Happened::Output(..) | Happened::Started => 0,
        };
        self.events.iter().map(bytes).sum::<u64>() + self.carry[stream as usize].len() as u64
    }
}

/// Where the last `left` lines begin; what is left to be found before stays in `left`.
fn back_over_lines(bytes: &[u8], left: &mut usize) -> usize {
    for (at, _) in bytes.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n') {
        *left -= 1;
        if *left == 0 {
            return at + 1;
        }
    }
    0
}

/// Where the last complete character ends.
pub(super) fn complete_until(bytes: &[u8]) -> usize {
    let Some(last) = bytes.len().checked_sub(1) else { return 0 };
    let start = border_before(bytes, last);
    let width = match bytes[start] {
        0b1100_0000..=0b1101_1111 => 2,
        0b1110_0000..=0b1110_1111 => 3,
        0b1111_0000..=0b1111_0111 => 4,
        _ => 1,
    };
    if start + width > bytes.len() { start } else { bytes.len() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(batch: &Batch) -> Vec<String> {
        batch
            .events
            .iter()
            .filter_map(|(_, what)| match what {
                Happened::Output(_, bytes) => Some(String::from_utf8(bytes.to_vec()).unwrap()),
                Happened::Started | Happened::Gap(_) => None,
            })
            .collect()
    }

    #[test]
    fn a_character_split_over_two_chunks_is_shown_whole() {
        let mut log = EventLog::default();
        let euro = "€".as_bytes();
        log.output(StreamName::Stdout, &Bytes::copy_from_slice(&[b"a", &euro[..1]].concat()));
        log.output(StreamName::Stderr, &Bytes::from_static(b"!"));
        log.output(StreamName::Stdout, &Bytes::copy_from_slice(&[&euro[1..], b"b"].concat()));
        assert_eq!(texts(&log.after(0, 0)), ["a", "!", "€b"]);
    }

    #[test]
    fn ids_count_up_and_a_follower_resumes_after_the_last_it_saw() {
        let mut log = EventLog::default();
        log.note(Happened::Started);
        log.output(StreamName::Stdout, &Bytes::from_static(b"x"));
        log.output(StreamName::Stdout, &Bytes::from_static(b"y"));
        let batch = log.after(2, 0);
        assert_eq!((batch.lost, batch.events.len(), batch.events[0].0), (0, 1, 3));
    }

    #[test]
    fn a_tail_is_the_last_lines_of_each_output_wherever_the_chunks_end() {
        let mut log = EventLog::default();
        log.note(Happened::Started);
        for (stream, text) in [
            (StreamName::Stdout, "one\ntw"),
            (StreamName::Stderr, "first\n"),
            (StreamName::Stdout, "o\nthree"),
            (StreamName::Stderr, "second\n"),
            (StreamName::Stdout, "\n"),
        ] {
            log.output(stream, &Bytes::from_static(text.as_bytes()));
        }
        assert_eq!(texts(&log.tail(1)), ["three", "second\n", "\n"]);
        assert_eq!(texts(&log.tail(2)), ["tw", "first\n", "o\nthree", "second\n", "\n"]);
        assert_eq!(texts(&log.tail(9)).concat(), "one\ntwfirst\no\nthreesecond\n\n");
        assert!(log.tail(0).events.is_empty());
        assert_eq!(log.tail(9).lost, 0);
    }

    #[test]
    fn a_late_follower_is_told_how_much_it_missed() {
        let mut log = EventLog::default();
        for _ in 0..8 {
            log.output(StreamName::Stdout, &Bytes::from(vec![b'x'; 64 * 1024]));
        }
        let batch = log.after(0, 0);
        assert_eq!(batch.lost, 4 * 64 * 1024);
        assert_eq!(batch.events.len(), 4);
    }

    #[test]
    fn bytes_that_are_no_text_are_not_held_back_for_ever() {
        let mut log = EventLog::default();
        log.output(StreamName::Stdout, &Bytes::from_static(&[0xff, 0xfe, 0x80, 0x80, 0x80, 0x80]));
        assert_eq!(log.after(0, 0).events.len(), 1);
        log.output(StreamName::Stdout, &Bytes::from_static(&[0xe2, 0x82]));
        log.flush();
        assert_eq!(log.after(1, 0).events.len(), 1);
    }
}
