//! The stream to an agent: how its set-up went comes first.

use isle_engine::{Error, Result};
use isle_wire::{Missing, QuietSocket, Welcome};
use tokio::io::AsyncReadExt;

use super::fork_server::refusal;
use crate::request::Preamble;

/// More than any preamble needs.
const LARGEST: usize = 64 * 1024;

/// Reads the preamble; who the agent is and what could not be set up, or why there is no sandbox.
pub(super) async fn read_preamble(link: &mut QuietSocket) -> Result<Welcome> {
    let broken =
        |error: std::io::Error| Error::internal(format!("the sandbox ended during its set-up: {error}"));
    let length = usize::try_from(link.read_u32().await.map_err(broken)?).unwrap_or(usize::MAX);
    if length > LARGEST {
        return Err(Error::internal("the agent's first words are too long"));
    }
    let mut body = vec![0u8; length];
    link.read_exact(&mut body).await.map_err(broken)?;
    let preamble: Preamble = minicbor::decode(&body).map_err(Error::internal)?;
    match preamble.failure {
        Some(failure) => Err(refusal(&failure.step, failure.errno)),
        None => Ok(Welcome {
            generation: preamble.generation,
            version: preamble.version,
            missing: preamble.missing.into_iter().map(|(key, reason)| Missing { key, reason }).collect(),
        }),
    }
}
