//! Giving a sandbox more time.

use std::sync::Arc;

use isle_core::clock::boot_clock_ms;
use isle_fail::Point;

use super::Sandboxes;
use super::lease::{millis, on_the_wall};
use super::make::expired;
use super::settings::SHORTEST;
use super::{Sandbox, SandboxState};
use crate::context::CallContext;
use crate::events::EventKind;
use crate::failpoint;
use crate::journal::{Actor, Audit};
use isle_api::timestamp;
use isle_core::values::{SandboxName, Span};
use isle_core::{Code, Error, Result};

impl Sandboxes {
    /// Moves the deadline of a sandbox: by so much after its end or after now, whichever is later, and
    /// never further from now than the longest TTL.
    pub(crate) async fn extend(
        self: &Arc<Self>,
        context: &CallContext,
        name: &SandboxName,
        by: Span,
    ) -> Result<Arc<Sandbox>> {
        // Whoever removes it holds this too: it is either extended or removed.
        let address = context.address(name);
        let gate = self.fleet.gate(&address);
        let _held = gate.lock().await;
        let sandbox = self.fleet.get(&address).ok_or_else(|| self.fleet.no_such_sandbox(&address))?;
        if sandbox.state() == SandboxState::Destroying {
            return Err(expired(&sandbox));
        }
        sandbox.refuse_child("extension")?;
        let Some(expires) = sandbox.lease.expires() else {
            return Err(Error::new(Code::TtlInvalid, format!("the sandbox {name} has no TTL to extend"))
                .next("nothing needs to be done: it lives until it is destroyed, or idle for too long"));
        };
        if by < SHORTEST {
            return Err(Error::new(Code::TtlInvalid, format!("by is {by}; it may be {SHORTEST} or longer"))
                .next("give a longer extension, such as 30m"));
        }
        let now = boot_clock_ms();
        let until = expires.max(now).saturating_add(millis(by));
        if let Some(longest) = self.config.deadlines.max_ttl
            && until > now.saturating_add(millis(longest))
        {
            let room = now.saturating_add(millis(longest)).saturating_sub(expires.max(now)).max(0);
            let room = rounded_down(u64::try_from(room / 1000).unwrap_or(0));
            return Err(Error::new(
                Code::TtlInvalid,
                format!("with {by} more, {name} would live longer than {longest} from now"),
            )
            .detail("longest", longest.to_string())
            .detail("longest_extension", room.to_string())
            .next(format!("extend it by at most {room} now, or again later")));
        }
        let what = format!("until {}", timestamp(on_the_wall(until)));
        let audit = Audit::lifecycle(&Actor::of(context), "extend_sandbox", &sandbox, &what);
        sandbox.lease.set_expires(until);
        let recorded = self.journal.lease_changed(&sandbox, sandbox.lease.stored(), &audit);
        if let Err(error) = recorded.and_then(|()| failpoint(Point::ExtendRecorded)) {
            sandbox.lease.set_expires(expires);
            return Err(error);
        }
        sandbox.lease.touch();
        self.notifier.sandbox(EventKind::SandboxExtended, &sandbox, &what);
        Ok(sandbox)
    }
}

/// So many seconds, in a unit that people read: what is left of it is too little to miss.
fn rounded_down(seconds: u64) -> Span {
    let units = [86_400, 3_600, 60, 1];
    let unit = units.into_iter().find(|unit| seconds >= 2 * unit).unwrap_or(1);
    Span::seconds(seconds / unit * unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_rounded_down_to_what_people_read() {
        for (seconds, text) in [(2_584_804, "29d"), (7_300, "2h"), (150, "2m"), (61, "61s"), (0, "0ms")] {
            assert_eq!(rounded_down(seconds).to_string(), text);
        }
    }
}
