//! Attaching to a run: first what was retained of its output, then what follows.

use bytes::Bytes;
use isle_wire::{ExecEvent, Failure, FailureKind, FrameError, Skipped, Stream, write_frame, write_message};
use tokio::io::AsyncWriteExt;

use super::{CHUNK, StreamRole, follow};
use crate::output::Channel;
use crate::serve::{Shared, output_frame};

/// Attaches to a known run.
pub(crate) async fn attach(mut stream: Stream, agent: Shared, id: &str) -> Result<(), FrameError> {
    let Some(run) = agent.runs.get(id) else {
        let failure = Failure { kind: FailureKind::NoSuchRun, errno: 0, doing: format!("attach to {id}") };
        write_message(&mut stream, &ExecEvent::Failed(failure)).await?;
        stream.shutdown().await.ok();
        return Ok(());
    };
    let (stdout, stderr, position) = {
        let state = run.state.borrow();
        (state.stdout.snapshot(), state.stderr.snapshot(), state.fresh.end())
    };
    for (channel, (head, skipped, tail)) in [(Channel::Stdout, stdout), (Channel::Stderr, stderr)] {
        send_retained(&mut stream, channel, &head).await?;
        if skipped > 0 {
            let skipped = match channel {
                Channel::Stdout => Skipped { stdout: skipped, stderr: 0 },
                Channel::Stderr => Skipped { stdout: 0, stderr: skipped },
            };
            write_message(&mut stream, &ExecEvent::Skipped(skipped)).await?;
        }
        send_retained(&mut stream, channel, &tail).await?;
    }
    follow(stream, agent, run, StreamRole::Follower, position).await
}

async fn send_retained(stream: &mut Stream, channel: Channel, bytes: &Bytes) -> Result<(), FrameError> {
    for start in (0..bytes.len()).step_by(CHUNK) {
        let chunk = bytes.slice(start..bytes.len().min(start + CHUNK));
        write_frame(stream, &output_frame(channel, chunk)).await?;
    }
    Ok(())
}
