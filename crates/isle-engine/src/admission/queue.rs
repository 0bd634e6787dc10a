//! The queue in front of the pipeline.
//!
//! Owns how many commands run at once and which calls wait, by namespace. A call that may run gets a
//! [`RunPermit`], which is given back however the run ends; when there is room, getting one is one short lock.
//!
//! Namespaces take turns by their weights: each turn moves a namespace further, the less the heavier it is, and
//! the one that has come least far is next. When the queue is full, whoever has the longest part of it for its
//! weight gives way: the caller itself, or the last of another namespace. So no namespace starves another.
//!
//! Called by the pipeline's stage `admit`; `tuning` changes its capacity, `engine::shutdown` closes it.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crate::context::CallContext;
use crate::engine::Quotas;
use crate::pipeline::{cancelled, stopping};
use isle_core::values::Namespace;
use isle_core::{Code, Error, Result};

/// Nothing sets more than this.
pub(crate) const MOST_PLACES: usize = 16_384;
/// How far one turn moves a namespace of weight 1.
const STRIDE: u64 = 1_000_000;
/// When to come back, at least and at most.
const SOONEST: u64 = 1;
const LATEST: u64 = 60;

/// Commands that may run at once, and calls that may wait for their turn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Capacity {
    pub(crate) running: usize,
    pub(crate) waiting: usize,
}

impl Capacity {
    /// As the settings say.
    pub(crate) fn of(quotas: &Quotas) -> Self {
        let whole = |count: u32| usize::try_from(count).unwrap_or(MOST_PLACES).min(MOST_PLACES);
        Self { running: whole(quotas.max_running).max(1), waiting: whole(quotas.max_waiting) }
    }
}

/// The gate of the first stage.
#[derive(Debug)]
pub(crate) struct Admission {
    shared: Arc<Shared>,
    /// Nanoseconds that callers have spent here.
    waited: AtomicU64,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<QueueState>,
}

/// What goes on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) running: usize,
    pub(crate) waiting: usize,
    /// Since the start.
    pub(crate) admitted: u64,
    /// Since the start: turned away because the queue was full.
    pub(crate) refused: u64,
}

#[derive(Debug, Default)]
struct QueueState {
    capacity: Capacity,
    weights: BTreeMap<Namespace, u32>,
    all: Load,
    tenants: HashMap<Namespace, Tenant>,
    /// How far the queue has come; who joins it starts there.
    clock: u64,
    next_waiter: u64,
    /// How long a permit is held, on the average of late.
    held: Duration,
    closed: bool,
}

#[derive(Debug, Default)]
struct Tenant {
    load: Load,
    /// How far its turns have brought it.
    pass: u64,
    waiters: VecDeque<Waiter>,
}

#[derive(Debug)]
struct Waiter {
    number: u64,
    turn: oneshot::Sender<Result<RunPermit>>,
}

/// A permit among those that run, given back however that ends.
#[derive(Debug)]
pub(crate) struct RunPermit {
    shared: Arc<Shared>,
    namespace: Namespace,
    since: Instant,
}

impl Drop for RunPermit {
    fn drop(&mut self) {
        let turns = {
            let mut state = crate::lock(&self.shared.state);
            state.all.running = state.all.running.saturating_sub(1);
            if let Some(tenant) = state.tenants.get_mut(&self.namespace) {
                tenant.load.running = tenant.load.running.saturating_sub(1);
            }
            state.held = (state.held * 7 + self.since.elapsed()) / 8;
            state.turns()
        };
        self.shared.grant(turns);
    }
}

impl Shared {
    /// Tells those whose turn it is. Not under the lock: one that is gone gives its permit back at once.
    fn grant(self: &Arc<Self>, turns: Vec<(Namespace, oneshot::Sender<Result<RunPermit>>)>) {
        for (namespace, turn) in turns {
            let permit = RunPermit { shared: Arc::clone(self), namespace, since: Instant::now() };
            drop(turn.send(Ok(permit)));
        }
    }
}

impl QueueState {
    fn enter(&mut self, namespace: &Namespace) {
        self.all.running += 1;
        self.all.admitted += 1;
        // Nearly always it is there; then nothing is cloned.
        if !self.tenants.contains_key(namespace) {
            self.tenants.insert(namespace.clone(), Tenant::default());
        }
        if let Some(tenant) = self.tenants.get_mut(namespace) {
            tenant.load.running += 1;
            tenant.load.admitted += 1;
        }
    }

    /// Those who may run now, and are counted as running from here on.
    fn turns(&mut self) -> Vec<(Namespace, oneshot::Sender<Result<RunPermit>>)> {
        let mut turns = Vec::new();
        while self.all.waiting > 0 && self.all.running < self.capacity.running {
            let Some((namespace, waiter)) = self.next() else { break };
            self.all.waiting -= 1;
            self.enter(&namespace);
            turns.push((namespace, waiter.turn));
        }
        turns
    }

    /// The first in the queue of whoever has come least far: each turn takes a namespace further, the less
    /// the heavier it is.
    fn next(&mut self) -> Option<(Namespace, Waiter)> {
        let weights = &self.weights;
        let weight = |namespace: &Namespace| u64::from(weights.get(namespace).copied().unwrap_or(1).max(1));
        let (namespace, tenant) = self
            .tenants
            .iter_mut()
            .filter(|(_, tenant)| !tenant.waiters.is_empty())
            .min_by_key(|(_, tenant)| tenant.pass)?;
        let namespace = namespace.clone();
        self.clock = self.clock.max(tenant.pass);
        tenant.pass += STRIDE / weight(&namespace);
        tenant.load.waiting -= 1;
        tenant.waiters.pop_front().map(|waiter| (namespace, waiter))
    }

    /// Puts a caller at the end of its queue. When there is no room, whoever has the longest queue for its
    /// weight makes some: the caller itself, or the last of somebody else.
    fn join(
        &mut self,
        namespace: &Namespace,
    ) -> Result<(u64, oneshot::Receiver<Result<RunPermit>>, Option<Waiter>)> {
        let mut turned_away = None;
        if self.all.waiting >= self.capacity.waiting {
            match self.longest_beside(namespace) {
                Some(other) => turned_away = self.turn_away_last(&other),
                None => {
                    self.all.refused += 1;
                    self.tenants.entry(namespace.clone()).or_default().load.refused += 1;
                    return Err(self.busy());
                }
            }
        }
        let (turn, told) = oneshot::channel();
        self.next_waiter += 1;
        let (number, clock) = (self.next_waiter, self.clock);
        let tenant = self.tenants.entry(namespace.clone()).or_default();
        if tenant.waiters.is_empty() {
            // Who did nothing for long has saved nothing up by it.
            tenant.pass = tenant.pass.max(clock);
        }
        tenant.waiters.push_back(Waiter { number, turn });
        tenant.load.waiting += 1;
        self.all.waiting += 1;
        Ok((number, told, turned_away))
    }

    /// Whose queue is longer than the caller's would be.
    fn longest_beside(&self, namespace: &Namespace) -> Option<Namespace> {
        let weight = |of: &Namespace| u64::from(self.weights.get(of).copied().unwrap_or(1).max(1));
        let length = |waiting: usize, of: &Namespace| waiting as u64 * STRIDE / weight(of);
        let own = self.tenants.get(namespace).map_or(0, |tenant| tenant.load.waiting) + 1;
        self.tenants
            .iter()
            .filter(|(other, tenant)| {
                *other != namespace && length(tenant.load.waiting, other) > length(own, namespace)
            })
            .max_by_key(|(other, tenant)| length(tenant.load.waiting, other))
            .map(|(other, _)| other.clone())
    }

    fn turn_away_last(&mut self, namespace: &Namespace) -> Option<Waiter> {
        let tenant = self.tenants.get_mut(namespace)?;
        let waiter = tenant.waiters.pop_back()?;
        tenant.load.waiting -= 1;
        tenant.load.refused += 1;
        self.all.waiting -= 1;
        self.all.refused += 1;
        Some(waiter)
    }

    fn busy(&self) -> Error {
        let Capacity { running, waiting } = self.capacity;
        // When as many places have become free as now wait.
        let turns = u32::try_from(self.all.waiting / running.max(1)).unwrap_or(u32::MAX).max(1);
        let wait = self.held.saturating_mul(turns);
        let seconds = (wait.as_secs() + u64::from(wait.subsec_nanos() > 0)).clamp(SOONEST, LATEST);
        Error::new(Code::Busy, format!("{running} commands are running and {waiting} wait already"))
            .detail("running", self.all.running)
            .detail("waiting", self.all.waiting)
            .detail("retry_after_seconds", seconds)
            .next(format!("try again in {seconds} s, or end runs you no longer need with `kill`"))
    }
}

impl Admission {
    pub(crate) fn new(capacity: Capacity, weights: BTreeMap<Namespace, u32>) -> Self {
        let state = QueueState { capacity, weights, ..QueueState::default() };
        Self { shared: Arc::new(Shared { state: Mutex::new(state) }), waited: AtomicU64::new(0) }
    }

    /// What goes on in all namespaces.
    pub(crate) fn load(&self) -> Load {
        crate::lock(&self.shared.state).all
    }

    /// What goes on in one.
    pub(crate) fn load_of(&self, namespace: &Namespace) -> Load {
        let state = crate::lock(&self.shared.state);
        state.tenants.get(namespace).map_or_else(Load::default, |tenant| tenant.load)
    }

    /// Makes more or less room. Nobody who runs or waits is sent away.
    pub(crate) fn set_capacity(&self, capacity: Capacity) {
        let turns = {
            let mut state = crate::lock(&self.shared.state);
            state.capacity = capacity;
            state.turns()
        };
        self.shared.grant(turns);
    }

    /// How long callers have spent here since the start, together.
    pub(crate) fn waited(&self) -> Duration {
        Duration::from_nanos(self.waited.load(Ordering::Relaxed))
    }

    /// A permit, now or when it is the caller's turn.
    pub(crate) async fn permit(&self, context: &CallContext) -> Result<RunPermit> {
        let begun = Instant::now();
        let permit = self.find_permit(context).await;
        let spent = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.waited.fetch_add(spent, Ordering::Relaxed);
        permit
    }

    async fn find_permit(&self, context: &CallContext) -> Result<RunPermit> {
        let namespace = &context.namespace;
        let (number, mut told) = {
            let mut state = crate::lock(&self.shared.state);
            if state.closed {
                return Err(stopping());
            }
            if state.all.waiting == 0 && state.all.running < state.capacity.running {
                state.enter(namespace);
                drop(state);
                let shared = Arc::clone(&self.shared);
                return Ok(RunPermit { shared, namespace: namespace.clone(), since: Instant::now() });
            }
            let (number, told, turned_away) = state.join(namespace)?;
            if let Some(waiter) = turned_away {
                drop(waiter.turn.send(Err(state.busy())));
            }
            (number, told)
        };
        let _waiting = Waiting { shared: &self.shared, namespace, number };
        tokio::select! {
            biased;
            turn = &mut told => turn.unwrap_or_else(|_| Err(stopping())),
            () = context.cancelled.cancelled() => Err(cancelled()),
        }
    }

    /// No more commands are admitted, and nobody waits any longer.
    pub(crate) fn close(&self) {
        let mut state = crate::lock(&self.shared.state);
        state.closed = true;
        state.all.waiting = 0;
        for tenant in state.tenants.values_mut() {
            tenant.waiters.clear();
            tenant.load.waiting = 0;
        }
    }
}

/// A position in the queue, given up however the waiting ends.
struct Waiting<'a> {
    shared: &'a Shared,
    namespace: &'a Namespace,
    number: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut state = crate::lock(&self.shared.state);
        let Some(tenant) = state.tenants.get_mut(self.namespace) else { return };
        let before = tenant.waiters.len();
        tenant.waiters.retain(|waiter| waiter.number != self.number);
        if tenant.waiters.len() < before {
            tenant.load.waiting -= 1;
            state.all.waiting -= 1;
        }
    }
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
