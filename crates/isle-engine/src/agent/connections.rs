//! Connections between programs of a sandbox and this process: passed as sockets where both share a kernel, carried
//! over streams of their own elsewhere. What is done with them does not know which.

use std::os::fd::OwnedFd;

use isle_egress::SandboxStream;
use isle_wire::{
    CarriedStream, CarryRequest, Connections, DialRequest, Reply, Request, SocketKind, write_message,
};

use super::{AgentClient, AgentStream, Purpose, answer, broken, unexpected};
use isle_core::{Code, Error, Result};

impl AgentClient {
    /// How connections reach this process.
    pub(crate) fn connections(&self) -> Connections {
        if self.passed.is_some() { Connections::Passed } else { Connections::Carried }
    }

    /// The connection that the agent announced under this number; `None` when its socket is gone, or when this
    /// process had no room for it.
    pub(crate) fn announced(&self, number: u64, kind: SocketKind) -> Option<Announced> {
        match &self.passed {
            Some(passed) => passed.take(number, kind).map(Announced::Passed),
            None => Some(Announced::Carried(self.clone(), number)),
        }
    }

    /// Connects to a port of the sandbox; `None` when nothing listens there.
    pub(crate) async fn dial(&self, port: u16) -> Result<Option<SandboxStream>> {
        let mut stream = self.open(Purpose::Call).await?;
        let request = Request::Dial(DialRequest { port, connections: self.connections() });
        write_message(&mut stream, &request).await.map_err(broken)?;
        match (answer(&mut stream).await?, &self.passed) {
            (Reply::Connected(number), Some(passed)) => {
                let socket = passed.take(number, SocketKind::Tcp).ok_or_else(|| {
                    Error::new(
                        Code::LimitReached,
                        "the daemon has no file descriptor left for this connection",
                    )
                    .next("close connections, or raise the limit on open files of the daemon (`LimitNOFILE`)")
                })?;
                SandboxStream::new(socket).map(Some).map_err(Error::internal)
            }
            (Reply::Connected(_), None) => Ok(Some(carried(stream))),
            (Reply::Failed(_), _) => Ok(None),
            (other, _) => Err(unexpected(&other)),
        }
    }
}

/// A connection that a program has opened and that this process has not taken over yet.
pub(crate) enum Announced {
    Passed(OwnedFd),
    Carried(AgentClient, u64),
}

impl Announced {
    /// Takes the connection over; `None` when it is gone.
    pub(crate) async fn open(self) -> Option<SandboxStream> {
        match self {
            Self::Passed(socket) => SandboxStream::new(socket).ok(),
            Self::Carried(agent, connection) => {
                let mut stream = agent.open(Purpose::Call).await.ok()?;
                let request = Request::Carry(CarryRequest { connection });
                write_message(&mut stream, &request).await.ok()?;
                Some(carried(stream))
            }
        }
    }
}

fn carried(mut stream: AgentStream) -> SandboxStream {
    // A program may be silent for as long as it likes.
    stream.may_be_quiet();
    SandboxStream::carried(Box::new(CarriedStream::new(stream)))
}
