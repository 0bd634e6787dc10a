//! Replacement of placeholders in requests, and masking in responses, for the gate of a sandbox. The gate asks at every
//! request, so a secret that was changed, removed or detached, or has expired, is so from the next request on.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use isle_egress::{
    Host, Reflection, ResponseMasking, SecretSource, SecretSubstitution, SecretUse, StrayPlaceholder, Target,
};
use serde_json::json;
use zeroize::Zeroizing;

use super::uses::SandboxSecrets;
use super::{Secrets, is_expired, scope_of};
use crate::events::{Event, EventKind};
use crate::sandbox::Sandbox;
use isle_core::values::Address;
use isle_vault::Scope;

/// Most different strays that are reported, since the guest chooses them.
const MOST_STRAYS: usize = 64;
/// After the first, uses of a secret in the same way within this time are one event.
const PERIOD: Duration = Duration::from_secs(60);
/// Most different ways of use that are counted separately, since the guest chooses them.
const MOST_WAYS: usize = 256;

/// The swaps of one sandbox.
struct SandboxSwaps {
    service: Weak<Secrets>,
    sandbox: Address,
    secrets: Arc<SandboxSecrets>,
    /// Those of its parents, nearest first: a server may send back what one of them sent.
    parents: Vec<Arc<SandboxSecrets>>,
    reported: Mutex<HashSet<StrayPlaceholder>>,
    ways: Mutex<Ways>,
}

/// Number of uses in each way, and when it was last published.
#[derive(Debug, Default)]
struct Ways(HashMap<String, (Instant, u64)>);

impl Ways {
    /// Counts one use; returns the number to publish, if it is time to.
    fn count(&mut self, way: String, now: Instant) -> Option<u64> {
        let way = if self.0.len() < MOST_WAYS || self.0.contains_key(&way) { way } else { String::new() };
        match self.0.get_mut(&way) {
            Some((last, since)) => {
                *since += 1;
                if now.duration_since(*last) < PERIOD {
                    return None;
                }
                *last = now;
                Some(std::mem::take(since))
            }
            None => {
                self.0.insert(way, (now, 0));
                Some(1)
            }
        }
    }
}

impl fmt::Debug for SandboxSwaps {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("SandboxSwaps").field("sandbox", &self.sandbox).finish_non_exhaustive()
    }
}

impl SandboxSwaps {
    /// The secrets that are masked in responses. A parent has at least those of its children.
    fn lineage(&self) -> impl Iterator<Item = &Arc<SandboxSecrets>> {
        self.parents.iter().rev().chain([&self.secrets]).filter(|secrets| !secrets.is_empty())
    }

    /// The scopes of secrets that a sandbox has or had as placeholders.
    fn guarded(&self, service: &Secrets, secrets: &SandboxSecrets) -> Vec<Scope> {
        let names = secrets.all().into_iter().filter(|(_, one)| one.is_guarded());
        let scope = |name| Some(scope_of(&service.vault.row(&self.sandbox.namespace, &name)?));
        names.filter_map(|(name, _)| scope(name)).collect()
    }
}

impl SecretSource for SandboxSwaps {
    fn current(&self) -> Arc<[SecretSubstitution]> {
        let Some(service) = self.service.upgrade() else { return Arc::new([]) };
        let in_force = self.secrets.all().into_iter().filter(|(_, one)| one.is_in_force());
        in_force
            .filter_map(|(name, one)| {
                let row = service.vault.row(&self.sandbox.namespace, &name).filter(|row| !is_expired(row))?;
                let scope = scope_of(&row);
                let hosts = scope.patterns();
                if hosts.is_empty() {
                    return None;
                }
                match service.vault.open(&row) {
                    Ok(value) => {
                        let value = Zeroizing::new(value.reveal().to_owned());
                        Some(SecretSubstitution {
                            placeholder: one.placeholder,
                            value,
                            hosts,
                            places: scope.places,
                        })
                    }
                    Err(error) => {
                        tracing::error!(secret = %name, %error, "a placeholder is not replaced");
                        None
                    }
                }
            })
            .collect()
    }

    fn masking(&self, host: &Host) -> ResponseMasking {
        let mut lineage = self.lineage().peekable();
        if lineage.peek().is_none() {
            return ResponseMasking::NotNeeded;
        }
        let Some(service) = self.service.upgrade() else { return ResponseMasking::Locked };
        let goes_there = |scope: &Scope| scope.patterns().iter().any(|pattern| pattern.covers(host));
        lineage
            .find(|secrets| {
                secrets.was_sent_to(host) || self.guarded(&service, secrets).iter().any(goes_there)
            })
            .map_or(ResponseMasking::NotNeeded, |secrets| secrets.guard())
    }

    fn masks_any(&self) -> bool {
        let mut lineage = self.lineage().peekable();
        if lineage.peek().is_none() {
            return false;
        }
        let goes_somewhere = |scope: &Scope| !scope.hosts.is_empty();
        self.service.upgrade().is_some_and(|service| {
            lineage.any(|secrets| self.guarded(&service, secrets).iter().any(goes_somewhere))
        })
    }

    fn placeholder_strayed(&self, stray: &StrayPlaceholder) {
        let is_new = {
            let mut reported = crate::lock(&self.reported);
            reported.len() < MOST_STRAYS && reported.insert(stray.clone())
        };
        let Some(service) = self.service.upgrade().filter(|_| is_new) else { return };
        let known = self.secrets.all();
        let secret = known.iter().find(|(_, one)| one.placeholder == stray.placeholder);
        let Some((secret, _)) = secret else { return };
        let why = if stray.unencrypted {
            "over an unencrypted connection"
        } else {
            "which is not one of its hosts"
        };
        let message =
            format!("the placeholder of {secret} was sent to {}, {why}; the value was not", stray.target);
        let data = json!({ "secret": secret, "target": stray.target, "unencrypted": stray.unencrypted });
        service.notifier.publish(Event::of(EventKind::SecretStrayed, &self.sandbox, message).data(data));
    }

    fn secret_used(&self, used: &SecretUse, target: &Target) {
        let Some(service) = self.service.upgrade() else { return };
        service.vault.swapped.fetch_add(1, Ordering::Relaxed);
        self.secrets.note_sent(&target.host);
        let way = format!("{} {} {target}", used.placeholder, used.place);
        let Some(count) = crate::lock(&self.ways).count(way, Instant::now()) else { return };
        let known = self.secrets.all();
        let secret = known.iter().find(|(_, one)| one.placeholder == used.placeholder);
        let Some((secret, one)) = secret else { return };
        // The run is known only if no other could have sent it.
        let run = one.runs.first().filter(|_| one.runs.len() == 1 && one.attached.is_none());
        let message = format!("{secret} was sent to {target}, placed in {}", used.place);
        let data = json!({
            "secret": secret,
            "target": target.to_string(),
            "place": used.place.to_string(),
            "count": count,
            "run": run,
        });
        service.notifier.publish(Event::of(EventKind::SecretSwapped, &self.sandbox, message).data(data));
    }

    fn secret_reflected(&self, reflection: &Reflection) {
        let Some(service) = self.service.upgrade() else { return };
        service.vault.reflected.fetch_add(1, Ordering::Relaxed);
        let Reflection { secret, target, part } = reflection;
        self.secrets.note_reflection(secret, target);
        let part = part.as_str();
        let Some(count) = crate::lock(&self.ways).count(format!("{secret} {part} {target}"), Instant::now())
        else {
            return;
        };
        let message = format!("{target} sent {secret} back; it was masked in the response ({part})");
        let data = json!({ "secret": secret, "target": target, "part": part, "count": count });
        service.notifier.publish(Event::of(EventKind::SecretReflected, &self.sandbox, message).data(data));
    }
}

impl Secrets {
    /// The replacements for the gate of a sandbox.
    pub(crate) fn swaps(self: &Arc<Self>, sandbox: &Sandbox) -> Arc<dyn SecretSource> {
        let mut parents = Vec::new();
        let mut above = sandbox.spec.child.as_ref().map(|child| child.parent.clone());
        while let Some(address) = above {
            parents.push(Arc::clone(crate::lock(&self.vault.uses).entry(address.clone()).or_default()));
            let parent = self.fleet.get(&address);
            above = parent.and_then(|parent| Some(parent.spec.child.as_ref()?.parent.clone()));
        }
        Arc::new(SandboxSwaps {
            parents,
            service: Arc::downgrade(self),
            sandbox: sandbox.address(),
            secrets: Arc::clone(self.secrets_of(sandbox)),
            reported: Mutex::default(),
            ways: Mutex::default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_uses_is_one_event_a_minute_with_their_count() {
        let mut ways = Ways::default();
        let start = Instant::now();
        assert_eq!(ways.count("a".into(), start), Some(1));
        for _ in 0..99 {
            assert_eq!(ways.count("a".into(), start), None);
        }
        assert_eq!(ways.count("b".into(), start), Some(1));
        assert_eq!(ways.count("a".into(), start + PERIOD), Some(100));
        for number in 0..1000 {
            ways.count(number.to_string(), start);
        }
        assert!(ways.0.len() <= MOST_WAYS + 1);
    }
}
