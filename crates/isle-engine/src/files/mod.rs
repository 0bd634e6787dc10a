//! Files between the host and sandboxes: copies ([`carry`]), directories that follow the host ([`sync`]) and
//! watches that report changes ([`watch`]).

pub mod carry;
pub(crate) mod sync;
pub mod watch;
