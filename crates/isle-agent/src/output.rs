//! The output of a run: the first and last part of each stream for clients that attach later, and a short
//! queue of fresh chunks for current followers. Both are bounded.

use std::collections::VecDeque;

use bytes::Bytes;

/// Which output stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Channel {
    Stdout,
    Stderr,
}

/// First and last part of one output.
#[derive(Debug, Default)]
pub(crate) struct Retained {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    half: usize,
    total: u64,
}

impl Retained {
    pub(crate) fn new(keep: u64) -> Self {
        Self { half: usize::try_from(keep / 2).unwrap_or(usize::MAX), ..Self::default() }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let room = self.half.saturating_sub(self.head.len()).min(bytes.len());
        self.head.extend_from_slice(&bytes[..room]);
        let rest = &bytes[room..];
        let rest = &rest[rest.len().saturating_sub(self.half)..];
        let excess = (self.tail.len() + rest.len()).saturating_sub(self.half);
        self.tail.drain(..excess);
        self.tail.extend(rest);
    }

    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// Head, bytes missing after it, tail.
    pub(crate) fn snapshot(&self) -> (Bytes, u64, Bytes) {
        let kept = (self.head.len() + self.tail.len()) as u64;
        let tail: Vec<u8> = self.tail.iter().copied().collect();
        (Bytes::copy_from_slice(&self.head), self.total - kept, tail.into())
    }
}

/// Fresh chunks in the order they were read, numbered from 0.
#[derive(Debug, Default)]
pub(crate) struct Fresh {
    chunks: VecDeque<(Channel, Bytes)>,
    first: u64,
    bytes: usize,
}

/// How many bytes a follower may be behind.
const WINDOW: usize = 256 * 1024;

impl Fresh {
    pub(crate) fn push(&mut self, channel: Channel, bytes: Bytes) {
        self.bytes += bytes.len();
        self.chunks.push_back((channel, bytes));
    }

    /// Number of the chunk that will come next.
    pub(crate) fn end(&self) -> u64 {
        self.first + self.chunks.len() as u64
    }

    pub(crate) fn get(&self, number: u64) -> Option<(Channel, Bytes)> {
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.chunks.get(index).cloned()
    }

    /// Drops chunks that all followers have sent.
    pub(crate) fn seen_until(&mut self, number: u64) {
        while self.first < number {
            let Some((_, bytes)) = self.chunks.pop_front() else { break };
            self.bytes -= bytes.len();
            self.first += 1;
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.bytes >= WINDOW
    }
}
