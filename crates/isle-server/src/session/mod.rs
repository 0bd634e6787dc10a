//! Interactive sessions over a WebSocket at `GET /v1/session`: input, output, window size and signals pass
//! through, nothing is cut. The messages are in [`isle_api::session`].
//!
//! The client's first message is a text frame. [`StartRequest`] starts a command:
//! `{"start": {"target": {"sandbox": "name"}, "command": "vim x", "terminal": {"rows": 24, "columns": 80}, "stdin": true}}`.
//! The server answers `{"event": "started", "run_id": "run_…"}`. From then on
//! - binary frames carry bytes: the first byte says which stream (1 stdin from the client; 2
//!   stdout, 3 stderr from the server), the rest is payload;
//! - the client may send the text frames of [`ClientMessage`]: `{"stdin": "end"}`,
//!   `{"resize": {"rows": 50, "columns": 120}}`, `{"signal": 15}`.
//!
//! The last text frame from the server is `{"event": "ended", "result": {…}}` or
//! `{"event": "error", "error": {…}}`; then it closes. When the client disconnects first, the command's whole
//! process tree is killed.
//!
//! [`AttachRequest`] joins a run that exists: `{"attach": {"run": "box:web", "terminal": {…}}}`. The client gets the
//! end of its output first and may write to it. Any number of clients may attach at once. A client that disconnects
//! leaves the run as it is; one that reads too slowly gets `{"event": "lost", "bytes": n}` in place of what it missed.
//!
//! Both directions wait for their reader. While a command does not read its input the server does
//! not read the socket, so a signal sent behind unread input waits too; the operation `kill` with
//! the run's id does not.
//!
//! [`StartRequest`]: isle_api::session::StartRequest
//! [`AttachRequest`]: isle_api::session::AttachRequest
//! [`ClientMessage`]: isle_api::session::ClientMessage

mod socket;
mod start;

pub(crate) use socket::upgrade;
