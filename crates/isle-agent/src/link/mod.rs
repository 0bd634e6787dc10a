//! How hosts reach the agent. A [`Link`] makes connections one after another, or several at a time; each is
//! served until it ends. Passing descriptors is a property of the connection: only sockets can.

mod device;
mod listener;

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use isle_wire::{DescriptorSender, FdStream};

use crate::serve::{self, Shared};

pub(crate) use listener::listen_at;

/// See the module.
#[derive(Debug)]
pub(crate) enum Link {
    /// A connected Unix socket. Ends with its only connection.
    Socket(OwnedFd),
    /// A pipe to read from and a pipe to write to. Ends with its only connection.
    Pipes { input: OwnedFd, output: OwnedFd },
    /// A character device, such as a virtio-serial port. It is opened again after each connection, and
    /// never ends.
    Device(PathBuf),
    /// A listening Unix socket: hosts connect again after a restart. Never ends.
    Listener(OwnedFd),
}

/// One connection to a host.
pub(crate) struct Connection {
    pub(crate) stream: FdStream,
    /// Sends descriptors, where the connection can.
    pub(crate) descriptors: Option<DescriptorSender>,
}

impl Connection {
    fn socket(socket: UnixStream) -> std::io::Result<Self> {
        let descriptors = DescriptorSender::default();
        let stream = FdStream::socket_sending(socket, descriptors.clone())?;
        Ok(Self { stream, descriptors: Some(descriptors) })
    }

    fn without_descriptors(stream: FdStream) -> Self {
        Self { stream, descriptors: None }
    }
}

impl Link {
    /// Serves all connections of this link.
    pub(crate) async fn serve(self, agent: Shared) {
        let connection = match self {
            Self::Socket(socket) => Connection::socket(socket.into()),
            Self::Pipes { input, output } => {
                FdStream::pipes(input, output).map(Connection::without_descriptors)
            }
            Self::Device(path) => return device::serve(&path, agent).await,
            Self::Listener(socket) => return listener::serve(socket, agent).await,
        };
        // A descriptor that cannot be watched is no link: the host sees it closed.
        if let Ok(connection) = connection {
            serve::connection(connection, agent).await;
        }
    }
}
