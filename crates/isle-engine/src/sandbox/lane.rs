//! The lock of a sandbox: who asks for it runs alone among those who ask, in the order they came.
//! Nothing of it is on disk: a daemon that starts finds it free, or held by the one run it took over.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use tokio::sync::oneshot;

/// The line before the lock.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    line: Mutex<Line>,
}

#[derive(Debug, Default)]
struct Line {
    taken: bool,
    waiting: VecDeque<oneshot::Sender<Turn>>,
}

/// The lock, held. Dropping it hands it to the next in line.
#[derive(Debug)]
pub(crate) struct Turn {
    /// `None` only on its way out.
    lane: Option<Arc<Lane>>,
}

/// A place in the line. Dropping it leaves the line.
#[derive(Debug)]
pub(crate) struct Waiting(oneshot::Receiver<Turn>);

/// What entering gives.
#[derive(Debug)]
pub(crate) enum Entered {
    /// The lock was free.
    Now(Turn),
    /// Others are before.
    Later(Waiting),
}

impl Lane {
    /// Takes the lock, or the last place in line.
    pub(crate) fn enter(self: &Arc<Self>) -> Entered {
        let mut line = crate::lock(&self.line);
        if !line.taken {
            line.taken = true;
            return Entered::Now(Turn::of(self));
        }
        let (sender, receiver) = oneshot::channel();
        // Who has left is only noticed when its turn comes; a long line of them would be a leak.
        line.waiting.retain(|waiting| !waiting.is_closed());
        line.waiting.push_back(sender);
        Entered::Later(Waiting(receiver))
    }
}

impl Waiting {
    /// Waits for the turn. `None` cannot happen: a lane hands on to everybody in it.
    pub(crate) async fn turn(self) -> Option<Turn> {
        self.0.await.ok()
    }
}

impl Turn {
    fn of(lane: &Arc<Lane>) -> Self {
        Self { lane: Some(Arc::clone(lane)) }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let Some(lane) = self.lane.take() else { return };
        loop {
            let next = {
                let mut line = crate::lock(&lane.line);
                let next = line.waiting.pop_front();
                line.taken = next.is_some();
                next
            };
            let Some(next) = next else { return };
            match next.send(Self::of(&lane)) {
                Ok(()) => return,
                // It has left the line: whoever is behind it is asked by this very loop.
                Err(mut refused) => drop(refused.lane.take()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn later(entered: Entered) -> Waiting {
        match entered {
            Entered::Later(waiting) => waiting,
            Entered::Now(_) => panic!("nobody held it"),
        }
    }

    fn now(entered: Entered) -> Turn {
        match entered {
            Entered::Now(turn) => turn,
            Entered::Later(_) => panic!("somebody holds it"),
        }
    }

    #[tokio::test]
    async fn turns_come_in_the_order_of_asking_and_who_left_is_passed_over() {
        let lane = Arc::new(Lane::default());
        let first = now(lane.enter());
        let (second, left, third) = (later(lane.enter()), later(lane.enter()), later(lane.enter()));
        drop(left);
        let third = third.turn();
        tokio::pin!(third);
        assert!(futures::poll!(&mut third).is_pending());
        drop(first);
        let second = second.turn().await.unwrap();
        assert!(futures::poll!(&mut third).is_pending());
        drop(second);
        drop(third.await.unwrap());
        drop(now(lane.enter()));
    }

    #[tokio::test]
    async fn a_turn_nobody_takes_up_goes_on_to_the_next() {
        let lane = Arc::new(Lane::default());
        let first = now(lane.enter());
        let (gone, next) = (later(lane.enter()), later(lane.enter()));
        // Its turn has come, and it goes without having looked.
        drop(first);
        drop(gone);
        drop(next.turn().await.unwrap());
        drop(now(lane.enter()));
    }
}
