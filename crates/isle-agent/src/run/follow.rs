//! One stream of a run: output and result to the host, input and control from it. A follower that is slow
//! to send blocks the pump, and the pump the program.

use std::cell::Cell;
use std::pin::pin;
use std::rc::Rc;

use bytes::Bytes;
use isle_wire::{
    Ended, ExecControl, ExecEvent, Frame, FrameError, OnHangup, StepEnd, Stream, read_frame, write_frame,
    write_message,
};
use tokio::io::{AsyncWriteExt, ReadHalf, WriteHalf};

use super::{CHUNK, KillReason, Run};
use crate::output::Channel;
use crate::processes;
use crate::serve::{Shared, output_frame};

/// Who opened a stream of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamRole {
    /// The client that started the run: input comes on this stream, and is closed with it unless the run
    /// keeps it open.
    Starter,
    /// A client that attached later.
    Follower,
}

/// Serves one stream of a run: output and the end towards the host, input and control from it.
pub(crate) async fn follow(
    stream: Stream,
    agent: Shared,
    run: Rc<Run>,
    role: StreamRole,
    position: u64,
) -> Result<(), FrameError> {
    let (reader, writer) = tokio::io::split(stream);
    let leave = || {
        if role == StreamRole::Starter && !run.keep_input {
            run.stdin.close();
        }
    };
    let outcome = {
        let follower = Follower::new(run.clone(), position);
        let mut sending = pin!(send_output(writer, &follower));
        tokio::select! {
            sent = &mut sending => sent,
            received = receive(reader, &run, role) => {
                leave();
                match received {
                    // The host sends nothing more but still receives.
                    Ok(()) => sending.await,
                    Err(error) => Err(error),
                }
            }
        }
    };
    leave();
    if outcome.is_err() && run.on_hangup == OnHangup::Kill && run.state.borrow().ended.is_none() {
        run.state.borrow_mut().killed.get_or_insert(KillReason::Requested);
        processes::kill_all(&agent, &run).await;
    }
    outcome
}

/// A position in a run's fresh output; the pump waits for it.
struct Follower {
    run: Rc<Run>,
    id: u64,
    /// Number of step results that were sent.
    steps: Cell<usize>,
    /// Number of name lookups that were reported.
    name_lookups: Cell<u64>,
}

/// What a follower sends next.
enum News {
    NameLookup,
    Chunk(Channel, Bytes),
    Step(StepEnd),
    Ended(Ended),
}

impl Follower {
    fn new(run: Rc<Run>, position: u64) -> Self {
        let id = {
            let mut state = run.state.borrow_mut();
            let id = state.next_follower;
            state.next_follower += 1;
            state.followers.insert(id, position);
            id
        };
        Self { run, id, steps: Cell::new(0), name_lookups: Cell::new(0) }
    }

    /// The next chunk, step result, or the result of the run.
    async fn next(&self) -> News {
        loop {
            let mut changed = pin!(self.run.changed.notified());
            changed.as_mut().enable();
            {
                let mut state = self.run.state.borrow_mut();
                if state.name_lookups != self.name_lookups.get() {
                    self.name_lookups.set(state.name_lookups);
                    return News::NameLookup;
                }
                let position = state.followers.get(&self.id).copied().unwrap_or(u64::MAX);
                if let Some((channel, bytes)) = state.fresh.get(position) {
                    let was_full = state.fresh.is_full();
                    state.followers.insert(self.id, position + 1);
                    state.trim();
                    if was_full && !state.fresh.is_full() {
                        self.run.changed.notify_waiters();
                    }
                    return News::Chunk(channel, bytes);
                }
                if let Some(step) = state.steps.get(self.steps.get()) {
                    self.steps.set(self.steps.get() + 1);
                    return News::Step(step.clone());
                }
                if let Some(ended) = &state.ended {
                    return News::Ended(ended.clone());
                }
            }
            changed.await;
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let mut state = self.run.state.borrow_mut();
        state.followers.remove(&self.id);
        state.trim();
        self.run.changed.notify_waiters();
    }
}

async fn send_output(mut writer: WriteHalf<Stream>, follower: &Follower) -> Result<(), FrameError> {
    loop {
        match follower.next().await {
            News::Chunk(channel, bytes) => write_frame(&mut writer, &output_frame(channel, bytes)).await?,
            News::NameLookup => write_message(&mut writer, &ExecEvent::NameAsked).await?,
            News::Step(step) => write_message(&mut writer, &ExecEvent::Step(step)).await?,
            News::Ended(ended) => {
                let (failed, report) = {
                    let state = follower.run.state.borrow();
                    (state.failed.clone(), state.report.clone().unwrap_or_default())
                };
                for start in (0..report.len()).step_by(CHUNK) {
                    let chunk = report.slice(start..report.len().min(start + CHUNK));
                    write_frame(&mut writer, &Frame::Data(chunk)).await?;
                }
                let last = failed.map_or_else(|| ExecEvent::Ended(Box::new(ended)), ExecEvent::Failed);
                write_message(&mut writer, &last).await?;
                writer.shutdown().await.ok();
                return Ok(());
            }
        }
    }
}

/// Handles input and control until the host closes its side (`Ok`) or the stream breaks.
async fn receive(mut reader: ReadHalf<Stream>, run: &Rc<Run>, role: StreamRole) -> Result<(), FrameError> {
    let may_write = role == StreamRole::Starter;
    loop {
        match read_frame(&mut reader).await? {
            None => {
                // A reset and a clean close look the same here. With `Kill` the host keeps its side open
                // for as long as it wants the run, so an end means that it is gone.
                return match run.on_hangup {
                    OnHangup::Kill => Err(FrameError::Ended),
                    OnHangup::Continue => Ok(()),
                };
            }
            Some(Frame::Stdin(bytes)) => {
                if may_write {
                    run.stdin.write(&bytes).await;
                }
            }
            Some(Frame::End) => {
                if may_write {
                    run.stdin.end().await;
                }
            }
            Some(message @ Frame::Message(_)) => match message.decode::<ExecControl>()? {
                ExecControl::Resize(size) => {
                    if may_write {
                        run.stdin.resize(size);
                    }
                }
                ExecControl::Signal(signal) => processes::signal_group(run, run.stdin.foreground(), signal),
            },
            Some(_) => return Err(FrameError::Unexpected("stdin or control")),
        }
    }
}
