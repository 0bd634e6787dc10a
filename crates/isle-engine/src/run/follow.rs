//! Following a run: what is kept of its events, then each as it happens, then its end.

use std::collections::VecDeque;
use std::sync::Arc;

use futures::StreamExt;
use futures::stream::{self, BoxStream};

use super::events::{Happened, StreamName};
use super::{Run, RunSnapshot, answer_budget};
use crate::engine::{FollowFrom, Inner, RunEvent, RunEventKind};
use crate::error::Result;
use crate::run::output::KeptOutput;
use crate::values::RunId;

impl Inner {
    /// The events of a run from there on.
    pub(crate) fn follow(
        self: &Arc<Self>,
        id: &RunId,
        from: FollowFrom,
    ) -> Result<BoxStream<'static, RunEvent>> {
        match self.runs.get(id) {
            Some(run) => Ok(self.follow_live(run, from)),
            None => {
                let events = stored_events(self.snapshot(id)?, answer_budget(None, &self.config), from);
                Ok(stream::iter(events).boxed())
            }
        }
    }

    fn follow_live(self: &Arc<Self>, run: Arc<Run>, from: FollowFrom) -> BoxStream<'static, RunEvent> {
        let newest = run.newest.subscribe();
        let state = Following {
            inner: Arc::clone(self),
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
            ready: VecDeque::new(),
            over: false,
        };
        stream::unfold(state, |mut state| async move { state.next().await.map(|event| (event, state)) })
            .boxed()
    }
}

struct Following {
    inner: Arc<Inner>,
    run: Arc<Run>,
    newest: tokio::sync::watch::Receiver<u64>,
    after: u64,
    /// Lines to begin with; `None` once begun.
    tail: Option<usize>,
    told: u64,
    ready: VecDeque<RunEvent>,
    over: bool,
}

impl Following {
    async fn next(&mut self) -> Option<RunEvent> {
        loop {
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
                let result =
                    self.inner.snapshot_of(&self.run).result(answer_budget(None, &self.inner.config));
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
        let (batch, dropped, newest) = {
            let live = crate::lock(&self.run.live);
            let batch = match self.tail {
                None => live.log.after(self.after, self.told),
                Some(lines) => live.log.tail(lines),
            };
            (batch, live.log.dropped_bytes(), live.log.last_id())
        };
        if batch.lost > 0 {
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
        Happened::Gap(count) => RunEventKind::Lost(count),
        Happened::Output(StreamName::Stdout, bytes) => {
            RunEventKind::Stdout(String::from_utf8_lossy(&bytes).into_owned())
        }
        Happened::Output(StreamName::Stderr, bytes) => {
            RunEventKind::Stderr(String::from_utf8_lossy(&bytes).into_owned())
        }
    }
}

/// The events of a run that is only in the store: its output in order of streams, not of time.
fn stored_events(snapshot: RunSnapshot, budget: usize, from: FollowFrom) -> Vec<RunEvent> {
    let mut kinds = vec![RunEventKind::Started];
    parts(&snapshot.stdout, &mut kinds, RunEventKind::Stdout);
    parts(&snapshot.stderr, &mut kinds, RunEventKind::Stderr);
    let last = kinds.len() as u64 + 1;
    let events: Vec<RunEvent> = match from {
        FollowFrom::After(after) => {
            let numbered = (1..).zip(kinds).map(|(id, kind)| RunEvent { id, kind });
            numbered.filter(|event| event.id > after).collect()
        }
        // Numbered like the last of all, so that who comes back after one of them gets what follows.
        FollowFrom::Tail(lines) => [
            (&snapshot.stdout, RunEventKind::Stdout as fn(String) -> RunEventKind),
            (&snapshot.stderr, RunEventKind::Stderr),
        ]
        .into_iter()
        .filter(|(kept, _)| lines > 0 && kept.total > 0)
        .map(|(kept, kind)| RunEvent { id: last - 1, kind: kind(kept.last_lines(lines, usize::MAX).text) })
        .collect(),
    };
    let ended = RunEvent { id: last, kind: RunEventKind::Ended(Box::new(snapshot.result(budget))) };
    let already_told = matches!(from, FollowFrom::After(after) if after >= last);
    events.into_iter().chain((!already_told).then_some(ended)).collect()
}

fn parts(kept: &KeptOutput, kinds: &mut Vec<RunEventKind>, kind: fn(String) -> RunEventKind) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if kept.has_gap() {
        kinds.push(kind(text(&kept.head)));
        kinds.push(RunEventKind::Lost(kept.total - (kept.head.len() + kept.tail.len()) as u64));
        kinds.push(kind(text(&kept.tail)));
    } else if kept.total > 0 {
        kinds.push(kind(text(&[&kept.head[..], &kept.tail[..]].concat())));
    }
}
