//! Signals received by this process, to be forwarded.

use std::io;

use isle_client::Result;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::Mode;

/// Whether the signal requests termination.
pub(crate) fn is_termination(signal: i32) -> bool {
    let kinds = [SignalKind::interrupt(), SignalKind::quit(), SignalKind::hangup(), SignalKind::terminate()];
    kinds.iter().any(|kind| kind.as_raw_value() == signal)
}

/// A received signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Received {
    /// Forward it.
    Signal(i32),
    /// The window size changed.
    Window,
}

/// All forwarded signals.
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
    /// Installs the handlers; from here on none of these signals terminates this process.
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
        listen().map_err(|error| isle_core::Error::internal(error).into())
    }

    /// The next one.
    pub(crate) async fn next(&mut self) -> Received {
        let window = async {
            match self.window.as_mut() {
                Some(window) => window.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => Received::Signal(SignalKind::interrupt().as_raw_value()),
            _ = self.quit.recv() => Received::Signal(SignalKind::quit().as_raw_value()),
            _ = self.hangup.recv() => Received::Signal(SignalKind::hangup().as_raw_value()),
            _ = self.terminate.recv() => Received::Signal(SignalKind::terminate().as_raw_value()),
            _ = self.user_one.recv() => Received::Signal(SignalKind::user_defined1().as_raw_value()),
            _ = self.user_two.recv() => Received::Signal(SignalKind::user_defined2().as_raw_value()),
            _ = window => Received::Window,
        }
    }
}
