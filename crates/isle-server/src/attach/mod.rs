//! Interactive commands over a WebSocket at `GET /v1/attach`: input, output, window size and
//! signals pass through, nothing is cut.
//!
//! The client's first message is a text frame, an [`AttachRequest`]:
//! `{"target": {"sandbox": "name"}, "command": "vim x", "terminal": {"rows": 24, "columns": 80}, "stdin": true}`.
//! The server answers `{"event": "started", "run_id": "run_…"}`. From then on
//! - binary frames carry bytes: the first byte says which stream (1 stdin from the client; 2
//!   stdout, 3 stderr from the server), the rest is payload;
//! - the client may send the text frames of [`ClientMessage`]: `{"stdin": "end"}`,
//!   `{"resize": {"rows": 50, "columns": 120}}`, `{"signal": 15}`.
//!
//! The last text frame from the server is `{"event": "ended", "result": {…}}` or
//! `{"event": "error", "error": {…}}`; then it closes. When the client goes away first, the
//! command's whole tree is ended.
//!
//! With the [`ViewRequest`] `{"view": "box:web", "terminal": {…}}` nothing is run: the client looks at a run
//! that goes on, from the last of its output on, and may write to it. Any number may look at once. A
//! client that goes away leaves the run as it is; one that reads too slowly is told
//! `{"event": "lost", "bytes": n}` in place of what it missed.
//!
//! Both directions wait for their reader. While a command does not read its input the server does
//! not read the socket, so a signal sent behind unread input waits too; the operation `kill` with
//! the run's id does not.

mod messages;
mod session;

pub use messages::{
    AttachRequest, AttachTarget, ClientMessage, CodeText, OneShotSpec, PlacedFile, ServerMessage, StdinEnd,
    TerminalShape, ViewRequest,
};
pub(crate) use session::upgrade;
