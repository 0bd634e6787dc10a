//! One operation each, through the real door: what is there before, the call, and what must be so
//! afterwards, given what the caller was told.

use isle_fail::Point;

use crate::ground::{Ground, Told};
use crate::harness::{Missing, needs_tier};

mod children;
mod deadlines;
mod files;
mod job_files;
mod lives;
mod mirror;
mod network;
mod runs;
mod secrets;
mod webhooks;

pub(crate) use children::*;
pub(crate) use deadlines::*;
pub(crate) use files::*;
pub(crate) use job_files::*;
pub(crate) use lives::*;
pub(crate) use mirror::*;
pub(crate) use network::*;
pub(crate) use runs::*;
pub(crate) use secrets::*;
pub(crate) use webhooks::*;

/// One operation.
#[derive(Debug)]
pub(crate) struct Scene {
    pub(crate) name: &'static str,
    /// Makes what the operation needs.
    pub(crate) prepare: fn(&mut Ground),
    /// Calls it.
    pub(crate) act: fn(&Ground) -> Told,
    /// Brings to its end what it leaves going on.
    pub(crate) settle: fn(&Ground),
    /// Compares what was told with what is.
    pub(crate) check: fn(&Ground, &Told),
    /// What is passed last, maybe after the answer.
    pub(crate) last: Point,
    /// Workspaces that may be there without a sandbox.
    pub(crate) keeps: &'static [&'static str],
}

impl Scene {
    /// The tier it is played in.
    pub(crate) fn needs_its_tier(&self) -> Result<(), Missing> {
        needs_tier(if self.name.ends_with("tier process") { "process" } else { "container" })
    }
}

/// All of them.
pub(crate) const SCENES: &[Scene] = &[
    CREATE,
    CREATE_PROCESS,
    EXEC,
    TURN,
    INPUT,
    ATTACH,
    JOB_FILES,
    JOB_FILES_SWEPT,
    ONE_SHOT,
    ONE_SHOT_PROCESS,
    WRITE,
    REMOVE,
    EDIT,
    MOVE,
    UNPACK,
    COPY_OUT,
    PRUNE,
    PUSH,
    PULL,
    PULL_NEW,
    SYNC,
    DESTROY,
    WIPE,
    WIPE_PROCESS,
    WIPE_KEPT,
    RESET,
    RESET_EMPTIED,
    ENV,
    EXTEND,
    USE,
    PAUSE,
    RESUME,
    SWEEP,
    SPAWN,
    CASCADE,
    DESTROY_CHILD,
    RESET_COUNT,
    BRIDGE,
    GRANT,
    TRUST,
    NAMESPACE,
    APPROVE,
    DENY,
    SECRET,
    SECRET_REMOVE,
    SECRET_USE,
    SECRET_DESTROY,
    WEBHOOK_ADD,
    WEBHOOK_DELIVER,
    WEBHOOK_REMOVE,
];
