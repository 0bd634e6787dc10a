//! What a backend returns when it created or found a sandbox.

use tokio::io::{AsyncRead, AsyncWrite};

use super::containment::Containment;

/// A byte stream to an agent.
pub trait Link: AsyncRead + AsyncWrite + Send + Unpin + 'static {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Link for T {}

/// A sandbox that exists.
pub struct Created {
    /// The stream to its agent.
    pub link: Box<dyn Link>,
    /// Where sockets arrive that the agent passes beside that stream; without it connections of the sandbox are
    /// carried on streams of their own.
    pub passed: Option<isle_wire::DescriptorReceiver>,
    /// What is enforced.
    pub containment: Containment,
    /// The agent's welcome, when the backend has read it already; otherwise the engine does.
    pub welcome: Option<isle_wire::Welcome>,
    /// What the backend needs to find it again after a restart; stored, opaque to the engine.
    pub anchor: serde_json::Value,
}

impl std::fmt::Debug for Created {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Created").field("containment", &self.containment).finish_non_exhaustive()
    }
}

/// What was found when looking for a sandbox of an earlier daemon.
#[derive(Debug)]
pub enum Found {
    /// It is alive.
    Alive(Created),
    /// It is gone; its remains can be destroyed.
    Dead,
}
