//! Tenants: the namespaces there are, and the tokens that lead into them.
//!
//! Owns both lists, in the store for good and in memory for speed: every request over TCP asks
//! [`Tenants::recognise`], which compares every hash, each in constant time. A token is shown once, when it is
//! made; what is kept is its hash. Memory and store change in the same order, under one lock.
//!
//! A namespace exists since a token was made for it, or since a sandbox of it was found at a start. Revoking a
//! token does not end the connections that were made with it: the engine ends the port tokens that it minted.
//! Called by the server's authentication, by the operations on tokens, and by recovery. Calls the journal only.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, RwLock};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use isle_core::clock::wall_clock_ms;
use isle_store::TokenRow;
use serde_json::json;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::context::CallContext;
use crate::journal::{Actor, Journal, store_error};
use isle_core::values::{Namespace, TokenId};
use isle_core::{Code, Error, Result};

/// What tokens of tenants begin with, so that they are recognised where they should not be.
const PREFIX: &str = "isle_";
/// How exact the time of last use is; writing it down at every request would cost more than it says.
const EXACTNESS_MS: i64 = 60_000;
/// Namespaces and tokens are kept in memory and looked through one by one.
const MOST: usize = 1000;

/// Whom a token belongs to.
#[derive(Debug, Clone)]
pub struct Tenant {
    /// Where it may work.
    pub namespace: Namespace,
    /// Which token it came with.
    pub token: TokenId,
}

/// A token without the token.
#[derive(Debug)]
struct KnownToken {
    id: TokenId,
    namespace: Namespace,
    hash: [u8; 32],
    created_at_ms: i64,
    /// 0: never.
    last_used_ms: AtomicI64,
}

#[derive(Debug, Default)]
struct Lists {
    namespaces: BTreeSet<Namespace>,
    tokens: Vec<KnownToken>,
}

/// All tenants.
#[derive(Debug)]
pub(crate) struct Tenants {
    journal: Arc<Journal>,
    lists: RwLock<Lists>,
}

/// A token as it is listed.
#[derive(Debug, Clone)]
pub(crate) struct TokenFacts {
    pub(crate) id: TokenId,
    pub(crate) namespace: Namespace,
    pub(crate) created_at_ms: i64,
    pub(crate) last_used_ms: Option<i64>,
}

impl Tenants {
    pub(crate) fn new(journal: Arc<Journal>) -> Self {
        Self { journal, lists: RwLock::default() }
    }

    /// Every namespace there is, by name.
    pub(crate) fn namespaces(&self) -> Vec<Namespace> {
        crate::read(&self.lists).namespaces.iter().cloned().collect()
    }

    fn knows(&self, namespace: &Namespace) -> bool {
        crate::read(&self.lists).namespaces.contains(namespace)
    }

    /// All tokens, oldest first.
    pub(crate) fn tokens(&self) -> Vec<TokenFacts> {
        let facts = |token: &KnownToken| TokenFacts {
            id: token.id.clone(),
            namespace: token.namespace.clone(),
            created_at_ms: token.created_at_ms,
            last_used_ms: Some(token.last_used_ms.load(Ordering::Relaxed)).filter(|&used| used > 0),
        };
        crate::read(&self.lists).tokens.iter().map(facts).collect()
    }

    /// Reads them, at start.
    pub(crate) fn load(&self) -> Result<()> {
        let store = self.journal.store();
        let mut lists = Lists::default();
        lists.namespaces.insert(Namespace::default());
        for name in store.namespaces().map_err(store_error)? {
            lists.namespaces.extend(name.parse::<Namespace>());
        }
        for row in store.tokens().map_err(store_error)? {
            let read = (row.id.parse(), row.namespace.parse(), <[u8; 32]>::try_from(row.hash.as_slice()));
            let (Ok(id), Ok(namespace), Ok(hash)) = read else {
                tracing::warn!(
                    id = row.id,
                    "the record of a token cannot be read; the token is worth nothing"
                );
                continue;
            };
            lists.tokens.push(KnownToken {
                id,
                namespace,
                hash,
                created_at_ms: row.created_at_ms,
                last_used_ms: AtomicI64::new(row.last_used_ms.unwrap_or(0)),
            });
        }
        *crate::write(&self.lists) = lists;
        Ok(())
    }

    /// A namespace that lives in sandboxes, though no record of it is left.
    pub(crate) fn found_namespace(&self, namespace: &Namespace) {
        if !self.knows(namespace) {
            crate::write(&self.lists).namespaces.insert(namespace.clone());
        }
    }

    /// Makes a token for a namespace, and the namespace when it is new. The text is in nobody's hands
    /// but the caller's afterwards.
    pub(crate) fn create_token(
        &self,
        context: &CallContext,
        namespace: &Namespace,
    ) -> Result<(TokenId, String)> {
        let mut random = [0u8; 32];
        getrandom::fill(&mut random).map_err(Error::internal)?;
        let text = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(random));
        let (id, hash, now) = (TokenId::fresh(), hash_of(text.as_bytes()), wall_clock_ms());
        // Held throughout: memory and store change in the same order.
        let mut lists = crate::write(&self.lists);
        if lists.tokens.len() >= MOST || lists.namespaces.len() >= MOST {
            return Err(Error::new(
                Code::LimitReached,
                format!("there are {MOST} tokens or namespaces already"),
            )
            .detail("tokens", lists.tokens.len())
            .next("revoke tokens that nobody uses: `list_tokens` tells when each was last used"));
        }
        let row = TokenRow {
            id: id.to_string(),
            namespace: namespace.to_string(),
            hash: hash.to_vec(),
            created_at_ms: now,
            last_used_ms: None,
        };
        let detail = json!({ "token": id, "namespace": namespace });
        let entry = Actor::of(context).about_nothing("create_token", detail);
        self.journal.store().insert_token(&row, &entry).map_err(store_error)?;
        lists.namespaces.insert(namespace.clone());
        lists.tokens.push(KnownToken {
            id: id.clone(),
            namespace: namespace.clone(),
            hash,
            created_at_ms: now,
            last_used_ms: AtomicI64::new(0),
        });
        Ok((id, text))
    }

    /// Makes a token worthless. Answers whose it was.
    pub(crate) fn revoke_token(&self, context: &CallContext, id: &TokenId) -> Result<Namespace> {
        let mut lists = crate::write(&self.lists);
        let Some(place) = lists.tokens.iter().position(|token| token.id == *id) else {
            return Err(Error::new(Code::TokenNotFound, format!("there is no token {id}"))
                .next("`list_tokens` lists those there are"));
        };
        let namespace = lists.tokens[place].namespace.clone();
        let detail = json!({ "token": id, "namespace": namespace });
        let entry = Actor::of(context).about_nothing("revoke_token", detail);
        self.journal.store().remove_token(id.as_str(), &entry).map_err(store_error)?;
        lists.tokens.remove(place);
        Ok(namespace)
    }

    /// Whose token that is; `None` when it is nobody's. Every hash is compared, each in constant time.
    pub(crate) fn recognise(&self, presented: &[u8]) -> Option<Tenant> {
        let hash = hash_of(presented);
        let now = wall_clock_ms();
        let lists = crate::read(&self.lists);
        let mut found = None;
        for token in &lists.tokens {
            if bool::from(token.hash.ct_eq(&hash)) {
                found = Some(token);
            }
        }
        let token = found?;
        let before = token.last_used_ms.load(Ordering::Relaxed);
        let stale = now.saturating_sub(before) >= EXACTNESS_MS;
        if stale
            && token.last_used_ms.compare_exchange(before, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            // Whoever looks at it later is told a little less; nothing else depends on it.
            if let Err(error) = self.journal.store().token_used(token.id.as_str(), now) {
                tracing::warn!(token = %token.id, %error, "the use of a token could not be recorded");
            }
        }
        Some(Tenant { namespace: token.namespace.clone(), token: token.id.clone() })
    }

    /// Refuses a namespace that nobody made.
    pub(crate) fn check_namespace(&self, namespace: &Namespace) -> Result<()> {
        if self.knows(namespace) {
            return Ok(());
        }
        let names: Vec<String> = self.namespaces().iter().take(50).map(Namespace::to_string).collect();
        Err(Error::new(Code::NamespaceNotFound, format!("there is no namespace {namespace}"))
            .detail("namespaces", names)
            .next("use one of those in `details`; making a token for a namespace makes the namespace"))
    }
}

/// Whether a text holds what looks like the token of a tenant.
#[must_use]
pub fn holds_tenant_token(text: &[u8]) -> bool {
    // 32 bytes as base64 without padding.
    const LENGTH: usize = 43;
    let is_token = |part: &[u8]| {
        part.strip_prefix(PREFIX.as_bytes()).is_some_and(|rest| {
            rest.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
        })
    };
    text.windows(PREFIX.len() + LENGTH).any(is_token)
}

fn hash_of(token: &[u8]) -> [u8; 32] {
    Sha256::digest(token).into()
}
