//! Input for a run that goes on, from anybody at any time.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use isle_wire::{InputRequest, TerminalSize};
use tokio::time::Instant;

use super::Run;
use super::kill::already_ended;
use isle_core::{Code, Error, Result};

/// Bytes sent to the agent in one message.
const PIECE: usize = 256 * 1024;
/// How long a run that was just sent may take to be known to its agent: streams may overtake it.
const UNHEARD_OF: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(20);

impl Run {
    /// Writes to its standard input, and ends that when `end` says so and all was taken. Returns how
    /// many bytes the program took within `patience`.
    pub(crate) async fn write(self: &Arc<Self>, bytes: Bytes, end: bool, patience: Duration) -> Result<u64> {
        let until = Instant::now() + patience;
        let (mut rest, mut taken) = (bytes, 0);
        loop {
            let piece = rest.split_to(rest.len().min(PIECE));
            let length = piece.len() as u64;
            let left = until.saturating_duration_since(Instant::now());
            let request = InputRequest {
                run: self.id.as_str().to_owned(),
                bytes: piece.to_vec().into(),
                end: end && rest.is_empty(),
                resize: None,
                patience_ms: u64::try_from(left.as_millis()).unwrap_or(u64::MAX),
            };
            let count = self.send_input(request).await?;
            taken += count;
            if rest.is_empty() || count < length {
                return Ok(taken);
            }
        }
    }

    /// Gives its terminal another size.
    pub(super) async fn resize(self: &Arc<Self>, size: TerminalSize) -> Result<()> {
        let run = self.id.as_str().to_owned();
        let bytes = Vec::new().into();
        let request = InputRequest { run, bytes, end: false, resize: Some(size), patience_ms: 0 };
        self.send_input(request).await.map(drop)
    }

    async fn send_input(self: &Arc<Self>, request: InputRequest) -> Result<u64> {
        let until = Instant::now() + UNHEARD_OF;
        loop {
            if self.state().is_final() {
                return Err(already_ended(self));
            }
            if self.is_queued() {
                return Err(Error::new(Code::Busy, format!("the run {} waits for its turn", self.id))
                    .next("write to it when it has started; `list_jobs` shows its state"));
            }
            let agent = self.sandbox.agent()?;
            match agent.input(request.clone()).await {
                Err(error) if error.code == Code::RunFinished && Instant::now() < until => {
                    tokio::time::sleep(PAUSE).await;
                }
                other => return other,
            }
        }
    }
}
