//! Requests inside connections: held to what is granted, and put to a person where one can be asked. The
//! request waits meanwhile, and is decided anew afterwards.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use tokio::time::Instant;

use crate::denial::{Denial, Reason};
use crate::gate::{Gate, State, locked};
use crate::grant::{Grant, GrantId, Pattern};
use crate::host::{Host, Target};
use crate::policy::RequestLine;

/// Is over when somebody has answered, or had time to.
pub type Answered = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Whoever makes a question of a denial. What is returned is to be waited for: somebody is being asked.
#[derive(Clone)]
pub struct Asker(Arc<Ask>);

type Ask = dyn Fn(&Denial) -> Option<Answered> + Send + Sync;

impl fmt::Debug for Asker {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Asker")
    }
}

impl Asker {
    /// Asks by this.
    pub fn new(ask: impl Fn(&Denial) -> Option<Answered> + Send + Sync + 'static) -> Self {
        Self(Arc::new(ask))
    }

    /// Makes a question of a denial.
    #[must_use]
    pub fn ask(&self, denial: &Denial) -> Option<Answered> {
        (self.0)(denial)
    }
}

/// Lets a request through that is granted, now or by the answer to a question, on a connection that `by`
/// allowed.
pub(crate) async fn permit(
    state: &Mutex<State>,
    request: RequestLine<'_>,
    by: GrantId,
) -> Result<(), Denial> {
    let denial = match decide(state, request, by) {
        Err(denial) if denial.reason == Reason::RequestNotGranted => denial,
        decided => return decided,
    };
    let asker = locked(state).asker.clone();
    match asker.and_then(|asker| asker.ask(&denial)) {
        None => Err(denial),
        Some(answered) => {
            answered.await;
            decide(state, request, by)
        }
    }
}

/// Decides and counts in one step: of two requests that one grant would allow, one goes.
fn decide(state: &Mutex<State>, request: RequestLine<'_>, by: GrantId) -> Result<(), Denial> {
    let mut state = locked(state);
    let id = state.policy.decide_request(request, Some(by), Instant::now())?;
    if state.policy.requested(id) {
        state.forget(id);
    }
    Ok(())
}

impl Gate {
    /// Puts what is denied of a host that is granted to somebody.
    pub fn ask_by(&self, asker: Asker) {
        locked(&self.state).asker = Some(asker);
    }

    /// Whether what a grant of one host says is granted already, on one of its ports.
    #[must_use]
    pub fn grants_already(&self, grant: &Grant) -> bool {
        let Pattern::Exact(name) = &grant.pattern else { return false };
        let (state, now) = (locked(&self.state), Instant::now());
        grant.ports.iter().any(|&port| {
            let target = Target { host: Host::Name(name.clone()), port };
            match grant.requests.single() {
                None => state.policy.decide(&target, now).is_ok(),
                Some((method, path)) => {
                    let protocol = grant.protocol_on(port);
                    let request = RequestLine { target: &target, protocol, method, path };
                    state.policy.decide_request(request, None, now).is_ok()
                }
            }
        })
    }
}
