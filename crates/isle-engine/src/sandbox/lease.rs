//! How long a sandbox may live: a deadline that nothing but an extension moves (its TTL), and one that
//! every use moves (idle). Both are readings of the machine's uptime, so that nobody's setting of the
//! clock ends a sandbox or keeps it; what is stored says which boot it speaks of.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};

use isle_core::clock::{boot_clock_ms, boot_id, wall_clock_ms};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use isle_core::values::Span;

/// No deadline, as a reading.
const NEVER: i64 = i64::MAX;
/// Not paused, as a reading.
const RUNNING: i64 = i64::MIN;
/// Set in the number of uses when nobody may begin another.
const CLOSED: usize = 1 << (usize::BITS - 1);

/// What a sandbox is given when it is made; `None` is without an end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Terms {
    /// How long it lives at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ttl: Option<Span>,
    /// How long it lives unused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) idle: Option<Span>,
}

/// What is left of a sandbox's time.
#[derive(Debug)]
pub(crate) struct Lease {
    idle_ms: Option<i64>,
    expires: AtomicI64,
    used: AtomicI64,
    paused: AtomicI64,
    uses: AtomicUsize,
    runs: AtomicU64,
    /// Whether the record says less than is known here.
    unrecorded: AtomicBool,
    /// Whether it was made for whoever comes first, and nobody came yet. Not stored: a record may be older
    /// than the last use.
    spare: AtomicBool,
}

/// The form it is stored in. All times are readings of the boot clock of one boot; the pair of readings
/// beside them says what they mean on the wall.
#[derive(Debug, Serialize, Deserialize)]
struct Stored {
    boot: Option<String>,
    boot_ms: i64,
    wall_ms: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires: Option<i64>,
    used: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    paused: Option<i64>,
    #[serde(default)]
    runs: u64,
}

/// Why a sandbox's time is up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Over {
    /// Its TTL has passed.
    Ttl,
    /// Nobody used it for too long.
    Idle,
}

impl Over {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Ttl => "its time was up",
            Self::Idle => "nobody used it",
        }
    }
}

impl Lease {
    /// A new one, beginning now.
    pub(crate) fn new(terms: Terms) -> Self {
        let now = boot_clock_ms();
        Self {
            idle_ms: terms.idle.map(millis),
            expires: AtomicI64::new(terms.ttl.map_or(NEVER, |ttl| now.saturating_add(millis(ttl)))),
            used: AtomicI64::new(now),
            paused: AtomicI64::new(RUNNING),
            uses: AtomicUsize::new(0),
            runs: AtomicU64::new(0),
            unrecorded: AtomicBool::new(false),
            spare: AtomicBool::new(false),
        }
    }

    /// One of a sandbox that nobody asked for.
    pub(crate) fn spare(terms: Terms) -> Self {
        Self { spare: AtomicBool::new(true), ..Self::new(terms) }
    }

    /// What is left of another one, for the sandbox that takes its place. That one is not paused.
    pub(crate) fn passed_on(terms: Terms, from: &Self) -> Self {
        let lease = Self::new(terms);
        lease.expires.store(from.expires.load(Ordering::SeqCst), Ordering::SeqCst);
        lease.runs.store(from.runs.load(Ordering::Relaxed), Ordering::Relaxed);
        lease
    }

    /// One that an earlier engine wrote down.
    pub(crate) fn restored(terms: Terms, stored: &Value) -> Self {
        let lease = Self::new(terms);
        let Ok(stored) = serde_json::from_value::<Stored>(stored.clone()) else { return lease };
        // After a boot the wall clock is all there is to go by.
        let shift = if stored.boot.is_some() && stored.boot == boot_id() {
            0
        } else {
            (stored.wall_ms - stored.boot_ms).saturating_sub(wall_clock_ms() - boot_clock_ms())
        };
        let here = |reading: i64| reading.saturating_add(shift);
        lease.expires.store(stored.expires.map_or(NEVER, here), Ordering::SeqCst);
        lease.used.store(here(stored.used).min(boot_clock_ms()), Ordering::SeqCst);
        lease.paused.store(stored.paused.map_or(RUNNING, here), Ordering::SeqCst);
        lease.runs.store(stored.runs, Ordering::Relaxed);
        lease
    }

    /// As it is stored.
    pub(crate) fn stored(&self) -> Value {
        let expires = self.expires.load(Ordering::SeqCst);
        let paused = self.paused.load(Ordering::SeqCst);
        let stored = Stored {
            boot: boot_id(),
            boot_ms: boot_clock_ms(),
            wall_ms: wall_clock_ms(),
            expires: (expires != NEVER).then_some(expires),
            used: self.last_use(),
            paused: (paused != RUNNING).then_some(paused),
            runs: self.runs(),
        };
        // Plain data; turning it into JSON cannot fail.
        serde_json::to_value(stored).unwrap_or_default()
    }

    /// Whether something changed since it was last asked.
    pub(crate) fn take_unrecorded(&self) -> bool {
        self.unrecorded.swap(false, Ordering::AcqRel)
    }

    pub(crate) fn set_unrecorded(&self) {
        self.unrecorded.store(true, Ordering::Release);
    }

    /// Somebody turned to it. `false` when it is too late: it is being removed.
    pub(crate) fn touch(&self) -> bool {
        self.used.store(boot_clock_ms(), Ordering::SeqCst);
        self.spare.store(false, Ordering::SeqCst);
        self.set_unrecorded();
        self.uses.load(Ordering::SeqCst) & CLOSED == 0
    }

    /// Something begins that is use for as long as it lasts.
    pub(crate) fn use_begins(&self) {
        self.uses.fetch_add(1, Ordering::SeqCst);
        self.touch();
    }

    /// It is over.
    pub(crate) fn use_ends(&self) {
        self.touch();
        self.uses.fetch_sub(1, Ordering::SeqCst);
    }

    /// One more command.
    pub(crate) fn count_run(&self) {
        self.runs.fetch_add(1, Ordering::Relaxed);
    }

    /// Commands so far.
    pub(crate) fn runs(&self) -> u64 {
        self.runs.load(Ordering::Relaxed)
    }

    fn in_use(&self) -> bool {
        self.uses.load(Ordering::SeqCst) & !CLOSED > 0
    }

    fn last_use(&self) -> i64 {
        if self.in_use() { boot_clock_ms() } else { self.used.load(Ordering::SeqCst) }
    }

    /// When its TTL passes, as a reading of the boot clock.
    pub(crate) fn expires(&self) -> Option<i64> {
        Some(self.expires.load(Ordering::SeqCst)).filter(|expires| *expires != NEVER)
    }

    /// When it counts as unused; `None` while it is in use or paused.
    pub(crate) fn idle_until(&self) -> Option<i64> {
        if self.in_use() || self.is_paused() {
            return None;
        }
        self.idle_ms.map(|idle| self.used.load(Ordering::SeqCst).saturating_add(idle))
    }

    /// Whether its time is up.
    pub(crate) fn over(&self) -> Option<Over> {
        let now = boot_clock_ms();
        if self.has_expired() {
            return Some(Over::Ttl);
        }
        self.idle_until().filter(|until| *until <= now).map(|_| Over::Idle)
    }

    /// Whether its TTL has passed.
    pub(crate) fn has_expired(&self) -> bool {
        self.expires().is_some_and(|expires| expires <= boot_clock_ms())
    }

    /// Closes it when its time is up: from then on nobody can begin to use it.
    pub(crate) fn close(&self) -> Option<Over> {
        self.over()?;
        self.uses.fetch_or(CLOSED, Ordering::SeqCst);
        // Whoever came in between is heard: either they see it closed, or this sees them.
        let over = self.over();
        if over.is_none() {
            self.open();
        }
        over
    }

    /// Closes it when nobody came for it yet, and says whether it did.
    pub(crate) fn close_spare(&self) -> bool {
        if !self.spare.load(Ordering::SeqCst) {
            return false;
        }
        self.uses.fetch_or(CLOSED, Ordering::SeqCst);
        // As when a time is up: either they see it closed, or this sees them.
        let spare = self.spare.load(Ordering::SeqCst);
        if !spare {
            self.open();
        }
        spare
    }

    /// Takes the closing back.
    pub(crate) fn open(&self) {
        self.uses.fetch_and(!CLOSED, Ordering::SeqCst);
    }

    /// Moves the deadline.
    pub(crate) fn set_expires(&self, expires: i64) {
        self.expires.store(expires, Ordering::SeqCst);
        self.spare.store(false, Ordering::SeqCst);
        self.set_unrecorded();
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.paused.load(Ordering::SeqCst) != RUNNING
    }

    pub(crate) fn set_paused(&self, on: bool) {
        self.spare.store(false, Ordering::SeqCst);
        if on {
            self.pause();
        } else {
            self.resume();
        }
    }

    /// Its idle clock stands still from now on.
    fn pause(&self) {
        let now = boot_clock_ms();
        // A second time changes nothing.
        self.paused.compare_exchange(RUNNING, now, Ordering::SeqCst, Ordering::SeqCst).ok();
    }

    /// Its idle clock goes on where it stood.
    fn resume(&self) {
        let since = self.paused.swap(RUNNING, Ordering::SeqCst);
        if since != RUNNING {
            let stood = boot_clock_ms().saturating_sub(since).max(0);
            self.used.fetch_add(stood, Ordering::SeqCst);
        }
    }
}

/// A span in milliseconds.
pub(crate) fn millis(span: Span) -> i64 {
    // Added to an uptime later on, so well below the largest number there is.
    i64::try_from(span.0.as_millis()).unwrap_or(i64::MAX).min(i64::MAX / 4)
}

/// A reading of the boot clock as the wall clock has it now, for people.
pub(crate) fn on_the_wall(reading: i64) -> i64 {
    wall_clock_ms().saturating_add(reading.saturating_sub(boot_clock_ms()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn terms(ttl: Option<u64>, idle: Option<u64>) -> Terms {
        let span = |ms: u64| Span(Duration::from_millis(ms));
        Terms { ttl: ttl.map(span), idle: idle.map(span) }
    }

    #[test]
    fn a_lease_without_terms_is_never_over() {
        let lease = Lease::new(Terms::default());
        assert_eq!((lease.expires(), lease.idle_until(), lease.over()), (None, None, None));
        assert_eq!(lease.close(), None);
        assert!(lease.touch());
    }

    #[test]
    fn what_is_in_use_or_paused_is_not_idle_and_expires_all_the_same() {
        let lease = Lease::new(terms(None, Some(0)));
        assert_eq!(lease.over(), Some(Over::Idle));
        lease.use_begins();
        assert_eq!(lease.over(), None);
        lease.use_ends();
        assert_eq!(lease.over(), Some(Over::Idle));
        lease.pause();
        assert_eq!(lease.over(), None);
        lease.resume();
        assert_eq!(lease.over(), Some(Over::Idle));

        let lease = Lease::new(terms(Some(0), None));
        lease.use_begins();
        lease.pause();
        assert_eq!(lease.over(), Some(Over::Ttl));
    }

    #[test]
    fn the_idle_clock_goes_on_where_it_stood_when_it_was_paused() {
        let lease = Lease::new(terms(None, Some(60_000)));
        let before = lease.idle_until().unwrap();
        lease.pause();
        std::thread::sleep(Duration::from_millis(5));
        lease.resume();
        assert!(lease.idle_until().unwrap() >= before + 5);
    }

    #[test]
    fn whoever_comes_after_the_closing_is_too_late() {
        let lease = Lease::new(terms(None, Some(0)));
        assert_eq!(lease.close(), Some(Over::Idle));
        assert!(!lease.touch());
        lease.open();
        assert!(lease.touch());
    }

    #[test]
    fn what_was_made_for_whoever_comes_first_is_closed_until_somebody_came() {
        let lease = Lease::spare(Terms::default());
        assert!(lease.close_spare() && !lease.touch(), "nobody had come");
        lease.open();
        assert!(lease.touch() && !lease.close_spare(), "somebody did");
        for done in
            [Lease::use_begins, |lease: &Lease| lease.set_paused(true), |lease: &Lease| lease.set_expires(1)]
        {
            let lease = Lease::spare(Terms::default());
            done(&lease);
            assert!(!lease.close_spare());
        }
        let restored = Lease::restored(Terms::default(), &Lease::spare(Terms::default()).stored());
        assert!(!restored.close_spare(), "an older record does not know who came since");
        assert!(!Lease::new(Terms::default()).close_spare());
    }

    #[test]
    fn a_stored_lease_comes_back_the_same_within_a_boot_and_by_the_wall_clock_after_one() {
        let given = terms(Some(600_000), Some(60_000));
        let lease = Lease::new(given);
        lease.count_run();
        lease.pause();
        let stored = lease.stored();
        let again = Lease::restored(given, &stored);
        assert_eq!(again.expires(), lease.expires());
        assert_eq!(again.runs(), 1);
        assert!(again.is_paused());

        // The same, written an hour of uptime ago under another boot, on a wall clock that agrees.
        let mut other = stored;
        other["boot"] = "another".into();
        for field in ["boot_ms", "expires", "used", "paused"] {
            other[field] = (other[field].as_i64().unwrap() - 3_600_000).into();
        }
        let again = Lease::restored(given, &other);
        let difference = again.expires().unwrap() - lease.expires().unwrap();
        assert!(difference.abs() < 5_000, "{difference}");
    }

    #[test]
    fn a_record_that_cannot_be_read_is_a_lease_that_begins_now() {
        let given = terms(Some(600_000), None);
        for odd in [Value::Null, serde_json::json!({"expires": "soon"}), serde_json::json!([])] {
            assert_eq!(Lease::restored(given, &odd).over(), None);
        }
    }
}
