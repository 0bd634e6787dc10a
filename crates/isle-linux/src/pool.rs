//! The pool of one-shot sandboxes, created in the background and never used twice. A pooled sandbox fits
//! every one-shot that differs only in limits its cgroups can still change.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use isle_core::backend::{Keep, Lifetime, SandboxSpec};
use isle_core::values::SandboxId;

use super::create::{self, Fresh};
use super::{Inner, alive, destroy, recycled_cgroups};

/// How long refilling waits for the run that took a sandbox to finish.
const PATIENCE: Duration = Duration::from_millis(5);

#[derive(Debug)]
pub(super) struct Pool {
    size: usize,
    ready: Mutex<VecDeque<Fresh>>,
    /// The spec of pooled sandboxes; set by [`warm`].
    spec: Mutex<Option<SandboxSpec>>,
    /// How many are being made, or being put where they belong.
    making: AtomicUsize,
    /// Notified whenever one of those is done.
    settled: tokio::sync::Notify,
    /// A task is about to check whether one is missing.
    looking: AtomicBool,
    /// Notified whenever a one-shot is removed: a good moment to create the next one.
    calm: tokio::sync::Notify,
    closed: AtomicBool,
}

impl Pool {
    pub(super) fn new(size: usize) -> Self {
        Self {
            size,
            ready: Mutex::default(),
            spec: Mutex::default(),
            making: AtomicUsize::new(0),
            settled: tokio::sync::Notify::new(),
            looking: AtomicBool::new(false),
            calm: tokio::sync::Notify::new(),
            closed: AtomicBool::new(false),
        }
    }

    /// One that was being made is where it belongs, or will not be made.
    fn made(&self) {
        self.making.fetch_sub(1, Ordering::SeqCst);
        self.settled.notify_waiters();
    }
}

/// Begins to keep sandboxes like this ready.
pub(super) fn warm(inner: &Arc<Inner>, spec: &SandboxSpec) {
    if spec.lifetime != Lifetime::OneShot || inner.pool.size == 0 {
        return;
    }
    *inner.pool.spec.lock().unwrap_or_else(PoisonError::into_inner) = Some(spec.clone());
    refill(inner);
}

/// Takes a ready sandbox that fits, and has the gap filled.
pub(super) fn take(inner: &Arc<Inner>, wanted: &SandboxSpec) -> Option<Fresh> {
    if wanted.lifetime != Lifetime::OneShot {
        return None;
    }
    let like = inner.pool.spec.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
    let holds = inner.cgroups.holds();
    let adaptable = holds.memory && holds.pids && holds.cpu;
    let fits = like.tier == wanted.tier
        && like.image == wanted.image
        && like.allow_downgrade == wanted.allow_downgrade
        && like.fixed_etc == wanted.fixed_etc
        && like.limits.disk == wanted.limits.disk
        && (adaptable || like.limits == wanted.limits);
    if !fits {
        return None;
    }
    let fresh = inner.pool.ready.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    refill_later(inner);
    let fresh = fresh?;
    let held = match &fresh.holding.lease {
        Some(lease) => lease.hold(&inner.cgroups, &wanted.limits),
        // Of a tier without cgroups to lease.
        None if like.limits == wanted.limits => Ok(()),
        None => inner.cgroups.set_limits(fresh.holding.resource.as_str(), &wanted.limits),
    };
    if let Err(error) = held {
        tracing::warn!(%error, "could not set the limits of a pooled sandbox; removing it");
        let inner = inner.clone();
        tokio::spawn(async move { discard(&inner, fresh).await });
        return None;
    }
    Some(fresh)
}

/// A one-shot is gone.
pub(super) fn one_shot_ended(inner: &Inner) {
    inner.pool.calm.notify_waiters();
}

/// Has the gap filled once the run that made it has ended, or soon: making a sandbox beside a command
/// that just starts would slow that command down.
fn refill_later(inner: &Arc<Inner>) {
    if inner.pool.looking.swap(true, Ordering::SeqCst) {
        return;
    }
    let inner = inner.clone();
    tokio::spawn(async move {
        tokio::time::timeout(PATIENCE, inner.pool.calm.notified()).await.ok();
        inner.pool.looking.store(false, Ordering::SeqCst);
        refill(&inner);
    });
}

/// Makes what is missing, one at a time, in the background.
fn refill(inner: &Arc<Inner>) {
    let pool = &inner.pool;
    // Counted before anything is checked: either `drain` sees this one, or this one sees `closed`.
    let making = pool.making.fetch_add(1, Ordering::SeqCst) + 1;
    let ready = pool.ready.lock().unwrap_or_else(PoisonError::into_inner).len();
    if pool.closed.load(Ordering::SeqCst) || ready + making > pool.size {
        pool.made();
        return;
    }
    let inner = inner.clone();
    tokio::spawn(async move {
        let spec = inner.pool.spec.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let made = match &spec {
            Some(spec) => Some(create::make(&inner, &SandboxId::fresh(), spec).await),
            None => None,
        };
        let go_on = matches!(made, Some(Ok(_)));
        match made {
            Some(Ok(fresh)) if inner.pool.closed.load(Ordering::SeqCst) => discard(&inner, fresh).await,
            Some(Ok(fresh)) => {
                inner.pool.ready.lock().unwrap_or_else(PoisonError::into_inner).push_back(fresh);
            }
            // The next caller creates its own and gets the error.
            Some(Err(error)) => tracing::warn!(%error, "could not create a sandbox for the pool"),
            None => {}
        }
        inner.pool.made();
        if go_on {
            refill(&inner);
        }
    });
}

async fn discard(inner: &Arc<Inner>, fresh: Fresh) {
    let id = fresh.holding.resource.clone();
    alive::end_sandbox(fresh.holding.tier, &fresh.holding.process).await.ok();
    inner.ids.release(fresh.holding.slot);
    if let Some(lease) = fresh.holding.lease {
        if let Err(error) = recycled_cgroups::give_back(inner, lease).await {
            tracing::warn!(%error, "could not remove a pooled sandbox completely; the next start removes the rest");
        }
        return;
    }
    if let Err(error) = destroy::remains(inner, &id, Keep::Nothing).await {
        tracing::warn!(%error, "could not remove a pooled sandbox completely; the next start removes the rest");
    }
}

/// Removes all ready sandboxes, for good, and those that are just being made.
pub(super) async fn drain(inner: &Arc<Inner>) {
    inner.pool.closed.store(true, Ordering::SeqCst);
    loop {
        // Listening before looking: what happens in between is heard.
        let settled = inner.pool.settled.notified();
        let fresh = inner.pool.ready.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        match fresh {
            Some(fresh) => discard(inner, fresh).await,
            None if inner.pool.making.load(Ordering::SeqCst) == 0 => return,
            None => settled.await,
        }
    }
}
