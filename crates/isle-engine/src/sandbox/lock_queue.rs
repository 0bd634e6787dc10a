//! The lock of a sandbox: who asks for it runs alone among those who ask, in the order of asking.
//! Nothing of it is on disk: a daemon that starts finds it free, or held by the one run it took over.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use tokio::sync::oneshot;

/// Who has the lock, and who waits for it.
#[derive(Debug, Default)]
pub(crate) struct LockQueue {
    state: Mutex<LockState>,
}

#[derive(Debug, Default)]
struct LockState {
    taken: bool,
    waiting: VecDeque<oneshot::Sender<LockHeld>>,
}

/// The lock, held. Dropping it hands it to the next who waits.
#[derive(Debug)]
pub(crate) struct LockHeld {
    /// `None` only on its way out.
    queue: Option<Arc<LockQueue>>,
}

/// A place in the queue. Dropping it leaves the queue.
#[derive(Debug)]
pub(crate) struct Waiting(oneshot::Receiver<LockHeld>);

/// What entering gives.
#[derive(Debug)]
pub(crate) enum LockRequest {
    /// The lock was free.
    Granted(LockHeld),
    /// Others are before.
    Queued(Waiting),
}

impl LockQueue {
    /// Takes the lock, or the last place in the queue.
    pub(crate) fn enter(self: &Arc<Self>) -> LockRequest {
        let mut state = crate::lock(&self.state);
        if !state.taken {
            state.taken = true;
            return LockRequest::Granted(LockHeld::of(self));
        }
        let (sender, receiver) = oneshot::channel();
        // Who has left is only noticed when its turn comes; a long queue of them would be a leak.
        state.waiting.retain(|waiting| !waiting.is_closed());
        state.waiting.push_back(sender);
        LockRequest::Queued(Waiting(receiver))
    }
}

impl Waiting {
    /// Waits for the turn. `None` cannot happen: a queue hands on to everybody in it.
    pub(crate) async fn turn(self) -> Option<LockHeld> {
        self.0.await.ok()
    }
}

impl LockHeld {
    fn of(queue: &Arc<LockQueue>) -> Self {
        Self { queue: Some(Arc::clone(queue)) }
    }
}

impl Drop for LockHeld {
    fn drop(&mut self) {
        let Some(queue) = self.queue.take() else { return };
        loop {
            let next = {
                let mut state = crate::lock(&queue.state);
                let next = state.waiting.pop_front();
                state.taken = next.is_some();
                next
            };
            let Some(next) = next else { return };
            match next.send(Self::of(&queue)) {
                Ok(()) => return,
                // It has left the queue: whoever is behind it is asked by this very loop.
                Err(mut refused) => drop(refused.queue.take()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn later(entered: LockRequest) -> Waiting {
        match entered {
            LockRequest::Queued(waiting) => waiting,
            LockRequest::Granted(_) => panic!("nobody held it"),
        }
    }

    fn now(entered: LockRequest) -> LockHeld {
        match entered {
            LockRequest::Granted(turn) => turn,
            LockRequest::Queued(_) => panic!("somebody holds it"),
        }
    }

    #[tokio::test]
    async fn turns_come_in_the_order_of_asking_and_who_left_is_passed_over() {
        let queue = Arc::new(LockQueue::default());
        let first = now(queue.enter());
        let (second, left, third) = (later(queue.enter()), later(queue.enter()), later(queue.enter()));
        drop(left);
        let third = third.turn();
        tokio::pin!(third);
        assert!(futures::poll!(&mut third).is_pending());
        drop(first);
        let second = second.turn().await.unwrap();
        assert!(futures::poll!(&mut third).is_pending());
        drop(second);
        drop(third.await.unwrap());
        drop(now(queue.enter()));
    }

    #[tokio::test]
    async fn a_turn_nobody_takes_up_goes_on_to_the_next() {
        let queue = Arc::new(LockQueue::default());
        let first = now(queue.enter());
        let (gone, next) = (later(queue.enter()), later(queue.enter()));
        // Its turn has come, and it goes without having looked.
        drop(first);
        drop(gone);
        drop(next.turn().await.unwrap());
        drop(now(queue.enter()));
    }
}
