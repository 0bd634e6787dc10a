//! Tokens for ports of sandboxes. Whoever may work in a namespace can mint one for a port there; the
//! listener for ports knows nothing else, so that what a program in a sandbox answers never meets the
//! rights of whoever asked. A token is for one port of one incarnation, lives a short time and in memory
//! only, as a hash, and ends with the sandbox and with the token it was minted by.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures::future::BoxFuture;
use isle_core::clock::wall_clock_ms;
use serde_json::json;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tokio_util::sync::CancellationToken;

use super::Ports;
use super::port_streams::{PortStream, has_ports};
use crate::context::{CallContext, CallerRole, Door};
use crate::journal::Audit;
use crate::sandbox::Sandbox;
use isle_core::values::{Address, SandboxId};
use isle_core::{Code, Error, Result};

/// PortTokens to ports of one sandbox that are good at the same time; one more ends the one that would
/// expire first.
const MOST: usize = 256;
/// Characters of a sandbox's label: 80 bits, as many as its id has that cannot be guessed.
const LABEL: usize = 16;

/// What serves ports; the door that has it gives it to the engine.
pub trait PortsListener: Send + Sync + 'static {
    /// Where it listens; opened when it is asked for the first time.
    fn open(&self) -> BoxFuture<'_, Result<PortsAddress>>;
}

/// Where ports of sandboxes are served.
#[derive(Debug, Clone)]
pub struct PortsAddress {
    /// The address of the listener.
    pub address: SocketAddr,
    /// Every port of every sandbox is a name below this one.
    pub domain: String,
}

/// A token as it was minted; the only time that it is told.
#[derive(Debug)]
pub(crate) struct Minted {
    pub(crate) ticket: String,
    pub(crate) label: String,
    pub(crate) expires_at_ms: i64,
}

/// What a token is good for.
#[derive(Debug, Clone)]
pub struct PortPass {
    address: Address,
    incarnation: SandboxId,
    /// Port inside the sandbox.
    pub port: u16,
    /// The name of the sandbox below the domain of the listener, behind the port.
    pub label: String,
    actor: String,
    role: CallerRole,
    expires: Instant,
    /// Fires when the token is taken back; connections that were made with it end.
    pub revoked: CancellationToken,
}

impl PortPass {
    /// The sandbox, for messages.
    #[must_use]
    pub fn sandbox(&self) -> &str {
        self.address.name.as_str()
    }

    /// Who minted the token.
    #[must_use]
    pub fn actor(&self) -> &str {
        &self.actor
    }

    /// Until it expires.
    #[must_use]
    pub fn time_left(&self) -> Duration {
        self.expires.saturating_duration_since(Instant::now())
    }
}

/// All tokens, by the hash of each, and the listener they are for.
#[derive(Default)]
pub(crate) struct PortTokens {
    known: Mutex<HashMap<[u8; 32], PortPass>>,
    /// The server's own: it holds the engine, which would otherwise never be let go.
    listener: OnceLock<Weak<dyn PortsListener>>,
}

impl PortTokens {
    fn insert(&self, hash: [u8; 32], pass: PortPass) {
        let mut known = crate::lock(&self.known);
        let now = Instant::now();
        known.retain(|_, other| other.expires > now);
        let mut of_this: Vec<(Instant, [u8; 32])> = known
            .iter()
            .filter(|(_, other)| other.incarnation == pass.incarnation)
            .map(|(hash, other)| (other.expires, *hash))
            .collect();
        of_this.sort_unstable();
        for (_, oldest) in of_this.iter().take((of_this.len() + 1).saturating_sub(MOST)) {
            if let Some(ended) = known.remove(oldest) {
                ended.revoked.cancel();
            }
        }
        known.insert(hash, pass);
    }

    fn find(&self, presented: &[u8]) -> Option<PortPass> {
        let hash = hash_of(presented);
        let known = crate::lock(&self.known);
        let (kept, pass) = known.get_key_value(&hash)?;
        (bool::from(kept.ct_eq(&hash)) && pass.expires > Instant::now()).then(|| pass.clone())
    }

    fn end(&self, which: impl Fn(&PortPass) -> bool) {
        crate::lock(&self.known).retain(|_, pass| {
            let ends = which(pass);
            if ends {
                pass.revoked.cancel();
            }
            !ends
        });
    }

    /// Ends the tokens that were minted with a token.
    pub(crate) fn end_of_token(&self, token: &str) {
        // A client of MCP says its own name in front of what the door knows.
        let actor = format!("token:{token}");
        self.end(|pass| pass.actor.split(' ').next_back() == Some(actor.as_str()));
    }

    /// Ends the tokens to an incarnation that is no more.
    pub(crate) fn end_of_sandbox(&self, incarnation: &SandboxId) {
        self.end(|pass| pass.incarnation == *incarnation);
    }
}

impl Ports {
    /// Opens the listener for ports, if there is to be one.
    pub(crate) async fn ports_address(&self) -> Result<PortsAddress> {
        match self.tokens.listener.get().and_then(Weak::upgrade) {
            Some(listener) => listener.open().await,
            None => Err(Error::new(Code::BackendUnavailable, "ports of sandboxes are not served over HTTP")
                .next("set `ports_listen` in the daemon's configuration to an address such as 127.0.0.1:0")
                .next("`expose` forwards a port to 127.0.0.1 without it")),
        }
    }

    /// Makes a token to a port of a sandbox.
    pub(crate) fn mint_token(
        &self,
        context: &CallContext,
        sandbox: &Sandbox,
        port: u16,
        lifetime: Duration,
    ) -> Result<Minted> {
        has_ports(sandbox)?;
        let mut random = [0u8; 32];
        getrandom::fill(&mut random).map_err(Error::internal)?;
        let ticket = URL_SAFE_NO_PAD.encode(random);
        let expires_at_ms =
            wall_clock_ms().saturating_add(i64::try_from(lifetime.as_millis()).unwrap_or(i64::MAX));
        let detail = json!({ "port": port, "expires_at_ms": expires_at_ms });
        self.journal.audit(&Audit::files(context, "port_url", sandbox, detail))?;
        let pass = PortPass {
            address: sandbox.address(),
            incarnation: sandbox.id.clone(),
            port,
            label: label_of(&sandbox.id),
            actor: context.actor.clone(),
            role: context.role,
            expires: Instant::now() + lifetime,
            revoked: CancellationToken::new(),
        };
        let label = pass.label.clone();
        self.tokens.insert(hash_of(ticket.as_bytes()), pass);
        Ok(Minted { ticket, label, expires_at_ms })
    }

    /// Says what serves ports of sandboxes. Once; without it, and when it is dropped, no tokens are minted.
    pub(crate) fn serve_ports_by(&self, listener: Weak<dyn PortsListener>) {
        let _ = self.tokens.listener.set(listener);
    }

    /// What a token is good for now; `None` when it is nobody's, has expired, or its sandbox is gone.
    pub(crate) fn port_pass(&self, presented: &[u8]) -> Option<PortPass> {
        let pass = self.tokens.find(presented)?;
        let sandbox = self.fleet.get(&pass.address)?;
        (sandbox.id == pass.incarnation && !sandbox.lease.has_expired()).then_some(pass)
    }

    /// Connects to the port a token is for.
    pub(crate) async fn reach_port(&self, pass: &PortPass) -> Result<PortStream> {
        let gone = || {
            Error::new(Code::SandboxNotFound, "the sandbox this ticket was minted for is gone")
                .next("mint another with `port_url`")
        };
        let sandbox = self.fleet.get(&pass.address).ok_or_else(gone)?;
        if sandbox.id != pass.incarnation || !sandbox.lease.touch() {
            return Err(gone());
        }
        let context = CallContext::new(Door::Http, pass.actor.clone())
            .within(pass.address.namespace.clone(), pass.role);
        self.dial_port(&context, &sandbox, pass.port).await
    }
}

/// The sandbox as a part of a host name: nobody who does not know its id can tell it.
fn label_of(id: &SandboxId) -> String {
    const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
    let hash: [u8; 32] = Sha256::digest([b"isle port label ", id.as_str().as_bytes()].concat()).into();
    hash.iter().take(LABEL).map(|byte| char::from(ALPHABET[usize::from(byte & 31)])).collect()
}

fn hash_of(ticket: &[u8]) -> [u8; 32] {
    Sha256::digest(ticket).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use isle_core::values::Namespace;

    fn pass(id: &SandboxId, actor: &str, lifetime: Duration) -> PortPass {
        PortPass {
            address: Address::new(Namespace::default(), "box".parse().unwrap()),
            incarnation: id.clone(),
            port: 80,
            label: label_of(id),
            actor: actor.to_owned(),
            role: CallerRole::Tenant,
            expires: Instant::now() + lifetime,
            revoked: CancellationToken::new(),
        }
    }

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn a_ticket_is_found_by_itself_alone_and_not_after_its_time() {
        let (tokens, id) = (PortTokens::default(), SandboxId::fresh());
        tokens.insert(hash_of(b"good"), pass(&id, "uid:0", HOUR));
        tokens.insert(hash_of(b"late"), pass(&id, "uid:0", Duration::ZERO));
        assert!(tokens.find(b"good").is_some());
        for wrong in [&b"late"[..], b"goo", b"goods", b"", &hash_of(b"good")] {
            assert!(tokens.find(wrong).is_none(), "{wrong:?}");
        }
    }

    #[test]
    fn tickets_end_with_their_token_and_their_sandbox() {
        let (tokens, one, two) = (PortTokens::default(), SandboxId::fresh(), SandboxId::fresh());
        for (name, id, actor) in [
            ("a", &one, "token:tok_1"),
            ("b", &one, "mcp:x token:tok_1"),
            ("c", &one, "uid:0"),
            ("d", &two, "uid:0"),
        ] {
            tokens.insert(hash_of(name.as_bytes()), pass(id, actor, HOUR));
        }
        let cut = tokens.find(b"a").unwrap().revoked;
        tokens.end_of_token("tok_1");
        assert!(cut.is_cancelled());
        let left = || ["a", "b", "c", "d"].map(|name| tokens.find(name.as_bytes()).is_some());
        assert_eq!(left(), [false, false, true, true]);
        tokens.end_of_sandbox(&one);
        assert_eq!(left(), [false, false, false, true]);
    }

    #[test]
    fn tickets_of_one_sandbox_are_bounded_and_the_first_to_expire_goes() {
        let (tokens, one, two) = (PortTokens::default(), SandboxId::fresh(), SandboxId::fresh());
        tokens.insert(hash_of(b"other"), pass(&two, "uid:0", HOUR));
        tokens.insert(hash_of(b"first"), pass(&one, "uid:0", HOUR));
        for number in 1..MOST {
            tokens.insert(hash_of(&number.to_le_bytes()), pass(&one, "uid:0", 2 * HOUR));
        }
        assert!(tokens.find(b"first").is_some());
        tokens.insert(hash_of(b"one more"), pass(&one, "uid:0", 2 * HOUR));
        assert!(tokens.find(b"first").is_none() && tokens.find(b"one more").is_some());
        assert!(tokens.find(b"other").is_some());
    }

    #[test]
    fn a_label_is_a_part_of_a_host_name_and_says_nothing_about_the_id() {
        let id = SandboxId::fresh();
        let label = label_of(&id);
        assert_eq!(label, label_of(&id));
        assert_ne!(label, label_of(&SandboxId::fresh()));
        assert!(label.len() == LABEL && label.bytes().all(|byte| byte.is_ascii_alphanumeric()));
        assert!(!id.as_str().contains(&label));
    }
}
