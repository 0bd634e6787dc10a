//! The client of the daemon: calls by operation name, files as streams, events of a run, an
//! interactive command, and the MCP pipe. Made to be cheap to start, because every command of
//! the command line begins with one.

mod attach;
mod client;
mod connection;
mod endpoint;
mod error;
mod files;
mod follow;
mod pipe;
mod route;
mod trees;

pub use attach::{
    AttachEvent, AttachReader, AttachRequest, AttachTarget, AttachWriter, Code, OneShot, PlacedFile,
    Terminal, ViewRequest,
};
pub use client::{Client, DaemonVersion};
pub use endpoint::Endpoint;
pub use error::{ClientError, Result};
pub use files::{FileBody, FileMode};
pub use follow::{EventStream, FollowedRun, RunEvent, RunEventKind, StreamedEvent};
pub use pipe::{Pipe, open_pipe};
