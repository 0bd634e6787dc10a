//! The client of the daemon: calls by operation name, files as streams, events of a run, an
//! interactive command, and the MCP pipe. Made to be cheap to start, because every command of
//! the command line begins with one.

mod client;
mod connection;
mod endpoint;
mod error;
mod files;
mod follow;
mod pipe;
mod route;
mod session;
mod trees;

pub use client::{Client, DaemonVersion, Finder};
pub use endpoint::Endpoint;
pub use error::{ClientError, Result};
pub use files::{FileBody, FileMode};
pub use follow::{EventStream, FollowedRun, RunEvent, RunEventKind, StreamedEvent};
pub use pipe::{Pipe, open_pipe};
pub use session::{SessionEvent, SessionReader, SessionWriter, open_session};
