//! Signalling a run.

use isle_wire::{Failure, FailureKind, Reply, SignalRequest};

use super::KillReason;
use crate::processes;
use crate::serve::Shared;

/// Signals a run: its process group, or every process of it.
pub(crate) async fn signal(agent: &Shared, request: &SignalRequest) -> Reply {
    let known = agent.runs.get(&request.run);
    if known.is_none() && request.whole_tree && request.signal == libc::SIGKILL {
        agent.runs.kill_before_start(&request.run);
    }
    let Some(run) = known.filter(|run| run.state.borrow().ended.is_none()) else {
        let doing = format!("signal {}", request.run);
        return Reply::Failed(Failure { kind: FailureKind::NoSuchRun, errno: libc::ESRCH, doing });
    };
    match (request.whole_tree, request.signal) {
        (true, libc::SIGKILL) => {
            run.state.borrow_mut().killed.get_or_insert(KillReason::Requested);
            processes::kill_all(agent, &run).await;
        }
        (true, signal) => processes::signal_all(agent, &run, signal),
        (false, signal) => processes::signal_group(&run, None, signal),
    }
    Reply::Done
}
