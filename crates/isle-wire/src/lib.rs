//! The protocol between the host and `isle-agent`, the first process of every sandbox.
//!
//! One connection per sandbox, over a Unix socket, a pair of pipes or a character device
//! ([`FdStream`]). The agent first sends a [`Preamble`]; then the connection is multiplexed with yamux,
//! one stream per operation, so that cancelling is resetting a stream and flow control comes with it.
//! Streams carry [`Frame`]s: CBOR messages and raw bulk bytes. Nothing else is here: no policy, no state.

mod carried;
mod code;
mod control;
mod cork;
mod descriptors;
mod exec;
mod failure;
mod fd_stream;
mod file;
mod frame;
mod gate;
mod message;
mod mux;
mod preamble;
mod steps;
mod tree;

pub use carried::CarriedStream;
pub use code::{
    CodeLanguage, CodeRequest, CodeSource, ContextAction, ContextEntry, ContextFate, ContextList,
    ContextRequest,
};
pub use control::{CONTROL_CONNECTIONS, CONTROL_LINE, ControlAnswer, ControlEvent, ControlLine};
pub use descriptors::{DescriptorReceiver, DescriptorSender, SocketKind, socket_cookie};
pub use exec::*;
pub use failure::{Failure, FailureKind};
pub use fd_stream::FdStream;
pub use file::*;
pub use frame::{Frame, FrameError, MAX_FRAME, read_frame, write_frame, write_message};
pub use gate::{
    CarryRequest, Connections, DialRequest, GateAnswer, GateAttempt, GateEvent, GateLookup, GateOpened,
    GatePassed, GatePorts, PROXY_PORT,
};
pub use message::*;
pub use mux::{Incoming, Mux, MuxError, Side, Stream};
pub use preamble::{BeforePreamble, Preamble, SetupFailure};
pub use steps::{InputRequest, Step, StepEnd, StepsRequest};
pub use tree::*;

/// The generation of the protocol this crate speaks. Host and agent must speak the same one; an agent in a
/// running sandbox keeps the generation it was started with.
pub const GENERATION: u32 = 4;
