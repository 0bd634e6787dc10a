//! How children end: with their parent, when their time is over, when somebody asks, and at a start that
//! finds them without the parent they belong to.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use isle_core::clock::wall_clock_ms;
use isle_fail::Point;

use super::Sandboxes;
use super::{Sandbox, SandboxState};
use crate::context::CallContext;
use crate::events::EventKind;
use crate::failpoint;
use crate::journal::{Actor, Audit};
use crate::run::Ending;
use isle_core::backend::{ChildOf, Keep};
use isle_core::values::SandboxId;
use isle_core::{Code, Error, Result};

/// How long it takes until an end that failed is tried again.
const AGAIN: Duration = Duration::from_secs(10);

impl Sandboxes {
    /// Ends all children of an incarnation that is ending. Its state says so already, so nobody adds one.
    pub(crate) fn end_children<'a>(&'a self, parent: &'a SandboxId) -> BoxFuture<'a, Result<()>> {
        async move {
            // Whoever was spawning has put its child where it is found, or sees that the parent ends.
            drop(self.spawn_counts.hold());
            let is_own =
                |sandbox: &Arc<Sandbox>| sandbox.child_of().is_some_and(|child| child.parent_id == *parent);
            for child in self.fleet.named().iter().filter(|sandbox| is_own(sandbox)) {
                let Some(of) = child.child_of() else { continue };
                self.end_child(of, &Actor::engine(), "its parent ended").await?;
            }
            Ok(())
        }
        .boxed()
    }

    /// The same, in the background.
    pub(crate) fn end_children_later(self: &Arc<Self>, parent: &Sandbox) {
        let (sandboxes, parent) = (Arc::clone(self), parent.id.clone());
        // A connection ends in a task of its own, so there is a runtime.
        self.tasks.spawn(async move {
            if let Err(error) = sandboxes.end_children(&parent).await {
                tracing::warn!(%parent, %error, "children of a dead sandbox could not be ended; who builds it anew tries again");
            }
        });
    }

    /// Ends this child; another one that has its name by now stays.
    async fn end_child(&self, of: &ChildOf, actor: &Actor, why: &str) -> Result<()> {
        let gate = self.fleet.gate(&of.name);
        let _held = gate.lock().await;
        // It may have been built anew meanwhile, and is the same child then.
        let same = |known: &Arc<Sandbox>| known.child_of() == Some(of);
        let Some(child) = self.fleet.get(&of.name).filter(same) else { return Ok(()) };
        for run in self.runs.running_in(&child.id) {
            run.intend(Ending::Destroyed);
        }
        let audit = Audit::lifecycle(actor, "end_child", &child, why);
        self.remove_incarnation(&child, Keep::Nothing, &audit).await?;
        self.notifier.sandbox(EventKind::ChildDestroyed, &child, why);
        failpoint(Point::ChildEnded)
    }

    /// Ends a child, and all that descends from it, for a caller.
    pub(crate) async fn destroy_child(self: &Arc<Self>, context: &CallContext, child: ChildOf) -> Result<()> {
        // In a task of its own: what was begun is finished even when the caller goes away.
        let (sandboxes, actor) = (Arc::clone(self), Actor::of(context));
        let ending = self.tasks.spawn(async move { sandboxes.end_child(&child, &actor, "destroyed").await });
        ending.await.map_err(|error| Error::internal(format!("destroying the child failed: {error}")))?
    }

    /// Ends a child when its time is over.
    pub(crate) fn end_in_time(self: &Arc<Self>, child: &Sandbox) {
        let Some(of) = child.child_of() else { return };
        let left = u64::try_from(of.expires_at_ms - wall_clock_ms()).unwrap_or(0);
        tokio::spawn(end_at_last(Arc::downgrade(self), of.clone(), Duration::from_millis(left)));
    }

    /// A parent is not idle while it has children.
    pub(crate) fn hold_parent(&self, child: &Sandbox) {
        let Some(of) = child.child_of() else { return };
        if let Some(parent) = self.fleet.get(&of.parent).filter(|parent| parent.id == of.parent_id) {
            child.keep_parent(parent.hold());
        }
    }

    /// At a start: children whose parent is another one by now, or dead, end, and so do those whose time
    /// is over. The others get their deadlines.
    pub(crate) async fn end_orphans(self: &Arc<Self>) {
        for child in self.fleet.named() {
            let Some(of) = child.child_of() else { continue };
            let has_parent = self
                .fleet
                .get(&of.parent)
                .is_some_and(|parent| parent.id == of.parent_id && parent.state() == SandboxState::Running);
            let why = match (has_parent, of.expires_at_ms > wall_clock_ms()) {
                (true, true) => {
                    self.hold_parent(&child);
                    self.end_in_time(&child);
                    continue;
                }
                (false, _) => "its parent is gone",
                (true, false) => "its time is over",
            };
            if let Err(error) = self.end_child(of, &Actor::engine(), why).await {
                tracing::warn!(sandbox = %child.name, %error, "a child could not be ended; it is tried again");
                tokio::spawn(end_at_last(Arc::downgrade(self), of.clone(), AGAIN));
            }
        }
    }

    /// A child that died is built anew only as long as it would live.
    pub(crate) fn refuse_end_of_child(&self, child: &Sandbox) -> Result<()> {
        let Some(of) = child.child_of() else { return Ok(()) };
        let has_parent = self
            .fleet
            .get(&of.parent)
            .is_some_and(|parent| parent.id == of.parent_id && parent.state() == SandboxState::Running);
        if has_parent && of.expires_at_ms > wall_clock_ms() {
            return Ok(());
        }
        Err(Error::new(
            Code::SandboxNotFound,
            format!("{} was a child of {}, and its time is over", child.name, of.parent.name),
        )
        .next("spawn another one"))
    }
}

/// Waits, then ends a child, and does not give up.
async fn end_at_last(sandboxes: Weak<Sandboxes>, child: ChildOf, mut wait: Duration) {
    loop {
        tokio::time::sleep(wait).await;
        let Some(sandboxes) = sandboxes.upgrade().filter(|sandboxes| !sandboxes.tasks.is_stopping()) else {
            return;
        };
        match sandboxes.end_child(&child, &Actor::engine(), "its time is over").await {
            Ok(()) => return,
            Err(error) => {
                tracing::warn!(sandbox = %child.name, %error, "a child could not be ended; it is tried again");
            }
        }
        wait = AGAIN;
    }
}
