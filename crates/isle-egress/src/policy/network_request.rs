//! Requests inside connections: checked against the grants and, if not granted, submitted for approval. The
//! request waits for the decision and is then checked again.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use tokio::time::Instant;

use crate::gate::{Gate, State, locked};
use crate::policy::RequestLine;
use crate::policy::denial::{Denial, Reason};
use crate::policy::grant::{Grant, GrantId, Pattern};
use crate::policy::host::{Host, Target};

/// Resolves when the approval was decided or timed out.
pub type ApprovalWait = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Submits a denial for approval. Returns a future to wait for, if the approval is pending.
#[derive(Clone)]
pub struct ApprovalHook(Arc<Ask>);

type Ask = dyn Fn(&Denial) -> Option<ApprovalWait> + Send + Sync;

impl fmt::Debug for ApprovalHook {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ApprovalHook")
    }
}

impl ApprovalHook {
    /// Calls this function for each denial.
    pub fn new(ask: impl Fn(&Denial) -> Option<ApprovalWait> + Send + Sync + 'static) -> Self {
        Self(Arc::new(ask))
    }

    /// Submits a denial for approval.
    #[must_use]
    pub fn ask(&self, denial: &Denial) -> Option<ApprovalWait> {
        (self.0)(denial)
    }
}

/// Permits a request that is granted, now or by an approval, on a connection that grant `by` allowed.
pub(crate) async fn permit(
    state: &Mutex<State>,
    request: RequestLine<'_>,
    by: GrantId,
) -> Result<(), Denial> {
    let denial = match decide(state, request, by) {
        Err(denial) if denial.reason == Reason::RequestNotGranted => denial,
        decided => return decided,
    };
    let approval_hook = locked(state).approval_hook.clone();
    match approval_hook.and_then(|approval_hook| approval_hook.ask(&denial)) {
        None => Err(denial),
        Some(answered) => {
            answered.await;
            decide(state, request, by)
        }
    }
}

/// Decides and counts in one step, so that two requests cannot use the last one of a grant.
fn decide(state: &Mutex<State>, request: RequestLine<'_>, by: GrantId) -> Result<(), Denial> {
    let mut state = locked(state);
    let id = state.policy.decide_request(request, Some(by), Instant::now())?;
    if state.policy.requested(id) {
        state.forget(id);
    }
    Ok(())
}

impl Gate {
    /// Submits denied requests to granted hosts for approval.
    pub fn set_approval_hook(&self, approval_hook: ApprovalHook) {
        locked(&self.state).approval_hook = Some(approval_hook);
    }

    /// Whether a grant of one host is already covered, on one of its ports.
    #[must_use]
    pub fn is_already_granted(&self, grant: &Grant) -> bool {
        let Pattern::Exact(name) = &grant.pattern else { return false };
        let (state, now) = (locked(&self.state), Instant::now());
        grant.ports.iter().any(|&port| {
            let target = Target { host: Host::Name(name.clone()), port, by: None };
            match grant.requests.single() {
                None => state.policy.decide(&target, now).is_ok(),
                Some((method, path)) => {
                    let protocol = grant.protocol_on(port);
                    let request =
                        RequestLine { target: &target, protocol, method, path, override_header: None };
                    state.policy.decide_request(request, None, now).is_ok()
                }
            }
        })
    }
}
