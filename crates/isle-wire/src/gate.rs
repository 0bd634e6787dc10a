//! The network of a sandbox. The host opens one stream for its gate; on it the agent asks about names
//! and tells of connections that programs open, whose sockets it hands over. So the agent decides nothing,
//! carries nothing, and without the host nothing goes.

use minicbor::{Decode, Encode};

/// Where programs that have no sockets of the internet find their proxy: this port of their loopback, to
/// which nothing but such a connection leads.
pub const PROXY_PORT: u16 = 3128;

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
    /// A program has connected; its socket was handed over beside this.
    #[n(3)]
    Opened(#[n(0)] GateOpened),
    /// A program that has no sockets of the internet speaks to its proxy: the number of the other end of its
    /// pair, which was handed over beside this. Where it wants to go it says itself.
    #[n(4)]
    Proxied(#[n(0)] u64),
    /// Such a program was refused a connection past the proxy.
    #[n(5)]
    Passed(#[n(0)] GatePassed),
    /// A program wants to connect to where nothing listens for it. Answered with [`GateAnswer::Ports`]: the
    /// port, or none.
    #[n(6)]
    Attempt(#[n(0)] GateAttempt),
}

/// Where a program wants to connect to. Nothing is connected yet.
#[derive(Debug, Clone, Encode, Decode)]
#[cbor(map)]
pub struct GateAttempt {
    /// Names the question in the answer.
    #[n(0)]
    pub question: u64,
    /// A name that was looked up, or an address as text.
    #[n(1)]
    pub host: String,
    /// The port.
    #[n(2)]
    pub port: u16,
    /// Whether with single packets, as UDP has them.
    #[n(3)]
    pub datagram: bool,
}

/// Where a program wanted to connect to past its proxy. Nothing was connected.
#[derive(Debug, Clone, Encode, Decode)]
#[cbor(map)]
pub struct GatePassed {
    /// The address, as text.
    #[n(0)]
    pub address: String,
    /// The port.
    #[n(1)]
    pub port: u16,
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
    /// The number of its socket: see [`crate::Inbox`].
    #[n(0)]
    pub socket: u64,
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
}

/// The answer to a [`GateLookup`] or a [`GateAttempt`].
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

/// Connects to a port on the loopback of the sandbox. Answered with [`crate::Reply`]; the socket is handed
/// over beside it.
#[derive(Debug, Clone, Encode, Decode)]
#[cbor(map)]
pub struct DialRequest {
    /// Which port.
    #[n(0)]
    pub port: u16,
}
