//! What the gate of a sandbox puts in the place of placeholders. It asks at every request, so a secret
//! that was set anew, expired, removed or taken back is so from the next request on.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, Weak};

use isle_egress::{Pattern, Stray, Swap, Swaps};
use serde_json::json;
use zeroize::Zeroizing;

use super::uses::SandboxSecrets;
use super::{hosts_of, is_expired};
use crate::engine::Inner;
use crate::events::{Event, EventKind};
use crate::sandbox::Sandbox;
use crate::values::Address;

/// Different strays that are told of, since the guest chooses them.
const MOST_TOLD: usize = 64;

/// The swaps of one sandbox.
struct SandboxSwaps {
    inner: Weak<Inner>,
    sandbox: Address,
    secrets: Arc<SandboxSecrets>,
    told: Mutex<HashSet<Stray>>,
}

impl fmt::Debug for SandboxSwaps {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("SandboxSwaps").field("sandbox", &self.sandbox).finish_non_exhaustive()
    }
}

impl Swaps for SandboxSwaps {
    fn current(&self) -> Arc<[Swap]> {
        let Some(inner) = self.inner.upgrade() else { return Arc::new([]) };
        let in_force = self.secrets.all().into_iter().filter(|(_, one)| one.is_in_force());
        in_force
            .filter_map(|(name, one)| {
                let row = inner.vault.row(&self.sandbox.namespace, &name).filter(|row| !is_expired(row))?;
                let hosts: Vec<Pattern> =
                    hosts_of(&row).iter().filter_map(|host| Pattern::parse(host).ok()).collect();
                if hosts.is_empty() {
                    return None;
                }
                match inner.vault.open(&row) {
                    Ok(value) => {
                        let value = Zeroizing::new(value.reveal().to_owned());
                        Some(Swap { placeholder: one.placeholder, value, hosts })
                    }
                    Err(error) => {
                        tracing::error!(secret = %name, %error, "a secret is not put in");
                        None
                    }
                }
            })
            .collect()
    }

    fn strayed(&self, stray: &Stray) {
        let is_new = {
            let mut told = crate::lock(&self.told);
            told.len() < MOST_TOLD && told.insert(stray.clone())
        };
        let Some(inner) = self.inner.upgrade().filter(|_| is_new) else { return };
        let known = self.secrets.all();
        let secret = known.iter().find(|(_, one)| one.placeholder == stray.placeholder);
        let Some((secret, _)) = secret else { return };
        let why = if stray.unencrypted {
            "over a connection that is not encrypted"
        } else {
            "which is none of its hosts"
        };
        let message =
            format!("the placeholder of {secret} was sent to {}, {why}; the value was not", stray.target);
        let data = json!({ "secret": secret, "target": stray.target, "unencrypted": stray.unencrypted });
        inner.publish(Event::of(EventKind::SecretStrayed, &self.sandbox, message).data(data));
    }
}

impl Inner {
    /// What the gate of a sandbox asks.
    pub(crate) fn swaps(&self, sandbox: &Sandbox) -> Arc<dyn Swaps> {
        Arc::new(SandboxSwaps {
            inner: Weak::clone(&self.me),
            sandbox: sandbox.address(),
            secrets: Arc::clone(self.secrets_of(sandbox)),
            told: Mutex::default(),
        })
    }
}
