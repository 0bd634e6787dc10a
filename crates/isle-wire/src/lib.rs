//! The protocol between the host and `isle-agent`, the first process of every sandbox.
//!
//! One connection per sandbox, multiplexed with yamux; one stream per operation, so that
//! cancelling is resetting a stream and flow control comes with it. On a stream travel
//! [`Frame`]s: CBOR messages and raw bulk bytes. Nothing else lives here: no policy, no state.

mod code;
mod control;
mod cork;
mod exec;
mod failure;
mod file;
mod frame;
mod gate;
mod handed;
mod message;
mod mux;
mod quiet;
mod steps;
mod tree;

pub use code::{
    CodeLanguage, CodeRequest, CodeSource, ContextAction, ContextEntry, ContextFate, ContextList,
    ContextRequest,
};
pub use control::{CONTROL_CONNECTIONS, CONTROL_LINE, ControlAnswer, ControlEvent, ControlLine};
pub use exec::*;
pub use failure::{Failure, FailureKind};
pub use file::*;
pub use frame::{Frame, FrameError, MAX_FRAME, read_frame, write_frame, write_message};
pub use gate::{
    DialRequest, GateAnswer, GateAttempt, GateEvent, GateLookup, GateOpened, GatePassed, GatePorts,
    PROXY_PORT,
};
pub use handed::{Inbox, Kind, Outbox, socket_number};
pub use message::*;
pub use mux::{Incoming, Mux, MuxError, Side, Stream};
pub use quiet::QuietSocket;
pub use steps::{InputRequest, Step, StepEnd, StepsRequest};
pub use tree::*;

/// The generation of the protocol this crate speaks. An agent in a living sandbox is frozen,
/// so it is the host that adapts: it may talk to any generation from [`OLDEST_GENERATION`] on.
pub const GENERATION: u32 = 3;

/// The first generation whose agents run code in interpreters they keep.
pub const CODE_GENERATION: u32 = 2;

/// The first generation whose agents keep the limits that no cgroup keeps.
pub const RATION_GENERATION: u32 = 3;

/// The first generation whose agents keep the input of a run and run several commands as one.
pub const JOBS_GENERATION: u32 = 3;
/// The first generation whose agents edit, search, watch and carry whole trees.
pub const TREE_GENERATION: u32 = 3;

/// The first generation whose agents serve a network.
pub const GATE_GENERATION: u32 = 3;

/// The oldest agent generation the host still talks to.
pub const OLDEST_GENERATION: u32 = 1;
