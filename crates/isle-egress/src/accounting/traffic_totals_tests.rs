use super::*;
use crate::policy::denial::{Denial, Reason};

#[test]
fn totals_count_for_themselves_and_in_the_whole() {
    let whole = Arc::new(TrafficTotals::default());
    let [one, two] = [(); 2].map(|()| TrafficTotals::within(Arc::clone(&whole)));
    one.opened();
    one.moved(Direction::Sent, 5);
    let before = one.summary();
    one.moved(Direction::Received, 7);
    one.closed();
    one.ended(&ConnectionResult::Denied(Denial::new("x.example", Reason::NotGranted)));
    two.opened();
    two.dialed(Duration::from_millis(1));
    let after = TrafficSummary { connections: 0, sent: 0, received: 7, denied: 1 };
    assert_eq!(one.summary().since(before), after);
    assert_eq!(whole.summary(), TrafficSummary { connections: 2, sent: 5, received: 7, denied: 1 });
    let Traffic { count, denied, dialed, .. } = whole.now();
    assert_eq!((count.open, denied.len(), dialed.counts[0]), (1, 1, 1));
}

#[test]
fn everything_is_counted_once_and_only_open_connections_decrease() {
    let totals = TrafficTotals::default();
    totals.opened();
    totals.opened();
    totals.closed();
    totals.moved(Direction::Sent, 5);
    totals.moved(Direction::Received, 7);
    totals.dialed(Duration::from_millis(1));
    totals.dialed(Duration::from_secs(60));
    for reason in [Reason::NotGranted, Reason::NotGranted, Reason::TooMany] {
        totals.ended(&ConnectionResult::Denied(Denial::new("x.example", reason)));
    }
    totals.ended(&ConnectionResult::Failed("gone".into()));
    totals.ended(&ConnectionResult::Closed { sent: 1, received: 1 });
    let Traffic { count, denied, failed, dialed } = totals.now();
    assert_eq!((count.connections, count.open, count.sent, count.received), (2, 1, 5, 7));
    assert_eq!(denied.values().copied().collect::<Vec<_>>().iter().sum::<u64>(), 3);
    assert_eq!(denied[Reason::NotGranted.as_str()], 2);
    assert_eq!(failed, 1);
    assert_eq!((dialed.counts[0], dialed.counts[DIAL_TIMES.len()]), (1, 1));
    assert_eq!(dialed.sum, Duration::from_millis(60_001));
}
