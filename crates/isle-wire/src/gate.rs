//! The network of a sandbox. The host opens one stream for its gate; on it the agent asks about names and
//! reports connections that programs open, whose sockets it sends along. The agent decides nothing and
//! copies no bytes; without the host there is no network.

use minicbor::{Decode, Encode};

use crate::failure::Failure;

/// The loopback port of the proxy for programs that cannot create internet sockets. Only their connections
/// reach it.
pub const PROXY_PORT: u16 = 3128;

/// How connections of programs reach the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum Connections {
    /// Their sockets are passed beside the stream: both sides share a kernel.
    #[n(0)]
    Passed,
    /// Their bytes are carried, each connection on a stream of its own that the host opens.
    #[n(1)]
    Carried,
}

/// Sent by the agent on the stream of a gate.
#[derive(Debug, Clone, Encode, Decode)]
pub enum GateEvent {
    /// Names are answered and connections accepted from now on. First message.
    #[n(0)]
    Ready,
    /// The network cannot be served. Last message.
    #[n(1)]
    Failed(#[n(0)] Failure),
    /// A program looks up a name. Answered with [`GateAnswer::Ports`].
    #[n(2)]
    Lookup(#[n(0)] GateLookup),
    /// A program has connected; its socket was sent along.
    #[n(3)]
    Opened(#[n(0)] GateOpened),
    /// A program that cannot create internet sockets has connected to its proxy: the cookie of the other end
    /// of its socket pair, which was sent along, and the run it belongs to, if known. The destination is in
    /// what the program sends to the proxy.
    #[n(4)]
    Proxied(#[n(0)] u64, #[n(1)] Option<String>),
    /// Such a program was denied a connection that bypasses the proxy.
    #[n(5)]
    Passed(#[n(0)] GatePassed),
    /// A program wants to connect to an address without a listener. Answered with [`GateAnswer::Ports`]: the
    /// port, or none.
    #[n(6)]
    Attempt(#[n(0)] GateAttempt),
}

/// The destination of a connection that a program wants to open.
#[derive(Debug, Clone, Encode, Decode)]
#[cbor(map)]
pub struct GateAttempt {
    /// Repeated in the answer.
    #[n(0)]
    pub question: u64,
    /// A name that was looked up, or an address as text.
    #[n(1)]
    pub host: String,
    /// The port.
    #[n(2)]
    pub port: u16,
    /// Whether it is UDP.
    #[n(3)]
    pub datagram: bool,
    /// The run the program belongs to, if known.
    #[n(4)]
    pub run: Option<String>,
}

/// The destination of a denied connection that would have bypassed the proxy.
#[derive(Debug, Clone, Encode, Decode)]
#[cbor(map)]
pub struct GatePassed {
    /// The address, as text.
    #[n(0)]
    pub address: String,
    /// The port.
    #[n(1)]
    pub port: u16,
    /// The run the program belongs to, if known.
    #[n(2)]
    pub run: Option<String>,
}

/// A name lookup.
#[derive(Debug, Clone, Encode, Decode)]
#[cbor(map)]
pub struct GateLookup {
    /// Repeated in the answer.
    #[n(0)]
    pub question: u64,
    /// The name as the program sent it.
    #[n(1)]
    pub name: String,
    /// The run the program belongs to, if known.
    #[n(2)]
    pub run: Option<String>,
}

/// A connection that a program has opened.
#[derive(Debug, Clone, Encode, Decode)]
#[cbor(map)]
pub struct GateOpened {
    /// The cookie of its socket: see [`crate::DescriptorReceiver`], or [`CarryRequest`].
    #[n(0)]
    pub socket: u64,
    /// The host: a name that was looked up.
    #[n(1)]
    pub host: String,
    /// The port.
    #[n(2)]
    pub port: u16,
    /// The run the program belongs to, if known.
    #[n(3)]
    pub run: Option<String>,
}

/// Sent by the host on the stream of a gate.
#[derive(Debug, Clone, Encode, Decode)]
pub enum GateAnswer {
    /// The granted ports of a name; none when the name is not granted.
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

/// Connects to a port on the loopback interface of the sandbox. Answered with [`crate::Reply`]; the socket
/// is sent along, or the connection is carried on this stream from then on.
#[derive(Debug, Clone, Encode, Decode)]
#[cbor(map)]
pub struct DialRequest {
    /// Which port.
    #[n(0)]
    pub port: u16,
    /// How the connection reaches the host.
    #[n(1)]
    pub connections: Connections,
}

/// Carries a connection that the agent announced: from then on this stream is a [`crate::CarriedStream`]. The number
/// of a connection that is gone resets the stream.
#[derive(Debug, Clone, Encode, Decode)]
#[cbor(map)]
pub struct CarryRequest {
    /// The number in the announcement.
    #[n(0)]
    pub connection: u64,
}
