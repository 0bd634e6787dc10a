//! Following a run: what is kept of its events, then each as it happens, then its end.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, BoxStream};

use super::events::{Happened, StreamName, complete_until};
use super::job_output::JobOutput;
use super::output::border_after;
use super::{FollowFrom, RunEvent, RunEventKind};
use super::{Run, RunKind, RunSnapshot, Runs, answer_budget};
use crate::run::output::KeptOutput;
use isle_core::Result;
use isle_core::values::RunId;

impl Runs {
    /// The events of a run from there on.
    pub(crate) fn follow(
        self: &Arc<Self>,
        id: &RunId,
        from: FollowFrom,
    ) -> Result<BoxStream<'static, RunEvent>> {
        match self.live.get(id) {
            Some(run) => Ok(self.follow_live(run, from)),
            None => {
                let pieces = stored_pieces(
                    self.snapshot(id)?,
                    answer_budget(None, &self.config),
                    from,
                    &self.job_output,
                );
                let (runs, id) = (Arc::clone(self), id.clone());
                let told = move |(number, piece)| runs.tell(id.clone(), number, piece);
                Ok(stream::iter(pieces).flat_map(told).boxed())
            }
        }
    }

    /// The next page of what is in files; what is missing there is told.
    fn next_page(&self, run: &RunId, filed: &mut Filed) -> Option<RunEventKind> {
        let left = filed.until.checked_sub(filed.at).filter(|left| *left > 0)?;
        let page = self
            .job_output
            .as_ref()
            .and_then(|job_output| job_output.read(run, filed.stream, filed.at, PAGE));
        let begins = page.as_ref().map_or(filed.until, |page| page.tail_start().min(filed.until));
        let Some(page) = page.filter(|_| begins == filed.at) else {
            filed.at = begins;
            return Some(RunEventKind::Lost(begins - (filed.until - left)));
        };
        let count = page.tail.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        filed.at += count as u64;
        Some(shown(Happened::Output(filed.stream, Bytes::copy_from_slice(&page.tail[..count]))))
    }

    /// A piece as events.
    fn tell(self: &Arc<Self>, run: RunId, number: u64, piece: Piece) -> BoxStream<'static, RunEvent> {
        match piece {
            Piece::Event(kind) => stream::iter([RunEvent { id: number, kind: *kind }]).boxed(),
            Piece::Filed(filed) => {
                stream::unfold((Arc::clone(self), run, filed), move |(runs, run, mut filed)| async move {
                    let kind = runs.next_page(&run, &mut filed)?;
                    Some((RunEvent { id: number, kind }, (runs, run, filed)))
                })
                .boxed()
            }
        }
    }

    fn follow_live(self: &Arc<Self>, run: Arc<Run>, from: FollowFrom) -> BoxStream<'static, RunEvent> {
        let newest = run.newest.subscribe();
        let state = Following {
            runs: Arc::clone(self),
            run,
            newest,
            after: match from {
                FollowFrom::After(after) => after,
                FollowFrom::Tail(_) => 0,
            },
            tail: match from {
                FollowFrom::After(_) => None,
                FollowFrom::Tail(lines) => Some(lines),
            },
            told: 0,
            filed: VecDeque::new(),
            ready: VecDeque::new(),
            over: false,
        };
        stream::unfold(state, |mut state| async move { state.next().await.map(|event| (event, state)) })
            .boxed()
    }
}

/// Output that is in files and no longer in the log, from one position to another.
#[derive(Debug, Clone, Copy)]
struct Filed {
    stream: StreamName,
    at: u64,
    until: u64,
}

/// What is told of a run that is only in the store.
enum Piece {
    Event(Box<RunEventKind>),
    Filed(Filed),
}

/// What is read from files at once.
const PAGE: usize = 64 * 1024;
const STREAMS: [StreamName; 2] = [StreamName::Stdout, StreamName::Stderr];

struct Following {
    runs: Arc<Runs>,
    run: Arc<Run>,
    newest: tokio::sync::watch::Receiver<u64>,
    after: u64,
    /// Lines to begin with; `None` once begun.
    tail: Option<usize>,
    told: u64,
    /// What comes before everything in the log.
    filed: VecDeque<Filed>,
    ready: VecDeque<RunEvent>,
    over: bool,
}

impl Following {
    async fn next(&mut self) -> Option<RunEvent> {
        loop {
            if let Some(filed) = self.filed.front_mut() {
                match self.runs.next_page(&self.run.id, filed) {
                    // Numbered like the last before the log, so that who comes back goes on with that.
                    Some(kind) => {
                        let id = self.ready.front().map_or(0, |event| event.id.saturating_sub(1));
                        return Some(RunEvent { id, kind });
                    }
                    None => drop(self.filed.pop_front()),
                }
                continue;
            }
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            if self.over {
                return None;
            }
            self.newest.borrow_and_update();
            // The end before the log: when there is an end, the log read after it is complete.
            let ended = self.run.finish().is_some();
            self.take();
            if ended {
                self.over = true;
                let result = self.runs.snapshot_of(&self.run).result(answer_budget(None, &self.runs.config));
                let id = self.after.max(*self.newest.borrow());
                self.ready.push_back(RunEvent { id, kind: RunEventKind::Ended(Box::new(result)) });
                continue;
            }
            if self.ready.is_empty() && self.newest.changed().await.is_err() {
                return None;
            }
        }
    }

    fn take(&mut self) {
        let (batch, dropped, newest, begins) = {
            let live = crate::lock(&self.run.live);
            let batch = match self.tail {
                None => live.log.after(self.after, self.told),
                Some(lines) => live.log.tail(lines),
            };
            let back = |stream| live.log.reaches_back(stream);
            let begins = [
                live.stdout.total().saturating_sub(back(StreamName::Stdout)),
                live.stderr.total().saturating_sub(back(StreamName::Stderr)),
            ];
            (batch, live.log.dropped_bytes(), live.log.last_id(), begins)
        };
        let from_the_beginning = self.after == 0 && self.tail.is_none() && self.run.kind == RunKind::Job;
        if batch.lost > 0 && from_the_beginning && self.runs.job_output.is_some() {
            let filed = STREAMS.map(|stream| Filed { stream, at: 0, until: begins[stream as usize] });
            self.filed.extend(filed);
        } else if batch.lost > 0 {
            let id = batch.events.first().map_or(self.after, |(id, _)| id.saturating_sub(1));
            self.ready.push_back(RunEvent { id, kind: RunEventKind::Lost(batch.lost) });
        }
        self.told = dropped;
        for (id, what) in batch.events {
            self.after = id;
            self.ready.push_back(RunEvent { id, kind: shown(what) });
        }
        if self.tail.take().is_some() {
            self.after = newest;
        }
    }
}

fn shown(what: Happened) -> RunEventKind {
    match what {
        Happened::Started => RunEventKind::Started,
        Happened::Gap(counts) => RunEventKind::Lost(counts.iter().sum()),
        Happened::Output(StreamName::Stdout, bytes) => {
            RunEventKind::Stdout(String::from_utf8_lossy(&bytes).into_owned())
        }
        Happened::Output(StreamName::Stderr, bytes) => {
            RunEventKind::Stderr(String::from_utf8_lossy(&bytes).into_owned())
        }
    }
}

/// What is told of a run that is only in the store: its output in order of streams, not of time.
fn stored_pieces(
    snapshot: RunSnapshot,
    budget: usize,
    from: FollowFrom,
    job_output: &Option<JobOutput>,
) -> Vec<(u64, Piece)> {
    let mut pieces = vec![Piece::event(RunEventKind::Started)];
    for (stream, kept) in [(StreamName::Stdout, &snapshot.stdout), (StreamName::Stderr, &snapshot.stderr)] {
        let filed = job_output.as_ref().is_some_and(|job_output| job_output.has(&snapshot.id, stream));
        parts(kept, stream, filed, &mut pieces);
    }
    let last = pieces.len() as u64 + 1;
    let told: Vec<(u64, Piece)> = match from {
        FollowFrom::After(after) => (1..).zip(pieces).filter(|(id, _)| *id > after).collect(),
        // Numbered like the last of all, so that who comes back after one of them gets what follows.
        FollowFrom::Tail(lines) => [
            (&snapshot.stdout, RunEventKind::Stdout as fn(String) -> RunEventKind),
            (&snapshot.stderr, RunEventKind::Stderr),
        ]
        .into_iter()
        .filter(|(kept, _)| lines > 0 && kept.total > 0)
        .map(|(kept, kind)| (last - 1, Piece::event(kind(kept.last_lines(lines, usize::MAX).text))))
        .collect(),
    };
    let ended = (last, Piece::event(RunEventKind::Ended(Box::new(snapshot.result(budget)))));
    let already_told = matches!(from, FollowFrom::After(after) if after >= last);
    told.into_iter().chain((!already_told).then_some(ended)).collect()
}

impl Piece {
    fn event(kind: RunEventKind) -> Self {
        Self::Event(Box::new(kind))
    }
}

fn parts(kept: &KeptOutput, stream: StreamName, filed: bool, pieces: &mut Vec<Piece>) {
    let output = |bytes: &[u8]| Piece::event(shown(Happened::Output(stream, Bytes::copy_from_slice(bytes))));
    let (until, begins) = (kept.head.len() as u64, kept.tail_start());
    match (kept.has_gap(), filed) {
        (true, true) => {
            // The files tell whole characters where head and tail have parts of them.
            let (head, tail) = (complete_until(&kept.head), border_after(&kept.tail, 0));
            pieces.push(output(&kept.head[..head]));
            pieces.push(Piece::Filed(Filed { stream, at: head as u64, until: begins + tail as u64 }));
            pieces.push(output(&kept.tail[tail..]));
        }
        (true, false) => {
            pieces.push(output(&kept.head));
            pieces.push(Piece::event(RunEventKind::Lost(begins - until)));
            pieces.push(output(&kept.tail));
        }
        (false, _) if kept.total > 0 => pieces.push(output(&[&kept.head[..], &kept.tail[..]].concat())),
        (false, _) => {}
    }
}
