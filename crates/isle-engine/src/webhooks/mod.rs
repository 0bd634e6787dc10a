//! Webhooks: addresses of the web to which the operator has events sent.
//!
//! Owns the webhooks and the key that signs what is sent. Each webhook has a position on the event bus that is
//! on record, so that the next daemon continues where this one stopped, and a task that sends what is new
//! (`deliver`) and signs it (`sign`). A receiver that fails is tried again, with growing pauses; events that are
//! gone before it works again are counted as lost.
//!
//! Invariants: only the operator adds one, and no model does; names that resolve to private addresses are not
//! sent to unless those addresses were opened explicitly; memory and store change in the same order.
//!
//! Called by the operations on webhooks and once at a start. Calls the journal and the bus.

mod deliver;
mod sign;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use isle_core::clock::wall_clock_ms;
use isle_egress::{AddressRange, Pattern, Resolver, WebhookClient, WebhookUrl};
use isle_fail::Point;
use isle_store::WebhookRow;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::base::Tasks;
use crate::context::{CallContext, Door};
use crate::engine::EngineConfig;
use crate::events::{EventKind, EventSelection, Events, within};
use crate::failpoint;
use crate::journal::{Actor, Journal, namespace_of, store_error};
use isle_core::values::{Namespace, SandboxName, WebhookId};
use isle_core::{Code, Error, Result};
use sign::{Key, Secret};

/// Webhooks of one daemon: each has a task and a place.
const MOST: usize = 64;
/// Addresses that one of them opens.
const MOST_ADDRESSES: usize = 16;

/// See the module.
pub(crate) struct Webhooks {
    config: Arc<EngineConfig>,
    tasks: Arc<Tasks>,
    journal: Arc<Journal>,
    events: Arc<Events>,
    resolver: Arc<Resolver>,
    list: Mutex<BTreeMap<WebhookId, Arc<Webhook>>>,
    /// Held while one is added or removed, so that memory and store change in the same order.
    changing: Mutex<()>,
    key: OnceLock<Key>,
    counts: Arc<Counts>,
}

/// What was sent since the daemon started, for the metrics.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) delivered: AtomicU64,
    pub(crate) lost: AtomicU64,
    pub(crate) failed_tries: AtomicU64,
}

/// What the operator asked for.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Wanted {
    pub(crate) url: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) kinds: Vec<EventKind>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sandbox: Option<SandboxName>,
    /// Addresses that are not public and that the name may lead to, as they were written.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) addresses: Vec<String>,
}

/// One of them.
#[derive(Debug)]
pub(crate) struct Webhook {
    pub(crate) id: WebhookId,
    /// `None`: the events of all.
    pub(crate) namespace: Option<Namespace>,
    pub(crate) wanted: Wanted,
    pub(crate) created_at_ms: i64,
    url: WebhookUrl,
    opened: Vec<AddressRange>,
    /// What it is signed with; without it nothing is sent.
    secret: Option<Secret>,
    progress: Mutex<DeliveryStatus>,
    /// Fires when nothing more is to be sent.
    ended: CancellationToken,
}

/// How far its receiver is.
#[derive(Debug, Clone, Default)]
pub(crate) struct DeliveryStatus {
    /// The newest event it has, or did not ask for.
    pub(crate) place: u64,
    /// Events sent since the daemon started.
    pub(crate) delivered: u64,
    /// Events that were gone before they could be sent, ever.
    pub(crate) lost: u64,
    /// Failed tries since the last that worked.
    pub(crate) tries: u64,
    pub(crate) last_error: Option<String>,
    pub(crate) next_try_ms: Option<i64>,
    pub(crate) last_delivered_ms: Option<i64>,
}

impl Webhook {
    pub(crate) fn progress(&self) -> DeliveryStatus {
        crate::lock(&self.progress).clone()
    }

    fn selection(&self) -> EventSelection {
        EventSelection {
            namespace: self.namespace.as_ref().map(ToString::to_string),
            kinds: self.wanted.kinds.clone(),
            sandbox: self.wanted.sandbox.clone(),
            run: None,
        }
    }
}

impl Drop for Webhooks {
    fn drop(&mut self) {
        self.end();
    }
}

impl Webhooks {
    pub(crate) fn new(
        config: Arc<EngineConfig>,
        tasks: Arc<Tasks>,
        journal: Arc<Journal>,
        events: Arc<Events>,
        resolver: Arc<Resolver>,
    ) -> Self {
        Self {
            config,
            tasks,
            journal,
            events,
            resolver,
            list: Mutex::default(),
            changing: Mutex::default(),
            key: OnceLock::new(),
            counts: Arc::default(),
        }
    }

    /// Sends nothing more; what was not sent is sent by the next daemon.
    pub(crate) fn end(&self) {
        for webhook in crate::lock(&self.list).values() {
            webhook.ended.cancel();
        }
    }

    pub(crate) fn counts(&self) -> &Counts {
        &self.counts
    }
}

/// Where events go is the operator's to say, and no model's.
fn may_send(context: &CallContext) -> Result<()> {
    context.operator_only("sending events elsewhere")?;
    if context.door == Door::Mcp {
        return Err(Error::new(Code::Forbidden, "a model does not choose where events are sent")
            .next("ask the person you work for to run `isle webhooks add URL`"));
    }
    Ok(())
}

fn url_of(text: &str) -> Result<WebhookUrl> {
    WebhookUrl::parse(text).map_err(|error| {
        Error::new(Code::InvalidArgument, format!("{text:?} is no address for a webhook: {error}"))
            .next("write https://HOST/PATH; http:// is for addresses of this machine and of private networks")
    })
}

fn ranges_of(texts: &[String]) -> Result<Vec<AddressRange>> {
    if texts.len() > MOST_ADDRESSES {
        return Err(Error::new(
            Code::InvalidArgument,
            format!("a webhook opens at most {MOST_ADDRESSES} addresses"),
        )
        .next("write a range, such as 10.0.0.0/8"));
    }
    let range = |text: &String| match Pattern::parse(text) {
        Ok(Pattern::Addresses(range)) => Ok(range),
        Ok(Pattern::Exact(_) | Pattern::Below(_)) | Err(_) => {
            Err(Error::new(Code::InvalidArgument, format!("{text:?} is no address"))
                .next("write addresses or ranges, such as 10.0.0.5 or 10.0.0.0/8"))
        }
    };
    texts.iter().map(range).collect()
}

impl Webhooks {
    /// Reads them, at start.
    pub(crate) fn load(&self) -> Result<()> {
        let rows = self.journal.store().webhooks().map_err(store_error)?;
        if rows.is_empty() {
            return Ok(());
        }
        let key = match self.journal.store().webhook_key().map_err(store_error) {
            Ok(found) => found.map(Key::new),
            Err(error) => {
                tracing::error!(%error, "webhooks cannot be signed");
                None
            }
        };
        let key = key.map(|key| self.key.get_or_init(|| key));
        for row in rows {
            match self.webhook_of(&row, key) {
                Ok(webhook) => self.start(webhook),
                Err(error) => tracing::warn!(id = row.id, %error, "the record of a webhook cannot be read"),
            }
        }
        Ok(())
    }

    fn webhook_of(&self, row: &WebhookRow, key: Option<&Key>) -> Result<Webhook> {
        let id: WebhookId = row.id.parse()?;
        let wanted: Wanted = serde_json::from_value(row.definition.clone()).map_err(Error::internal)?;
        // Another key makes another signature, which no receiver would believe.
        let secret = key.map(|key| key.secret_of(&id)).filter(|secret| secret.has_hash(&row.hash));
        let last_error = secret.is_none().then(|| {
            "its key is gone, so nothing can be signed: remove it, and add it again for a new secret"
                .to_owned()
        });
        let place = row.place.min(self.events.newest());
        Ok(Webhook {
            namespace: row.namespace.as_deref().map(namespace_of),
            url: url_of(&wanted.url)?,
            opened: ranges_of(&wanted.addresses)?,
            created_at_ms: row.created_at_ms,
            progress: Mutex::new(DeliveryStatus {
                place,
                lost: row.lost,
                last_error,
                ..DeliveryStatus::default()
            }),
            ended: CancellationToken::new(),
            id,
            wanted,
            secret,
        })
    }

    fn start(&self, webhook: Webhook) {
        let webhook = Arc::new(webhook);
        crate::lock(&self.list).insert(webhook.id.clone(), Arc::clone(&webhook));
        let outlet = deliver::Outlet {
            events: Arc::clone(&self.events),
            store: self.journal.store().clone(),
            poster: WebhookClient::new(Arc::clone(&self.resolver), Arc::clone(&self.config.network.roots)),
            counts: Arc::clone(&self.counts),
        };
        tokio::spawn(outlet.serve(webhook));
    }

    /// Has the events of the caller's namespace, or with `all` everybody's, sent to an address from now on.
    /// The secret its signatures are made with is in nobody's hands but the caller's afterwards.
    pub(crate) fn add(
        &self,
        context: &CallContext,
        wanted: Wanted,
        all: bool,
    ) -> Result<(Arc<Webhook>, String)> {
        may_send(context)?;
        let namespace = within(context, all)?;
        let (url, _) = (url_of(&wanted.url)?, ranges_of(&wanted.addresses)?);
        self.tasks.refuse_when_stopping()?;
        let _held = crate::lock(&self.changing);
        if crate::lock(&self.list).len() >= MOST {
            return Err(Error::new(Code::LimitReached, format!("there are {MOST} webhooks already"))
                .next("remove those that nobody needs: `isle webhooks list` shows how each fares"));
        }
        let key = self.signing_key()?;
        let id = WebhookId::fresh();
        let secret = key.secret_of(&id);
        let row = WebhookRow {
            id: id.to_string(),
            definition: serde_json::to_value(&wanted).map_err(Error::internal)?,
            hash: secret.hash().to_vec(),
            created_at_ms: wall_clock_ms(),
            place: self.events.newest(),
            lost: 0,
            namespace,
        };
        let text = secret.reveal();
        let webhook = self.webhook_of(&row, Some(key))?;
        let detail = json!({
            "webhook": id,
            "target": url.target().to_string(),
            "namespace": row.namespace,
            "kinds": wanted.kinds,
            "sandbox": wanted.sandbox,
            "addresses": wanted.addresses,
        });
        let entry = Actor::of(context).about_nothing("add_webhook", detail);
        self.journal.store().insert_webhook(&row, &entry).map_err(store_error)?;
        isle_fail::pass(Point::WebhookRecorded);
        self.start(webhook);
        let webhook = self.find(context, &id)?;
        Ok((webhook, text))
    }

    /// The key, made when there is none.
    fn signing_key(&self) -> Result<&Key> {
        if let Some(key) = self.key.get() {
            return Ok(key);
        }
        let store = self.journal.store();
        let bytes = match store.webhook_key().map_err(store_error)? {
            Some(bytes) => bytes,
            None => {
                let mut bytes = [0; isle_store::WEBHOOK_KEY_LENGTH];
                getrandom::fill(&mut bytes).map_err(Error::internal)?;
                store.set_webhook_key(&bytes).map_err(store_error)?;
                failpoint(Point::WebhookKeyMade)?;
                bytes
            }
        };
        Ok(self.key.get_or_init(|| Key::new(bytes)))
    }

    /// Those of the caller's namespace, or with `all` every one, oldest first.
    pub(crate) fn of(&self, context: &CallContext, all: bool) -> Result<Vec<Arc<Webhook>>> {
        context.operator_only("where events are sent")?;
        let shown = |webhook: &&Arc<Webhook>| all || webhook.namespace.as_ref() == Some(&context.namespace);
        Ok(crate::lock(&self.list).values().filter(shown).cloned().collect())
    }

    /// Sends nothing more there.
    pub(crate) fn remove(&self, context: &CallContext, id: &WebhookId) -> Result<Arc<Webhook>> {
        may_send(context)?;
        let _held = crate::lock(&self.changing);
        let webhook = self.find(context, id)?;
        let detail = json!({ "webhook": id, "target": webhook.url.target().to_string() });
        let entry = Actor::of(context).about_nothing("remove_webhook", detail);
        self.journal.store().remove_webhook(id.as_str(), &entry).map_err(store_error)?;
        isle_fail::pass(Point::WebhookRemoved);
        crate::lock(&self.list).remove(id);
        webhook.ended.cancel();
        Ok(webhook)
    }

    fn find(&self, context: &CallContext, id: &WebhookId) -> Result<Arc<Webhook>> {
        context.operator_only("where events are sent")?;
        crate::lock(&self.list).get(id).cloned().ok_or_else(|| {
            Error::new(Code::WebhookNotFound, format!("there is no webhook {id}"))
                .next("`list_webhooks` with `all` lists those there are")
        })
    }

    /// How many events wait while sending fails, those that were not asked for included.
    pub(crate) fn behind(&self, progress: &DeliveryStatus) -> u64 {
        if progress.last_error.is_none() { 0 } else { self.events.newest().saturating_sub(progress.place) }
    }
}

impl Counts {
    /// What was delivered, what was lost, and how often it did not work.
    pub(crate) fn now(&self) -> [u64; 3] {
        [&self.delivered, &self.lost, &self.failed_tries].map(|count| count.load(Ordering::Relaxed))
    }
}
