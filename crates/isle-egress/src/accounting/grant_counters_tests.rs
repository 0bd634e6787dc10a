use super::*;

#[test]
fn bytes_are_claimed_until_the_limit_is_used_up() {
    let counters = GrantCounters::new(Some(10), None, Arc::default());
    assert_eq!(counters.claim(Direction::Sent, 6), 6);
    assert_eq!(counters.reserve(3), 3);
    assert_eq!(counters.claim(Direction::Received, 4), 1);
    assert_eq!(counters.claim(Direction::Sent, 1), 0);
    counters.release(3);
    assert_eq!(counters.claim(Direction::Received, 4), 3);
    assert_eq!((counters.count().sent, counters.count().received), (6, 4));
    assert_eq!(GrantCounters::new(None, None, Arc::default()).claim(Direction::Sent, usize::MAX), usize::MAX);
}
