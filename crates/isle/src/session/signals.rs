//! Signals this process gets, to be passed on.

use std::io;

use isle_client::Result;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::Mode;

/// Whether whoever sends it wants the command to end.
pub(crate) fn asks_to_end(signal: i32) -> bool {
    let kinds = [SignalKind::interrupt(), SignalKind::quit(), SignalKind::hangup(), SignalKind::terminate()];
    kinds.iter().any(|kind| kind.as_raw_value() == signal)
}

/// Something that arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrived {
    /// Pass it on.
    Signal(i32),
    /// The window has another size.
    Window,
}

/// All signals that are passed on.
#[derive(Debug)]
pub(crate) struct Signals {
    interrupt: Signal,
    quit: Signal,
    hangup: Signal,
    terminate: Signal,
    user_one: Signal,
    user_two: Signal,
    window: Option<Signal>,
}

impl Signals {
    /// From here on none of them ends this process.
    pub(crate) fn listen(mode: Mode) -> Result<Self> {
        let listen = || -> io::Result<Self> {
            Ok(Self {
                interrupt: signal(SignalKind::interrupt())?,
                quit: signal(SignalKind::quit())?,
                hangup: signal(SignalKind::hangup())?,
                terminate: signal(SignalKind::terminate())?,
                user_one: signal(SignalKind::user_defined1())?,
                user_two: signal(SignalKind::user_defined2())?,
                window: match mode {
                    Mode::Terminal => Some(signal(SignalKind::window_change())?),
                    Mode::Pipes => None,
                },
            })
        };
        listen().map_err(|error| isle_engine::Error::internal(error).into())
    }

    /// The next one.
    pub(crate) async fn next(&mut self) -> Arrived {
        let window = async {
            match self.window.as_mut() {
                Some(window) => window.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => Arrived::Signal(SignalKind::interrupt().as_raw_value()),
            _ = self.quit.recv() => Arrived::Signal(SignalKind::quit().as_raw_value()),
            _ = self.hangup.recv() => Arrived::Signal(SignalKind::hangup().as_raw_value()),
            _ = self.terminate.recv() => Arrived::Signal(SignalKind::terminate().as_raw_value()),
            _ = self.user_one.recv() => Arrived::Signal(SignalKind::user_defined1().as_raw_value()),
            _ = self.user_two.recv() => Arrived::Signal(SignalKind::user_defined2().as_raw_value()),
            _ = window => Arrived::Window,
        }
    }
}
