//! What travels towards a running command: its input, and what happens to its terminal.

use bytes::Bytes;
use isle_wire::{ExecControl, Frame, FrameError, TerminalSize, write_frame, write_message};
use tokio::io::AsyncWrite;
use tokio::sync::mpsc;

/// Largest piece of standard input in one frame.
const PIECE: usize = 256 * 1024;

/// Where the standard input of a command comes from.
#[derive(Debug)]
pub(crate) enum ExecInput {
    /// Nothing is sent; the command reads `/dev/null`.
    Null,
    /// These bytes, then the end.
    Bytes(Bytes),
    /// These bytes; the agent keeps the input open for more.
    Kept(Bytes),
    /// Whatever arrives while the command runs.
    Live {
        /// What arrives.
        signals: mpsc::Receiver<ExecSignal>,
        /// What arrived before it began.
        held: Vec<ExecSignal>,
        /// Whether the command has a standard input to send to.
        stdin: bool,
    },
}

/// One thing sent to a live command.
#[derive(Debug)]
pub(crate) enum ExecSignal {
    /// Standard input.
    Stdin(Bytes),
    /// The end of standard input.
    CloseStdin,
    /// The window changed.
    Resize(TerminalSize),
    /// A signal for the process group in the foreground.
    Signal(i32),
}

/// How much is held for a command that has not begun; the rest waits with its sender.
const HELD: usize = 16;

impl ExecInput {
    /// Holds what comes for a command that has not begun. Resolves at a signal: there is nothing yet that it
    /// could reach, so whoever sent it wants the command not to begin.
    pub(crate) async fn until_signalled(&mut self) {
        if let Self::Live { signals, held, .. } = self {
            while held.len() < HELD
                && let Some(signal) = signals.recv().await
            {
                match signal {
                    ExecSignal::Signal(_) => return,
                    ExecSignal::Stdin(_) | ExecSignal::CloseStdin | ExecSignal::Resize(_) => {
                        held.push(signal)
                    }
                }
            }
        }
        std::future::pending().await
    }
}

/// Sends all of `input`; ends when there will be no more of it.
pub(crate) async fn forward_input<W: AsyncWrite + Unpin>(
    writer: &mut W,
    input: ExecInput,
) -> Result<(), FrameError> {
    match input {
        ExecInput::Null => Ok(()),
        ExecInput::Bytes(bytes) => {
            send_bytes(writer, bytes).await?;
            write_frame(writer, &Frame::End).await
        }
        ExecInput::Kept(bytes) => send_bytes(writer, bytes).await,
        ExecInput::Live { mut signals, held, stdin } => {
            let mut open = stdin;
            let mut held = held.into_iter();
            loop {
                let next = match held.next() {
                    None => signals.recv().await,
                    held => held,
                };
                let Some(signal) = next else { break };
                match signal {
                    ExecSignal::Stdin(bytes) if open => send_bytes(writer, bytes).await?,
                    ExecSignal::CloseStdin if open => {
                        open = false;
                        write_frame(writer, &Frame::End).await?;
                    }
                    ExecSignal::Stdin(_) | ExecSignal::CloseStdin => {}
                    ExecSignal::Resize(size) => write_message(writer, &ExecControl::Resize(size)).await?,
                    ExecSignal::Signal(signal) => {
                        write_message(writer, &ExecControl::Signal(signal)).await?;
                    }
                }
            }
            if open { write_frame(writer, &Frame::End).await } else { Ok(()) }
        }
    }
}

async fn send_bytes<W: AsyncWrite + Unpin>(writer: &mut W, mut bytes: Bytes) -> Result<(), FrameError> {
    while !bytes.is_empty() {
        let piece = bytes.split_to(bytes.len().min(PIECE));
        write_frame(writer, &Frame::Stdin(piece)).await?;
    }
    Ok(())
}
