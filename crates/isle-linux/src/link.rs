//! The stream to an agent, which starts with the outcome of its set-up.

use isle_core::backend::Connections;
use isle_core::{Error, Result};
use isle_wire::{BeforePreamble, DescriptorReceiver, FdStream, Preamble, Welcome};

use super::fork_server::refusal;

/// Reads the preamble; who the agent is and what could not be set up, or why there is no sandbox.
pub(super) async fn read_preamble(link: &mut FdStream) -> Result<Welcome> {
    match Preamble::read(link, BeforePreamble::Nothing).await {
        Ok(Preamble::Ready(welcome)) => Ok(welcome),
        Ok(Preamble::Failed(failure)) => Err(refusal(&failure.step, failure.errno)),
        Err(error) => {
            Err(Error::internal(format!("the connection to the sandbox ended during its set-up: {error}")))
        }
    }
}

/// How connections travel. Tests of carried connections switch passing off; a release build has no such switch.
pub(super) fn connections() -> Connections {
    let carried = cfg!(debug_assertions)
        && std::env::var_os("ISLE_TEST_CONNECTIONS").is_some_and(|way| way == "carried");
    if carried { Connections::Carried } else { Connections::Passed }
}

/// Where sockets arrive that the agent passes; `None` where connections are carried.
pub(super) fn passed(link: &FdStream) -> Option<DescriptorReceiver> {
    match connections() {
        Connections::Passed => Some(link.receiver()),
        Connections::Carried => None,
    }
}
