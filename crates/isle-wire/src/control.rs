//! Messages of the control relay: lines of the socket inside a sandbox, carried to the daemon and back.
//! The agent understands none of them; connections are numbered so that one stream carries all.

use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};

/// Longest line either side takes.
pub const CONTROL_LINE: usize = 64 * 1024;
/// Connections a sandbox may have at once.
pub const CONTROL_CONNECTIONS: usize = 8;

/// From the agent.
#[derive(Debug, Clone, Encode, Decode)]
pub enum ControlEvent {
    /// Somebody has connected. Numbers are never used twice on one stream.
    #[n(0)]
    Opened(#[n(0)] u32),
    /// They sent a line, without its end. The next one follows only when this one is answered.
    #[n(1)]
    Line(#[n(0)] ControlLine),
    /// They are gone.
    #[n(2)]
    Closed(#[n(0)] u32),
}

/// From the host.
#[derive(Debug, Clone, Encode, Decode)]
pub enum ControlAnswer {
    /// The answer to a line, without its end.
    #[n(0)]
    Line(#[n(0)] ControlLine),
    /// Hang up.
    #[n(1)]
    Close(#[n(0)] u32),
}

/// A line of one connection.
#[derive(Debug, Clone, Encode, Decode)]
#[cbor(map)]
pub struct ControlLine {
    /// Which.
    #[n(0)]
    pub connection: u32,
    /// What.
    #[n(1)]
    pub line: ByteVec,
}
