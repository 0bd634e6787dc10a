//! Cutting a connection when its grant is revoked, expires, or no longer covers it.

use tokio::time::Instant;

use crate::dial::DialedAddresses;
use crate::gate::Gate;
use crate::policy::Granted;
use crate::policy::grant::Protocol;
use crate::policy::host::Target;

/// Whether the requests and responses of a connection are inspected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Inspection {
    Undecided,
    Inspected,
    NotInspected,
}

impl Gate {
    /// Resolves when a target is no longer granted, or only for another protocol, or when a dialed address is
    /// no longer granted.
    pub(super) async fn grant_ended(
        &self,
        target: &Target,
        granted: Granted,
        inspection: Inspection,
        dialed: &DialedAddresses,
    ) {
        let mut changes = self.changed.subscribe();
        loop {
            let now = Instant::now();
            let (still, address_granted, next) = {
                let state = self.state();
                let still = state.policy.still(target, granted.id, now);
                let address_granted = dialed.still(&state, now);
                (still, address_granted, state.policy.next_expiry(now))
            };
            let holds = still.is_ok_and(|now_granted| {
                let fits_protocol = [granted.protocol, Protocol::Tcp].contains(&now_granted.protocol);
                // A connection that was not intercepted from the beginning cannot be inspected later.
                let is_inspected = inspection == Inspection::Inspected
                    || granted.limited
                    || granted.protocol == Protocol::Http
                    || !now_granted.limited;
                fits_protocol && is_inspected
            });
            // A secret that is sent there since may be returned.
            let unseen = inspection == Inspection::NotInspected
                && granted.protocol != Protocol::Tcp
                && self.masks_responses(&target.host);
            if !holds || !address_granted || unseen {
                return;
            }
            let expiry = async {
                match next {
                    Some(next) => tokio::time::sleep_until(next).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return },
                () = expiry => {}
            }
        }
    }
}
