//! Standing still: every process of the sandbox is stopped until it is told to go on, and nothing is
//! started meanwhile. The agent itself goes on, so that a paused sandbox can still be spoken to. Whoever was
//! stopped before stays so afterwards.

use std::cell::RefCell;
use std::collections::HashSet;
use std::time::{Duration, Instant};

use isle_wire::{Failure, FailureKind};
use rustix::process::Signal;
use tokio::sync::Notify;

use crate::place;
use crate::ration::look::{self, Seen, Who};
use crate::serve::Shared;

/// How long a parent is waited for before its children are stopped: one that does not stop is inside the
/// kernel and sees nothing.
const PATIENCE: Duration = Duration::from_millis(20);
/// How often everybody is looked at before whoever still runs is left to the next look.
const ROUNDS: usize = 50;
/// A timer of its own can let a process go on; nobody gets far with that.
const LOOK: Duration = Duration::from_millis(500);

/// Whether the sandbox stands still, and whom that stopped, parents before children.
#[derive(Debug, Default)]
pub(crate) struct Pause {
    stopped: RefCell<Option<Vec<Who>>>,
    changed: Notify,
}

impl Pause {
    pub(crate) fn is_on(&self) -> bool {
        self.stopped.borrow().is_some()
    }

    /// Returns when it is over.
    pub(crate) async fn off(&self) {
        while self.is_on() {
            self.changed.notified().await;
        }
    }

    /// Refuses to start anything while it lasts.
    pub(crate) fn refuse(&self) -> Result<(), Failure> {
        if self.is_on() {
            return Err(Failure { kind: FailureKind::Paused, errno: 0, doing: "start a program".into() });
        }
        Ok(())
    }
}

/// Stops everybody, or lets those go on that were stopped. Returns how many that are.
pub(crate) async fn set(agent: &Shared, on: bool) -> u64 {
    let pause = &agent.pause;
    if on {
        if !pause.is_on() {
            pause.stopped.replace(Some(Vec::new()));
            tokio::task::spawn_local(keep(agent.clone()));
        }
        stop_all(agent).await;
        let count = pause.stopped.borrow().as_ref().map_or(0, Vec::len);
        return u64::try_from(count).unwrap_or(u64::MAX);
    }
    let stopped = pause.stopped.take().unwrap_or_default();
    // Children first: a parent that goes on before its child would see it stopped.
    for who in stopped.iter().rev() {
        tell(*who, Signal::CONT);
    }
    pause.changed.notify_waiters();
    u64::try_from(stopped.len()).unwrap_or(u64::MAX)
}

/// Looks now and then whether everybody still stands.
async fn keep(agent: Shared) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            () = agent.pause.changed.notified() => {}
        }
        if !agent.pause.is_on() {
            return;
        }
        stop_all(&agent).await;
    }
}

/// Returns when everybody has been told: whoever has a stop pending runs no more code of its own.
async fn stop_all(agent: &Shared) {
    let mut told: HashSet<i32> = HashSet::new();
    for _ in 0..ROUNDS {
        let seen = look::everybody_roughly();
        let running: Vec<&Seen> = seen.iter().filter(|one| one.runs() && !told.contains(&one.pid)).collect();
        if running.is_empty() || !agent.pause.is_on() {
            return;
        }
        let parents: HashSet<i32> = running.iter().map(|one| one.parent).collect();
        let mut awaited: HashSet<i32> = HashSet::new();
        for one in &running {
            // Parents come first. None may see a child stopped, or it takes that for somebody's wish.
            if awaited.remove(&one.parent) {
                stands(one.parent).await;
            }
            tell(one.who(), Signal::STOP);
            told.insert(one.pid);
            if parents.contains(&one.pid) {
                awaited.insert(one.pid);
            }
        }
        if let Some(stopped) = agent.pause.stopped.borrow_mut().as_mut() {
            let known: HashSet<i32> = stopped.iter().map(|who| who.pid).collect();
            stopped.extend(running.iter().map(|one| one.who()).filter(|who| !known.contains(&who.pid)));
        }
        // Whoever was forked meanwhile is found at the next look.
    }
}

/// Signals a process. Among the host's processes its number may be somebody else's by now; in a container
/// whoever has it is to stand still too, and while all do so no number changes hands.
fn tell(who: Who, signal: Signal) {
    if place::private().is_some() {
        return who.signal(signal);
    }
    // SAFETY: plain numbers; a process that is gone meanwhile is no error.
    unsafe { libc::kill(who.pid, signal.as_raw()) };
}

/// Waits until a process has stopped, or is gone.
async fn stands(pid: i32) {
    let begun = Instant::now();
    while look::roughly(pid).is_some_and(|seen| seen.runs()) && begun.elapsed() < PATIENCE {
        // The reaper and other streams have their turn.
        tokio::task::yield_now().await;
    }
}
