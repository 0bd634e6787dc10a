//! The network of a sandbox. The host opens one stream for its gate; on it the agent asks about names
//! and tells of connections that programs open, and the host answers. For each connection it wants the
//! host opens a stream of its own. So the agent decides nothing, and without the host nothing goes.

use minicbor::{Decode, Encode};

/// Said by the agent on the stream of a gate.
#[derive(Debug, Clone, Encode, Decode)]
pub enum GateEvent {
    /// Names are answered and connections taken from now on. First message.
    #[n(0)]
    Ready,
    /// The network cannot be served. Last message.
    #[n(1)]
    Failed(#[n(0)] String),
    /// A program looks up a name. Answered with [`GateAnswer::Ports`].
    #[n(2)]
    Lookup(#[n(0)] GateLookup),
    /// A program has connected; the host takes it with [`crate::Request::Take`] or resets it.
    #[n(3)]
    Opened(#[n(0)] GateOpened),
}

/// A name that is looked up.
#[derive(Debug, Clone, Encode, Decode)]
#[cbor(map)]
pub struct GateLookup {
    /// Names the question in the answer.
    #[n(0)]
    pub question: u64,
    /// The name as the program wrote it.
    #[n(1)]
    pub name: String,
}

/// A connection that a program has opened.
#[derive(Debug, Clone, Encode, Decode)]
#[cbor(map)]
pub struct GateOpened {
    /// Names the connection from now on.
    #[n(0)]
    pub connection: u64,
    /// To which host: a name that was looked up.
    #[n(1)]
    pub host: String,
    /// To which port.
    #[n(2)]
    pub port: u16,
}

/// Said by the host on the stream of a gate.
#[derive(Debug, Clone, Encode, Decode)]
pub enum GateAnswer {
    /// The ports of a name that may be connected to; none when the name is not granted.
    #[n(0)]
    Ports(#[n(0)] GatePorts),
    /// A connection is to be reset, whether it was taken or not.
    #[n(1)]
    Reset(#[n(0)] u64),
}

/// The answer to a [`GateLookup`].
#[derive(Debug, Clone, Encode, Decode)]
#[cbor(map)]
pub struct GatePorts {
    /// Which question.
    #[n(0)]
    pub question: u64,
    /// The ports.
    #[n(1)]
    pub ports: Vec<u16>,
}

/// Takes a connection that a program opened. The stream then carries its bytes, unframed; it ends at
/// once when there is no such connection.
#[derive(Debug, Clone, Encode, Decode)]
#[cbor(map)]
pub struct TakeRequest {
    /// Which one.
    #[n(0)]
    pub connection: u64,
}

/// Connects to a port on the loopback of the sandbox. Answered with [`crate::Reply`]; the stream then
/// carries bytes, unframed.
#[derive(Debug, Clone, Encode, Decode)]
#[cbor(map)]
pub struct DialRequest {
    /// Which port.
    #[n(0)]
    pub port: u16,
}
