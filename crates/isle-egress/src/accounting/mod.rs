//! Counters and limits of traffic: bytes and connections per grant, rate limits, the connection log of a
//! sandbox, and the totals of all sandboxes.

pub(crate) mod connection_log;
pub(crate) mod grant_counters;
pub(crate) mod metered_stream;
pub(crate) mod rate_limit;
pub(crate) mod traffic_totals;
