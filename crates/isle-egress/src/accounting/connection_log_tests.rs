use super::*;
use crate::policy::denial::Reason;

#[test]
fn the_log_is_bounded_and_denials_are_distinct() {
    let mut net = ConnectionLog::default();
    for number in 0..1000 {
        let denial = Denial::new(format!("host{}.example", number % 3), Reason::NotGranted);
        net.add(denial.target.clone(), None, Duration::ZERO, ConnectionResult::Denied(denial));
    }
    assert_eq!((net.entries.len(), net.sequence, net.denied), (KEPT, 1000, 1000));
    assert_eq!(net.denials_after(0).len(), 3);
    assert_eq!(net.denials_after(999).len(), 1);
    for number in 0..1000 {
        let denial = Denial::new(format!("other{number}.example"), Reason::NotGranted);
        net.add(denial.target.clone(), None, Duration::ZERO, ConnectionResult::Denied(denial));
    }
    assert_eq!(net.denials_after(0).len(), DENIALS_KEPT);
}
