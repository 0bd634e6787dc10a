//! Looking over a run's shoulder: any number of viewers see its output as it comes and may write to
//! it. None of them can hold it back: who reads too slowly misses output and is told how much. A
//! terminal has the size of the smallest window that looks at it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes};
use isle_wire::TerminalSize;
use tokio::sync::mpsc;

use super::SessionEvent;
use super::events::{Happened, StreamName};
use super::{Run, Runs, answer_budget};
use crate::agent::ExecSignal;
use crate::events::EventKind;
use isle_core::Code;

/// Bytes of earlier output a new viewer gets.
const REPLAY: usize = 16 * 1024;
/// How long the agent may hold input before it is asked again.
const PATIENCE: Duration = Duration::from_secs(2);

/// Who looks, and how large their windows are.
#[derive(Debug, Default)]
pub(super) struct Viewers {
    windows: HashMap<u64, TerminalSize>,
    next: u64,
    size: Option<TerminalSize>,
}

impl Viewers {
    /// The size all windows can show.
    fn smallest(&self) -> Option<TerminalSize> {
        let rows = self.windows.values().map(|window| window.rows).min()?;
        let columns = self.windows.values().map(|window| window.columns).min()?;
        Some(TerminalSize { rows, columns })
    }

    /// The size to set now, when it is another than before.
    fn change(&mut self) -> Option<TerminalSize> {
        let size = self.smallest()?;
        (self.size.replace(size) != Some(size)).then_some(size)
    }
}

impl Run {
    /// Shows it to one viewer until it ends, the viewer leaves, or the engine does.
    pub(crate) async fn show(
        self: Arc<Self>,
        runs: Arc<Runs>,
        window: Option<TerminalSize>,
        signals: mpsc::Receiver<ExecSignal>,
        events: mpsc::Sender<SessionEvent>,
    ) {
        let number = self.enter(window).await;
        runs.notifier.session(&self, EventKind::SessionOpened, true);
        tokio::select! {
            () = self.tell(&runs, &events) => {}
            () = self.hear(signals, number) => {}
            () = events.closed() => {}
            () = runs.tasks.leaving().cancelled() => {}
        }
        runs.notifier.session(&self, EventKind::SessionClosed, true);
        crate::lock(&self.viewers).windows.remove(&number);
        self.fit().await;
    }

    async fn enter(self: &Arc<Self>, window: Option<TerminalSize>) -> u64 {
        let (number, same) = {
            let mut viewers = crate::lock(&self.viewers);
            let number = viewers.next;
            viewers.next += 1;
            if let Some(window) = window.filter(|_| self.terminal) {
                viewers.windows.insert(number, window);
            }
            (number, viewers.size.filter(|size| viewers.smallest() == Some(*size)))
        };
        match same {
            // Whatever draws a screen draws it anew when its window changes.
            Some(size) if size.rows > 1 => {
                self.resize(TerminalSize { rows: size.rows - 1, ..size }).await.ok();
                self.resize(size).await.ok();
            }
            _ => self.fit().await,
        }
        number
    }

    /// Gives the terminal the size all windows can show. One that nobody looks at keeps its last.
    async fn fit(self: &Arc<Self>) {
        let change = crate::lock(&self.viewers).change();
        if let Some(size) = change {
            // A run that has ended needs no size.
            self.resize(size).await.ok();
        }
    }

    /// Output as it comes, then the end.
    async fn tell(self: &Arc<Self>, runs: &Arc<Runs>, events: &mpsc::Sender<SessionEvent>) {
        let mut newest = self.newest.subscribe();
        let (mut after, mut told) = (0, 0);
        let mut first = true;
        loop {
            newest.borrow_and_update();
            // The end before the log: when there is an end, the log read after it is complete.
            let ended = self.finish().is_some();
            let (mut batch, dropped, last) = {
                let live = crate::lock(&self.live);
                (live.log.after(after, told), live.log.dropped_bytes(), live.log.last_id())
            };
            if std::mem::take(&mut first) {
                batch.lost = 0;
                batch.events = latest(batch.events);
            }
            (after, told) = (last, dropped);
            let lost = (batch.lost > 0).then_some(SessionEvent::Lost(batch.lost));
            for event in lost.into_iter().chain(batch.events.into_iter().filter_map(|(_, what)| shown(what)))
            {
                if events.send(event).await.is_err() {
                    return;
                }
            }
            if ended {
                let result = runs.snapshot_of(self).result(answer_budget(None, &runs.config));
                events.send(SessionEvent::Ended(Box::new(result))).await.ok();
                return;
            }
            if newest.changed().await.is_err() {
                return;
            }
        }
    }

    /// What a viewer sends, until it leaves.
    async fn hear(self: &Arc<Self>, mut signals: mpsc::Receiver<ExecSignal>, number: u64) {
        while let Some(signal) = signals.recv().await {
            match signal {
                ExecSignal::Stdin(bytes) => self.put(bytes).await,
                // A viewer who has nothing more to say does not speak for the others; whoever wants to
                // end the input of a job writes so.
                ExecSignal::CloseStdin => {}
                ExecSignal::Resize(window) => {
                    if self.terminal {
                        crate::lock(&self.viewers).windows.insert(number, window);
                        self.fit().await;
                    }
                }
                ExecSignal::Signal(signal) => {
                    if let Ok(agent) = self.sandbox.agent() {
                        agent.signal(self.id.as_str(), signal, false).await.ok();
                    }
                }
            }
        }
        // The output goes on without input.
        std::future::pending::<()>().await;
    }

    async fn put(self: &Arc<Self>, mut bytes: Bytes) {
        while !bytes.is_empty() {
            match self.write(bytes.clone(), false, PATIENCE).await {
                Ok(taken) => bytes.advance(usize::try_from(taken).unwrap_or(bytes.len()).min(bytes.len())),
                Err(error) if error.code == Code::Busy => tokio::time::sleep(PATIENCE).await,
                // It does not take input: what was typed goes nowhere, as at a terminal nobody reads.
                Err(_) => return,
            }
        }
    }
}

/// The last of earlier output.
fn latest(events: Vec<(u64, Happened)>) -> Vec<(u64, Happened)> {
    let mut room = REPLAY;
    let mut kept: Vec<_> = events
        .into_iter()
        .rev()
        .map_while(|(id, what)| match what {
            Happened::Output(stream, bytes) => {
                let start = bytes.len().saturating_sub(room);
                room = room.saturating_sub(bytes.len());
                (start < bytes.len()).then(|| (id, Happened::Output(stream, bytes.slice(start..))))
            }
            Happened::Started | Happened::Gap(_) => Some((id, what)),
        })
        .collect();
    kept.reverse();
    kept
}

fn shown(what: Happened) -> Option<SessionEvent> {
    match what {
        Happened::Output(StreamName::Stdout, bytes) => Some(SessionEvent::Stdout(bytes)),
        Happened::Output(StreamName::Stderr, bytes) => Some(SessionEvent::Stderr(bytes)),
        Happened::Gap(counts) => Some(SessionEvent::Lost(counts.iter().sum())),
        Happened::Started => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_fits_into_every_window() {
        let mut viewers = Viewers::default();
        assert_eq!(viewers.change(), None);
        viewers.windows.insert(0, TerminalSize { rows: 50, columns: 80 });
        assert_eq!(viewers.change(), Some(TerminalSize { rows: 50, columns: 80 }));
        viewers.windows.insert(1, TerminalSize { rows: 24, columns: 120 });
        assert_eq!(viewers.change(), Some(TerminalSize { rows: 24, columns: 80 }));
        assert_eq!(viewers.change(), None);
        viewers.windows.remove(&0);
        assert_eq!(viewers.change(), Some(TerminalSize { rows: 24, columns: 120 }));
        viewers.windows.remove(&1);
        assert_eq!(viewers.change(), None);
    }

    #[test]
    fn a_new_viewer_gets_the_last_of_what_was_said() {
        let said = |id, count| (id, Happened::Output(StreamName::Stdout, Bytes::from(vec![b'x'; count])));
        let sizes = |events: Vec<(u64, Happened)>| -> Vec<usize> {
            let size = |(_, what)| if let Happened::Output(_, bytes) = what { bytes.len() } else { 0 };
            events.into_iter().map(size).collect()
        };
        assert_eq!(sizes(latest(vec![said(1, 10), said(2, 20)])), [10, 20]);
        assert_eq!(sizes(latest(vec![said(1, 9), said(2, REPLAY), said(3, 100)])), [REPLAY - 100, 100]);
        assert!(latest(Vec::new()).is_empty());
    }
}
