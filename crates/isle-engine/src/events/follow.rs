//! Following the bus from a place in it: what is kept since then, then what happens. Gaps are told.

use std::collections::VecDeque;
use std::sync::Arc;

use futures::stream::{self, BoxStream, StreamExt};
use tokio::sync::watch;

use super::{Event, EventKind, Events, Shared};
use isle_core::values::{RunId, SandboxName};

/// Events looked at at once.
const BATCH: usize = 256;

/// Which events somebody wants to hear of. What is `None` or empty does not matter.
#[derive(Debug, Clone, Default)]
pub struct EventSelection {
    /// Only of this namespace.
    pub namespace: Option<String>,
    /// Only of these kinds.
    pub kinds: Vec<EventKind>,
    /// Only of this sandbox.
    pub sandbox: Option<SandboxName>,
    /// Only of this run.
    pub run: Option<RunId>,
}

impl EventSelection {
    pub(crate) fn takes(&self, event: &Event) -> bool {
        let same = |wanted: Option<&str>, found: Option<&str>| wanted.is_none() || wanted == found;
        (self.kinds.is_empty() || self.kinds.contains(&event.kind))
            && same(self.namespace.as_deref(), Some(&event.namespace))
            && same(self.sandbox.as_ref().map(SandboxName::as_str), event.sandbox.as_deref())
            && same(self.run.as_ref().map(RunId::as_str), event.run.as_deref())
    }
}

/// What a follower gets.
#[derive(Debug, Clone)]
pub enum FollowedEvent {
    /// Events are gone that it had not seen.
    Lost {
        /// How many, those it did not ask for included.
        events: u64,
        /// The place up to which that is told.
        id: u64,
    },
    /// One that it asked for.
    Event(Shared),
}

impl FollowedEvent {
    fn id(&self) -> u64 {
        match self {
            Self::Lost { id, .. } => *id,
            Self::Event(told) => told.id,
        }
    }
}

/// Somebody with a place on the bus.
pub(crate) struct Follower {
    bus: Arc<Events>,
    newest: watch::Receiver<u64>,
    selection: EventSelection,
    place: u64,
    ready: VecDeque<FollowedEvent>,
}

impl Events {
    /// Follows from after an id; `None` is from now on. A place that was never reached is one of another
    /// numbering, so all that is kept is new to whoever comes with it.
    pub(crate) fn follow(
        self: &Arc<Self>,
        after: Option<u64>,
        selection: EventSelection,
    ) -> BoxStream<'static, FollowedEvent> {
        stream::unfold(self.follower(after, selection), |mut follower| async move {
            let next = follower.next().await?;
            Some((next, follower))
        })
        .boxed()
    }

    /// The same for who wants to know its place.
    pub(crate) fn follower(self: &Arc<Self>, after: Option<u64>, selection: EventSelection) -> Follower {
        let newest = self.newest();
        let place = match after {
            None => newest,
            Some(id) if id > newest => 0,
            Some(id) => id,
        };
        Follower { bus: Arc::clone(self), newest: self.subscribe(), selection, place, ready: VecDeque::new() }
    }
}

impl Follower {
    async fn next(&mut self) -> Option<FollowedEvent> {
        self.until_ready().await?;
        self.ready.pop_front()
    }

    /// Waits until there is something for it; who stops waiting loses nothing.
    pub(crate) async fn until_ready(&mut self) -> Option<()> {
        while self.ready.is_empty() {
            self.newest.borrow_and_update();
            if !self.look() {
                self.newest.changed().await.ok()?;
            }
        }
        Some(())
    }

    /// What is there now, at most so many, and the place behind it.
    pub(crate) fn take(&mut self, most: usize) -> (Vec<FollowedEvent>, u64) {
        while self.ready.len() < most && self.look() {}
        let taken: Vec<FollowedEvent> = self.ready.drain(..self.ready.len().min(most)).collect();
        let behind = match taken.last() {
            Some(last) if !self.ready.is_empty() => last.id(),
            Some(_) | None => self.place,
        };
        (taken, behind)
    }

    /// Where it is: nothing before is of interest to it any more, unless something is ready.
    pub(crate) fn place(&self) -> Option<u64> {
        self.ready.is_empty().then_some(self.place)
    }

    /// Takes what there is after its place; whether there was anything.
    fn look(&mut self) -> bool {
        let before = self.place;
        let (events, upto) = match self.bus.after(self.place, BATCH) {
            Ok(found) => found,
            Err(error) => {
                // What cannot be read is as good as gone, and the ring goes on.
                tracing::warn!(%error, "the history of events could not be read");
                (Vec::new(), self.bus.oldest_in_memory() - 1)
            }
        };
        for event in events {
            self.miss(event.id - 1);
            self.place = event.id;
            if self.selection.takes(&event.event) {
                self.ready.push_back(FollowedEvent::Event(event));
            }
        }
        self.miss(upto);
        self.place != before
    }

    /// Nothing between its place and `upto` is left.
    fn miss(&mut self, upto: u64) {
        if upto > self.place {
            // Whoever asks for everything from the beginning has not missed what was before it.
            if self.place > 0 {
                self.ready.push_back(FollowedEvent::Lost { events: upto - self.place, id: upto });
            }
            self.place = upto;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use isle_store::Store;

    use super::*;

    fn publish(bus: &Events, kind: EventKind, count: usize) {
        for number in 0..count {
            bus.publish(
                Event::new(kind, &isle_core::values::Namespace::default(), format!("event {number}")),
                &[],
            );
        }
    }

    fn drain(stream: &mut BoxStream<'static, FollowedEvent>) -> Vec<String> {
        let mut told = Vec::new();
        while let Some(Some(next)) = stream.next().now_or_never() {
            told.push(match next {
                FollowedEvent::Lost { events, .. } => format!("lost {events}"),
                FollowedEvent::Event(event) => event.id.to_string(),
            });
        }
        told
    }

    fn bus(directory: &std::path::Path) -> Arc<Events> {
        Arc::new(Events::open(Store::open(directory).unwrap()).unwrap())
    }

    #[tokio::test]
    async fn a_follower_hears_what_is_kept_and_what_happens_in_order() {
        let directory = tempfile::tempdir().unwrap();
        let bus = bus(directory.path());
        publish(&bus, EventKind::RunStarted, 3);
        let mut from_two = bus.follow(Some(1), EventSelection::default());
        let mut from_now = bus.follow(None, EventSelection::default());
        let only = EventSelection { kinds: vec![EventKind::SandboxCreated], ..EventSelection::default() };
        let mut chosen = bus.follow(Some(0), only);
        publish(&bus, EventKind::SandboxCreated, 1);
        assert_eq!(drain(&mut from_two), ["2", "3", "4"]);
        assert_eq!(drain(&mut from_now), ["4"]);
        assert_eq!(drain(&mut chosen), ["4"]);
    }

    #[tokio::test]
    async fn who_is_too_slow_for_the_ring_reads_the_history_and_is_told_of_what_is_gone() {
        let directory = tempfile::tempdir().unwrap();
        let bus = bus(directory.path());
        let mut slow = bus.follow(Some(0), EventSelection::default());
        publish(&bus, EventKind::RunStarted, 10);
        assert_eq!(drain(&mut slow).len(), 10);
        // More than the ring holds; nothing is written down before the first of these is pushed out.
        publish(&bus, EventKind::RunStarted, 9000);
        let told = drain(&mut slow);
        assert_eq!(told[0], format!("lost {}", 9000 - 4096));
        assert_eq!(told.len(), 1 + 4096);
        bus.flush();
        // Of 9,010 the newest 8,192 waited to be written.
        let mut late = bus.follow(Some(5), EventSelection::default());
        let told = drain(&mut late);
        assert_eq!((told[0].as_str(), told.len()), ("lost 813", 1 + 8192));
    }

    #[tokio::test]
    async fn ids_go_on_after_a_crash_and_what_was_not_written_is_told_as_lost() {
        let directory = tempfile::tempdir().unwrap();
        let first = bus(directory.path());
        publish(&first, EventKind::RunStarted, 5);
        first.flush();
        publish(&first, EventKind::RunStarted, 2);
        drop(first);
        let second = bus(directory.path());
        let mut resumed = second.follow(Some(4), EventSelection::default());
        assert_eq!(drain(&mut resumed), ["5", "lost 2"]);
        publish(&second, EventKind::RunStarted, 1);
        assert_eq!(drain(&mut resumed), ["8"]);
        // A place nobody ever reached belongs to another numbering.
        let mut stranger = second.follow(Some(1_000_000), EventSelection::default());
        assert_eq!(drain(&mut stranger), ["1", "2", "3", "4", "5", "lost 2", "8"]);
    }
}
