//! What is kept of an output: its first half and its last half, so that memory stays flat however
//! much a command prints. Text is cut on borders of characters, and the cut is said in the text.

use std::collections::VecDeque;

/// One output of a run, capped while it arrives.
#[derive(Debug, Default)]
pub(crate) struct OutputBuffer {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    half: usize,
    /// After a gap nothing may be added to the head any more.
    sealed: bool,
    total: u64,
}

impl OutputBuffer {
    /// Keeps at most `cap` bytes.
    pub(crate) fn new(cap: usize) -> Self {
        Self { half: cap / 2, ..Self::default() }
    }

    /// Adds what arrived.
    pub(crate) fn push(&mut self, mut bytes: &[u8]) {
        self.total += bytes.len() as u64;
        if !self.sealed {
            let room = self.half - self.head.len();
            let (front, rest) = bytes.split_at(room.min(bytes.len()));
            self.head.extend_from_slice(front);
            bytes = rest;
        }
        if bytes.len() >= self.half {
            self.tail.clear();
            bytes = &bytes[bytes.len() - self.half..];
        }
        let excess = (self.tail.len() + bytes.len()).saturating_sub(self.half);
        self.tail.drain(..excess);
        self.tail.extend(bytes);
    }

    /// Notes that `count` bytes came before and were not kept by the agent.
    pub(crate) fn skip(&mut self, count: u64) {
        if count > 0 {
            self.total += count;
            self.sealed = true;
            self.tail.clear();
        }
    }

    /// Bytes in all, kept or not.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// Whether so many bytes more are too many for its first half.
    pub(crate) fn overflows(&self, more: usize) -> bool {
        self.total + more as u64 > self.half as u64
    }

    /// The first bytes.
    pub(crate) fn head(&self) -> &[u8] {
        &self.head
    }

    /// Bytes in memory.
    pub(crate) fn held(&self) -> usize {
        self.head.len() + self.tail.len()
    }

    /// A copy of what is kept.
    pub(crate) fn kept(&self) -> KeptOutput {
        let (front, back) = self.tail.as_slices();
        KeptOutput { head: self.head.clone(), tail: [front, back].concat(), total: self.total }
    }

    /// The last bytes, at most `count`, for a sign of life.
    pub(crate) fn last(&self, count: usize) -> Vec<u8> {
        if self.tail.is_empty() {
            return self.head[self.head.len().saturating_sub(count)..].to_vec();
        }
        self.tail.range(self.tail.len().saturating_sub(count)..).copied().collect()
    }
}

/// What is kept of an output. When nothing was dropped, `head` followed by `tail` is all of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct KeptOutput {
    /// The first bytes.
    pub(crate) head: Vec<u8>,
    /// The last bytes.
    pub(crate) tail: Vec<u8>,
    /// Bytes in all, kept or not.
    pub(crate) total: u64,
}

/// Text with its middle cut out where it had to be.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CutText {
    /// The text.
    pub(crate) text: String,
    /// Whether something is missing in it.
    pub(crate) truncated: bool,
}

/// A part of an output, by position.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct OutputPage {
    /// The text.
    pub(crate) text: String,
    /// Position of its first byte.
    pub(crate) offset: u64,
    /// Position after its last byte.
    pub(crate) next: u64,
}

impl KeptOutput {
    /// Whether bytes were dropped between head and tail.
    pub(crate) fn has_gap(&self) -> bool {
        self.total > (self.head.len() + self.tail.len()) as u64
    }

    /// Where the last bytes begin.
    pub(super) fn tail_start(&self) -> u64 {
        self.total - self.tail.len() as u64
    }

    /// What the text costs in JSON when nothing is cut, or `None` when it is more than `budget`.
    pub(crate) fn cost_within(&self, budget: usize) -> Option<usize> {
        if self.has_gap() || self.head.len() + self.tail.len() > budget {
            return None;
        }
        let cost = if self.tail.is_empty() {
            take_front(&self.head, usize::MAX).cost
        } else {
            take_front(&[&self.head[..], &self.tail[..]].concat(), usize::MAX).cost
        };
        (cost <= budget).then_some(cost)
    }

    /// The text within `budget` bytes of JSON: beginning, a line that says what is missing, end.
    pub(crate) fn cut(&self, budget: usize, run: &str, stream: &str) -> CutText {
        if self.cost_within(budget).is_some() {
            let text = if self.tail.is_empty() {
                String::from_utf8_lossy(&self.head).into_owned()
            } else {
                String::from_utf8_lossy(&[&self.head[..], &self.tail[..]].concat()).into_owned()
            };
            return CutText { text, truncated: false };
        }
        let joined;
        let (first, last): (&[u8], &[u8]) = if self.has_gap() {
            (&self.head, &self.tail)
        } else {
            joined = [&self.head[..], &self.tail[..]].concat();
            (&joined, &joined)
        };
        let front = take_front(first, budget / 2);
        // When both halves come from the same bytes they must not overlap.
        let last = if self.has_gap() { last } else { &last[front.raw..] };
        let back = take_back(last, budget / 2);
        let missing = self.total.saturating_sub((front.raw + back.raw) as u64);
        let marker = format!(
            "\n… {missing} bytes cut; logs(run_id={run}, stream={stream}, offset={}) has the rest …\n",
            front.raw
        );
        CutText { text: [front.text.as_str(), &marker, &back.text].concat(), truncated: true }
    }

    /// What is kept from `offset` on, within `budget` bytes of JSON. An offset in the dropped part
    /// is moved to where the kept end begins.
    pub(crate) fn page(&self, offset: u64, limit: usize, budget: usize) -> OutputPage {
        let head = self.head.len() as u64;
        let tail_start = self.tail_start();
        let joined;
        let (start, bytes): (u64, &[u8]) = if !self.has_gap() {
            joined = [&self.head[..], &self.tail[..]].concat();
            let start = offset.min(self.total);
            (start, &joined[usize::try_from(start).unwrap_or(usize::MAX)..])
        } else if offset < head {
            (offset, &self.head[usize::try_from(offset).unwrap_or(usize::MAX)..])
        } else {
            let start = offset.clamp(tail_start, self.total);
            (start, &self.tail[usize::try_from(start - tail_start).unwrap_or(usize::MAX)..])
        };
        // A page is never longer than asked for, unless not even one character would fit.
        let end = match border_before(bytes, limit) {
            0 => border_before(bytes, limit.max(4)),
            end => end,
        };
        let window = &bytes[..end];
        let taken = take_front(window, budget);
        OutputPage { text: taken.text, offset: start, next: start + taken.raw as u64 }
    }

    /// The last `lines` lines, within `budget` bytes of JSON; 0 means as many as fit.
    pub(crate) fn last_lines(&self, lines: usize, budget: usize) -> OutputPage {
        let joined;
        let bytes: &[u8] = if self.has_gap() {
            &self.tail
        } else {
            joined = [&self.head[..], &self.tail[..]].concat();
            &joined
        };
        let body = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        let start = match lines {
            0 => 0,
            _ => body
                .iter()
                .enumerate()
                .rev()
                .filter(|&(_, &byte)| byte == b'\n')
                .nth(lines - 1)
                .map_or(0, |(at, _)| at + 1),
        };
        let taken = take_back(&bytes[start..], budget);
        OutputPage { text: taken.text, offset: self.total - taken.raw as u64, next: self.total }
    }
}

struct Taken {
    text: String,
    raw: usize,
    cost: usize,
}

/// What a character costs inside a JSON string.
fn cost(character: char) -> usize {
    match character {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        '\0'..='\u{1f}' => 6,
        _ => character.len_utf8(),
    }
}

const REPLACEMENT: char = '\u{fffd}';

/// The longest beginning that costs at most `budget`, whole characters only.
fn take_front(bytes: &[u8], budget: usize) -> Taken {
    let mut taken = Taken { text: String::new(), raw: 0, cost: 0 };
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            if taken.cost + cost(character) > budget {
                return taken;
            }
            taken.cost += cost(character);
            taken.raw += character.len_utf8();
            taken.text.push(character);
        }
        if !chunk.invalid().is_empty() {
            if taken.cost + REPLACEMENT.len_utf8() > budget {
                return taken;
            }
            taken.cost += REPLACEMENT.len_utf8();
            taken.raw += chunk.invalid().len();
            taken.text.push(REPLACEMENT);
        }
    }
    taken
}

/// The longest end that costs at most `budget`, whole characters only.
fn take_back(bytes: &[u8], budget: usize) -> Taken {
    // No byte costs less than one, so more than `budget` bytes need not be looked at.
    let bytes = &bytes[border_after(bytes, bytes.len().saturating_sub(budget))..];
    let chunks: Vec<_> = bytes.utf8_chunks().collect();
    let mut reversed = Vec::new();
    let (mut raw, mut total) = (0, 0);
    'all: for chunk in chunks.iter().rev() {
        let invalid = (!chunk.invalid().is_empty()).then_some((REPLACEMENT, chunk.invalid().len()));
        let valid = chunk.valid().chars().rev().map(|character| (character, character.len_utf8()));
        for (character, length) in invalid.into_iter().chain(valid) {
            if total + cost(character) > budget {
                break 'all;
            }
            total += cost(character);
            raw += length;
            reversed.push(character);
        }
    }
    Taken { text: reversed.iter().rev().collect(), raw, cost: total }
}

fn is_continuation(byte: u8) -> bool {
    byte & 0b1100_0000 == 0b1000_0000
}

/// The last border of a character at or before `at`; `at` itself where the bytes are not text.
pub(crate) fn border_before(bytes: &[u8], at: usize) -> usize {
    if at >= bytes.len() {
        return bytes.len();
    }
    let earliest = at.saturating_sub(3);
    (earliest..=at).rev().find(|&index| !is_continuation(bytes[index])).unwrap_or(at)
}

/// The first border of a character at or after `at`; `at` itself where the bytes are not text.
pub(super) fn border_after(bytes: &[u8], at: usize) -> usize {
    let latest = (at + 3).min(bytes.len());
    (at..=latest).find(|&index| index == bytes.len() || !is_continuation(bytes[index])).unwrap_or(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer(cap: usize, pieces: &[&[u8]]) -> KeptOutput {
        let mut buffer = OutputBuffer::new(cap);
        for piece in pieces {
            buffer.push(piece);
        }
        buffer.kept()
    }

    #[test]
    fn a_short_output_is_kept_whole() {
        let kept = buffer(10, &[b"abc", b"def", b"ghij"]);
        assert!(!kept.has_gap());
        assert_eq!(kept.cut(100, "r", "stdout"), CutText { text: "abcdefghij".into(), truncated: false });
    }

    #[test]
    fn a_long_output_keeps_its_first_and_last_half() {
        let kept = buffer(8, &[b"0123456789", b"abcdef", b"x"]);
        assert_eq!((&kept.head[..], &kept.tail[..], kept.total), (&b"0123"[..], &b"defx"[..], 17));
        let cut = kept.cut(100, "r", "stdout");
        assert!(cut.truncated);
        assert_eq!(
            cut.text,
            "0123\n… 9 bytes cut; logs(run_id=r, stream=stdout, offset=4) has the rest …\ndefx"
        );
    }

    #[test]
    fn a_flood_does_not_grow_the_buffer() {
        let mut buffer = OutputBuffer::new(1024);
        for _ in 0..1000 {
            buffer.push(&[b'x'; 65536]);
        }
        let kept = buffer.kept();
        assert_eq!((kept.head.len(), kept.tail.len(), kept.total), (512, 512, 65_536_000));
    }

    #[test]
    fn a_cut_never_splits_a_character() {
        let text = "äöü€𝄞".repeat(50);
        for budget in 2..80 {
            let cut = buffer(1000, &[text.as_bytes()]).cut(budget, "r", "stdout");
            assert!(cut.truncated);
            assert!(!cut.text.contains(REPLACEMENT), "budget {budget}: {:?}", cut.text);
        }
    }

    #[test]
    fn control_characters_count_as_what_they_cost_in_json() {
        let kept = buffer(10_000, &[&[1u8; 5000]]);
        let cut = kept.cut(3000, "r", "stdout");
        assert!(serde_json::to_string(&cut.text).unwrap().len() < 3200);
    }

    #[test]
    fn pages_follow_each_other_without_loss() {
        let text = "zeile mit Umlauten äöü\n".repeat(40);
        let kept = buffer(100_000, &[text.as_bytes()]);
        let (mut offset, mut all) = (0, String::new());
        while offset < kept.total {
            let page = kept.page(offset, 37, 1000);
            assert_eq!(page.offset, offset);
            all.push_str(&page.text);
            offset = page.next;
        }
        assert_eq!(all, text);
    }

    #[test]
    fn a_page_is_no_longer_than_asked_for_unless_a_character_is() {
        let kept = buffer(100, &["ab€cd".as_bytes()]);
        assert_eq!(kept.page(0, 1, 100).text, "a");
        assert_eq!(kept.page(0, 4, 100).text, "ab");
        assert_eq!(kept.page(2, 1, 100).text, "€c");
        assert_eq!(kept.page(5, 1, 100).text, "c");
    }

    #[test]
    fn a_page_in_the_dropped_part_starts_where_the_kept_end_begins() {
        let kept = buffer(8, &[b"0123456789abcdef"]);
        assert_eq!(kept.page(6, 100, 100), OutputPage { text: "cdef".into(), offset: 12, next: 16 });
        assert_eq!(kept.page(2, 100, 100), OutputPage { text: "23".into(), offset: 2, next: 4 });
        assert_eq!(kept.page(99, 100, 100), OutputPage { text: String::new(), offset: 16, next: 16 });
    }

    #[test]
    fn the_last_lines_are_the_last_lines() {
        let kept = buffer(100, &[b"one\ntwo\nthree\n"]);
        assert_eq!(kept.last_lines(2, 100).text, "two\nthree\n");
        assert_eq!(kept.last_lines(0, 100).text, "one\ntwo\nthree\n");
        assert_eq!(kept.last_lines(9, 100).text, "one\ntwo\nthree\n");
    }

    #[test]
    fn a_gap_told_by_the_agent_counts_and_is_seen() {
        let mut buffer = OutputBuffer::new(100);
        buffer.push(b"start");
        buffer.skip(1000);
        buffer.push(b"end");
        let kept = buffer.kept();
        assert!(kept.has_gap());
        assert_eq!((&kept.head[..], &kept.tail[..], kept.total), (&b"start"[..], &b"end"[..], 1008));
    }
}
