//! Following a run: what is kept of its events, then each as it happens, then its end.

use std::collections::VecDeque;
use std::sync::Arc;

use futures::StreamExt;
use futures::stream::{self, BoxStream};

use super::events::{Happened, StreamName};
use super::{Run, RunSnapshot, answer_budget};
use crate::engine::{Inner, RunEvent, RunEventKind};
use crate::error::Result;
use crate::run::output::KeptOutput;
use crate::values::RunId;

impl Inner {
    /// The events of a run after the one with the id `after`.
    pub(crate) fn follow(self: &Arc<Self>, id: &RunId, after: u64) -> Result<BoxStream<'static, RunEvent>> {
        match self.runs.get(id) {
            Some(run) => Ok(self.follow_live(run, after)),
            None => {
                let events = stored_events(self.snapshot(id)?, answer_budget(None, &self.config));
                Ok(stream::iter(events.into_iter().filter(move |event| event.id > after)).boxed())
            }
        }
    }

    fn follow_live(self: &Arc<Self>, run: Arc<Run>, after: u64) -> BoxStream<'static, RunEvent> {
        let newest = run.newest.subscribe();
        let state = Following {
            inner: Arc::clone(self),
            run,
            newest,
            after,
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
        let (batch, dropped) = {
            let live = crate::lock(&self.run.live);
            (live.log.after(self.after, self.told), live.log.dropped_bytes())
        };
        if batch.lost > 0 {
            let id = batch.events.first().map_or(self.after, |(id, _)| id - 1);
            self.ready.push_back(RunEvent { id, kind: RunEventKind::Lost(batch.lost) });
        }
        self.told = dropped;
        for (id, what) in batch.events {
            self.after = id;
            self.ready.push_back(RunEvent { id, kind: shown(what) });
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
fn stored_events(snapshot: RunSnapshot, budget: usize) -> Vec<RunEvent> {
    let mut kinds = vec![RunEventKind::Started];
    parts(&snapshot.stdout, &mut kinds, RunEventKind::Stdout);
    parts(&snapshot.stderr, &mut kinds, RunEventKind::Stderr);
    kinds.push(RunEventKind::Ended(Box::new(snapshot.result(budget))));
    (1..).zip(kinds).map(|(id, kind)| RunEvent { id, kind }).collect()
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
