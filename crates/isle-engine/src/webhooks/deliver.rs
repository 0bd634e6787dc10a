//! Sending: what is new on the bus goes out in order, a bounded part at a time, again and again until the
//! receiver has it. Meanwhile nothing is kept but the place: the ring and the history hold the rest, and
//! what they have let go of is told as lost.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue, USER_AGENT};
use isle_core::clock::wall_clock_ms;
use isle_egress::WebhookClient;
use isle_fail::Point;
use isle_store::Store;
use serde_json::json;

use super::sign::Secret;
use super::{Counts, Webhook};
use crate::events::{Events, FollowedEvent, Follower};
use isle_api::ops::events::EventShape;

/// Events of one request.
const AT_ONCE: usize = 100;
/// How long the first waits for others.
const GATHER: Duration = Duration::from_millis(50);
/// How long after the first failure is tried again; doubled each time.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(300);
/// How often the place is recorded while nothing is of interest.
const REST: Duration = Duration::from_secs(60);

const ID: HeaderName = HeaderName::from_static("isle-webhook");
const TIMESTAMP: HeaderName = HeaderName::from_static("isle-timestamp");
const SIGNATURE: HeaderName = HeaderName::from_static("isle-signature");

/// What sending needs.
pub(super) struct Outlet {
    pub(super) events: Arc<Events>,
    pub(super) store: Store,
    pub(super) poster: WebhookClient,
    pub(super) counts: Arc<Counts>,
}

/// One request.
struct Parcel {
    body: Bytes,
    events: u64,
    lost: u64,
    /// The place behind it.
    place: u64,
}

impl Outlet {
    /// Sends until the webhook ends.
    pub(super) async fn serve(self, webhook: Arc<Webhook>) {
        let Some(secret) = &webhook.secret else { return };
        let place = webhook.progress().place;
        let mut follower = self.events.follower(Some(place), webhook.selection());
        loop {
            let sending = self.next(&webhook, secret, &mut follower);
            tokio::select! {
                biased;
                () = webhook.ended.cancelled() => return,
                more = sending => if more.is_none() { return },
            }
        }
    }

    /// Sends what is next, however long it takes; `None` when there will be no more.
    async fn next(&self, webhook: &Webhook, secret: &Secret, follower: &mut Follower) -> Option<()> {
        match tokio::time::timeout(REST, follower.until_ready()).await {
            Ok(ready) => ready?,
            Err(_) => {
                if let Some(place) = follower.place() {
                    self.reached(webhook, place);
                }
                return Some(());
            }
        }
        tokio::time::sleep(GATHER).await;
        let (events, place) = follower.take(AT_ONCE);
        let parcel = pack(webhook, &events, place);
        let mut wait = FIRST_WAIT;
        while let Err(why) = self.post(webhook, secret, &parcel.body).await {
            self.counts.failed_tries.fetch_add(1, Ordering::Relaxed);
            let wait_now = shaken(wait);
            {
                let mut progress = crate::lock(&webhook.progress);
                progress.tries += 1;
                progress.last_error = Some(why);
                let millis = i64::try_from(wait_now.as_millis()).unwrap_or(i64::MAX);
                progress.next_try_ms = Some(wall_clock_ms().saturating_add(millis));
            }
            tokio::time::sleep(wait_now).await;
            wait = (wait * 2).min(LONGEST_WAIT);
        }
        isle_fail::pass(Point::WebhookDelivered);
        self.counts.delivered.fetch_add(parcel.events, Ordering::Relaxed);
        self.counts.lost.fetch_add(parcel.lost, Ordering::Relaxed);
        {
            let mut progress = crate::lock(&webhook.progress);
            progress.delivered += parcel.events;
            progress.lost += parcel.lost;
            (progress.tries, progress.last_error, progress.next_try_ms) = (0, None, None);
            progress.last_delivered_ms = Some(wall_clock_ms());
        }
        self.reached(webhook, parcel.place);
        isle_fail::pass(Point::WebhookPlaced);
        Some(())
    }

    async fn post(&self, webhook: &Webhook, secret: &Secret, body: &Bytes) -> Result<(), String> {
        // Of the moment in which it is sent, so that receivers can refuse what is old.
        let timestamp = (wall_clock_ms() / 1000).to_string();
        let value = |text: &str| HeaderValue::from_str(text).map_err(|error| error.to_string());
        let headers = vec![
            (CONTENT_TYPE, HeaderValue::from_static("application/json")),
            (USER_AGENT, HeaderValue::from_static(concat!("isle/", env!("CARGO_PKG_VERSION")))),
            (ID, value(webhook.id.as_str())?),
            (SIGNATURE, value(&secret.sign(&timestamp, body))?),
            (TIMESTAMP, value(&timestamp)?),
        ];
        let posted = self.poster.post(&webhook.url, &webhook.opened, headers, body.clone()).await;
        posted.map_err(|error| error.to_string())
    }

    /// Its receiver needs nothing before this place any more.
    fn reached(&self, webhook: &Webhook, place: u64) {
        let (changed, lost) = {
            let mut progress = crate::lock(&webhook.progress);
            (std::mem::replace(&mut progress.place, place) != place, progress.lost)
        };
        if changed && let Err(error) = self.store.webhook_reached(webhook.id.as_str(), place, lost) {
            // The next daemon sends some of it a second time.
            tracing::warn!(webhook = %webhook.id, %error, "how far a webhook is could not be recorded");
        }
    }
}

/// Makes one request of events. What was lost comes first in it: it was before them.
fn pack(webhook: &Webhook, followed: &[FollowedEvent], place: u64) -> Parcel {
    let (mut events, mut lost) = (Vec::new(), 0);
    for one in followed {
        match one {
            FollowedEvent::Lost { events, .. } => lost += events,
            FollowedEvent::Event(told) => events.push(EventShape::from(&**told)),
        }
    }
    let body = json!({ "webhook": webhook.id, "lost": lost, "events": events }).to_string();
    let count = u64::try_from(events.len()).unwrap_or(u64::MAX);
    Parcel { body: body.into(), events: count, lost, place }
}

/// Up to a quarter more, so that those who failed together do not come back together.
fn shaken(wait: Duration) -> Duration {
    let mut byte = [0u8];
    // Without randomness it is the plain time.
    getrandom::fill(&mut byte).ok();
    wait + wait / 4 * u32::from(byte[0]) / 255
}
