//! Messages of the control relay: lines of the control socket inside a sandbox, relayed to the daemon and
//! back. The agent does not interpret them; connections are numbered so that one stream carries all.

use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};

/// Maximum length of a line.
pub const CONTROL_LINE: usize = 64 * 1024;
/// Maximum number of connections of a sandbox at a time.
pub const CONTROL_CONNECTIONS: usize = 8;

/// From the agent.
#[derive(Debug, Clone, Encode, Decode)]
pub enum ControlEvent {
    /// A client has connected. Numbers are never reused on one stream.
    #[n(0)]
    Opened(#[n(0)] u32),
    /// A client sent a line, here without its newline. The next one follows after the answer to this one.
    #[n(1)]
    Line(#[n(0)] ControlLine),
    /// A client has disconnected.
    #[n(2)]
    Closed(#[n(0)] u32),
}

/// From the host.
#[derive(Debug, Clone, Encode, Decode)]
pub enum ControlAnswer {
    /// The answer to a line, without a newline.
    #[n(0)]
    Line(#[n(0)] ControlLine),
    /// Disconnect the client.
    #[n(1)]
    Close(#[n(0)] u32),
}

/// A line of one connection.
#[derive(Debug, Clone, Encode, Decode)]
#[cbor(map)]
pub struct ControlLine {
    /// Number of the connection.
    #[n(0)]
    pub connection: u32,
    /// The line.
    #[n(1)]
    pub line: ByteVec,
}
