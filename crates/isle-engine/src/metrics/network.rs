//! The network in the metrics: what went through gates, and over ports of sandboxes.

use std::sync::atomic::Ordering;

use isle_egress::{DIAL_TIMES, Traffic};

use super::gather::{Labels, MetricSources, counter, gauge, histogram, labels, number, one};
use super::{Bucket, Metric, Sample};
use crate::network::PortCount;

impl MetricSources<'_> {
    /// What sandboxes reached, and what they were denied.
    pub(super) fn gates(&self) -> Vec<Metric> {
        let Traffic { count, denied, failed, dialed } = self.network.traffic();
        let plain = |value: u64| vec![one(Labels::new(), number(value))];
        let mut below = 0;
        let buckets = DIAL_TIMES.iter().zip(&dialed.counts).map(|(bound, count)| {
            below += count;
            Bucket { up_to: *bound, count: below }
        });
        let times = Sample {
            labels: Labels::new(),
            value: dialed.sum.as_secs_f64(),
            buckets: buckets.collect(),
            count: Some(dialed.counts.iter().sum()),
        };
        vec![
            counter(
                "isle_net_connections_total",
                "Connections of sandboxes that were granted and made.",
                plain(count.connections),
            ),
            gauge("isle_net_connections_open", "Of those, open now.", plain(count.open)),
            counter(
                "isle_net_bytes_total",
                "Bytes of those connections, as the sandbox sees them.",
                directions(Labels::new(), count.sent, count.received),
            ),
            counter(
                "isle_net_denied_total",
                "Names and connections that were denied to sandboxes, by rule.",
                denied.iter().map(|(rule, count)| one(labels([("reason", rule)]), number(*count))).collect(),
            ),
            counter(
                "isle_net_failed_total",
                "Granted connections that could not be made, or broke.",
                plain(failed),
            ),
            counter(
                "isle_secret_swaps_total",
                "Values of secrets that were put into requests.",
                plain(self.vault.swapped.load(Ordering::Relaxed)),
            ),
            counter(
                "isle_secret_reflections_total",
                "Values of secrets that servers sent back and that were masked.",
                plain(self.vault.reflected.load(Ordering::Relaxed)),
            ),
            histogram(
                "isle_net_dial_duration_seconds",
                "How long it took to resolve a granted name and to connect.",
                vec![times],
            ),
        ]
    }

    /// What was sent to webhooks.
    pub(super) fn sent(&self) -> Vec<Metric> {
        let [delivered, lost, failed] = self.webhooks.counts().now();
        let result = |word: &str, count: u64| one(labels([("result", word)]), number(count));
        vec![
            counter(
                "isle_webhook_events_total",
                "Events that receivers of webhooks got, and those that were gone before they could.",
                vec![result("delivered", delivered), result("lost", lost)],
            ),
            counter(
                "isle_webhook_failures_total",
                "Requests to webhooks that failed; each is tried again.",
                vec![one(Labels::new(), number(failed))],
            ),
        ]
    }

    /// What came to ports of sandboxes from outside.
    pub(super) fn ports(&self) -> Vec<Metric> {
        let doors = self.ports.counts();
        let each = |value: fn(&PortCount) -> u64| -> Vec<Sample> {
            doors.iter().map(|(door, count)| one(labels([("door", door)]), number(value(count)))).collect()
        };
        let bytes = doors
            .iter()
            .flat_map(|(door, count)| directions(labels([("door", door)]), count.sent, count.received));
        vec![
            counter(
                "isle_port_connections_total",
                "Connections to ports of sandboxes, by how they came.",
                each(|count| count.connections),
            ),
            gauge("isle_port_connections_open", "Of those, open now.", each(|count| count.open)),
            counter(
                "isle_port_refused_total",
                "Connections to ports of sandboxes that found nobody, or one too many.",
                each(|count| count.refused),
            ),
            counter(
                "isle_port_bytes_total",
                "Bytes of those connections, as the sandbox sees them.",
                bytes.collect(),
            ),
        ]
    }
}

fn directions(labels: Labels, sent: u64, received: u64) -> Vec<Sample> {
    let way = |direction: &str, bytes| {
        let mut labels = labels.clone();
        labels.insert("direction", direction.to_owned());
        one(labels, number(bytes))
    };
    vec![way("sent", sent), way("received", received)]
}
