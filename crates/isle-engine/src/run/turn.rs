//! Waiting for the lock of a sandbox. Until its turn comes a run is on record as `queued`, nothing of
//! it was sent, and whoever ends it then has ended something that never ran.

use std::pin::pin;
use std::sync::atomic::Ordering;

use isle_fail::Point;

use super::{Ending, Finish, Run, Runs};
use crate::sandbox::{LockHeld, LockRequest, SandboxState};
use isle_api::shapes::RunState;

impl Run {
    /// It waits for its turn. Said once, before anybody else knows of it.
    pub(super) fn queue(&self) {
        self.queued.store(true, Ordering::SeqCst);
    }

    /// Waits until its turn has come; the end of a run whose turn never came otherwise.
    pub(super) async fn take_turn(&self, runs: &Runs, entered: LockRequest) -> Result<LockHeld, Box<Finish>> {
        let waiting = match entered {
            LockRequest::Granted(turn) => return Ok(turn),
            LockRequest::Queued(waiting) => waiting,
        };
        let turn = tokio::select! {
            biased;
            () = self.wanted_gone() => None,
            () = runs.tasks.halted().cancelled() => {
                self.intend(Ending::Stopped);
                None
            }
            turn = waiting.turn() => turn,
        };
        // From here on whoever ends it speaks to the agent; who did so a moment ago is heard below.
        self.queued.store(false, Ordering::SeqCst);
        let Some(turn) = turn else { return Err(Box::new(never_ran(self))) };
        if self.ending() != Ending::Own || self.sandbox.state() != SandboxState::Running {
            return Err(Box::new(never_ran(self)));
        }
        match runs.journal.run_starts(self) {
            Ok(()) => {
                isle_fail::pass(Point::TurnRecorded);
                Ok(turn)
            }
            // What is not on record as running must not run: a later daemon would say it never did.
            Err(error) => Err(Box::new(Finish {
                note: Some(format!("it was not run: {}", error.message)),
                error: Some(error),
                ..never_ran(self)
            })),
        }
    }

    /// Resolves when somebody wants it to end.
    async fn wanted_gone(&self) {
        loop {
            let mut unwanted = pin!(self.unwanted.notified());
            unwanted.as_mut().enable();
            if self.ending() != Ending::Own {
                return;
            }
            unwanted.await;
        }
    }
}

impl Runs {
    /// What to say of a run that waits for its turn: maybe for ever, if nobody does something about it.
    pub(crate) fn waiting_note(&self, run: &Run) -> Option<String> {
        if !run.is_queued() {
            return None;
        }
        let in_the_way = |other: &std::sync::Arc<Run>| other.locked && !other.is_queued();
        let holder = self.live.running_in(&run.sandbox.id).into_iter().find(in_the_way);
        let holder = match holder.as_deref() {
            None => "another run".to_owned(),
            Some(Run { job: Some(job), sandbox, .. }) => format!("{}:{job}", sandbox.name),
            Some(Run { id, .. }) => id.to_string(),
        };
        Some(format!(
            "nothing of it was started: {holder} has the lock of the sandbox; `wait` for it, `kill` {holder} to free the lock, or `kill` this run to leave the line"
        ))
    }
}

/// The note of a run whose turn did not come before its daemon ended.
pub(crate) const NEVER_RAN: &str =
    "the daemon ended before its turn came; it never ran, so it can be started again";

fn never_ran(run: &Run) -> Finish {
    let (state, note) = match run.ending() {
        Ending::Killed => (RunState::Killed, "ended by `kill` before its turn came; it never ran"),
        Ending::Destroyed => {
            (RunState::Killed, "its sandbox was destroyed before its turn came; it never ran")
        }
        Ending::Expired => {
            (RunState::Killed, "the time of its sandbox was up before its turn came; it never ran")
        }
        Ending::Reset => (RunState::Killed, "its sandbox was reset before its turn came; it never ran"),
        Ending::Cancelled => {
            (RunState::Cancelled, "the caller cancelled it before its turn came; it never ran")
        }
        Ending::Stopped => (RunState::Cancelled, NEVER_RAN),
        Ending::Own | Ending::Overdue => {
            (RunState::Cancelled, "its sandbox died before its turn came; it never ran")
        }
    };
    Finish {
        state,
        exit_code: None,
        signal: None,
        duration_ms: 0,
        cpu_us: None,
        peak_rss_kib: None,
        transferred: None,
        network: None,
        most_tasks: None,
        violations: Vec::new(),
        limits_hit: Vec::new(),
        note: Some(note.into()),
        error: None,
        code: None,
        commands: Vec::new(),
    }
}
