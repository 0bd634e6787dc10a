//! What an agent sends on a new connection before the multiplexer starts: who it is, or why the set-up of
//! the sandbox failed. So a host that connects needs no round trip. On the wire: a fixed marker, the
//! length as four big-endian bytes, then CBOR.

use std::io;

use minicbor::{Decode, Encode};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::message::Welcome;

/// Starts every preamble. On a character device bytes of an earlier connection may come before it.
const MARKER: [u8; 8] = *b"\xffisle\xff\r\n";
/// More than any preamble needs.
const MAX_LENGTH: usize = 64 * 1024;

/// The first message on every connection, from agent to host.
#[derive(Debug, Clone, Encode, Decode)]
pub enum Preamble {
    /// The sandbox is set up and the agent serves.
    #[n(0)]
    Ready(#[n(0)] Welcome),
    /// The sandbox could not be set up. The connection ends here.
    #[n(1)]
    Failed(#[n(0)] SetupFailure),
}

/// Which step of a sandbox's set-up failed, and how.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct SetupFailure {
    /// What was being done.
    #[n(0)]
    pub step: String,
    /// The system's error number.
    #[n(1)]
    pub errno: i32,
}

/// What comes before the preamble on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BeforePreamble {
    /// Nothing: the connection is new on both ends.
    Nothing,
    /// Possibly bytes of an earlier connection, which are skipped: a character device has no connections
    /// of its own, and buffers what was sent to a host that has gone.
    EarlierConnection,
}

impl Preamble {
    /// As it is sent.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let body = minicbor::to_vec(self).unwrap_or_default();
        let length = u32::try_from(body.len()).unwrap_or(0);
        [&MARKER[..], &length.to_be_bytes(), &body].concat()
    }

    /// Sends it.
    pub async fn write<W: AsyncWrite + Unpin>(&self, link: &mut W) -> io::Result<()> {
        link.write_all(&self.to_bytes()).await?;
        link.flush().await
    }

    /// Receives it. Waits for as long as the agent takes.
    pub async fn read<R: AsyncRead + Unpin>(link: &mut R, before: BeforePreamble) -> io::Result<Self> {
        let mut marker = [0; MARKER.len()];
        link.read_exact(&mut marker).await?;
        while marker != MARKER {
            if before == BeforePreamble::Nothing {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "the peer is not an isle-agent of this protocol",
                ));
            }
            marker.rotate_left(1);
            marker[MARKER.len() - 1] = link.read_u8().await?;
        }
        let length = usize::try_from(link.read_u32().await?).unwrap_or(usize::MAX);
        if length > MAX_LENGTH {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the agent's preamble is too long"));
        }
        let mut body = vec![0u8; length];
        link.read_exact(&mut body).await?;
        minicbor::decode(&body).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Missing;

    fn ready() -> Preamble {
        let missing = vec![Missing { key: "seccomp".into(), reason: "not built in".into() }];
        Preamble::Ready(Welcome {
            generation: crate::GENERATION,
            version: "1".into(),
            missing,
            passes_descriptors: false,
        })
    }

    #[tokio::test]
    async fn a_preamble_arrives_as_it_was_sent() {
        let failed = Preamble::Failed(SetupFailure { step: "mount /proc".into(), errno: 1 });
        let bytes = [ready().to_bytes(), failed.to_bytes()].concat();
        let mut link = &bytes[..];
        let read = Preamble::read(&mut link, BeforePreamble::Nothing).await.unwrap();
        let Preamble::Ready(welcome) = read else { panic!("{read:?}") };
        assert_eq!((welcome.missing[0].key.as_str(), welcome.passes_descriptors), ("seccomp", false));
        let read = Preamble::read(&mut link, BeforePreamble::Nothing).await.unwrap();
        assert!(matches!(read, Preamble::Failed(failure) if failure.errno == 1));
    }

    #[tokio::test]
    async fn bytes_of_an_earlier_connection_are_skipped_on_a_device_only() {
        let stale = [b"\xffisle\xff\xffis".as_slice(), &MARKER[..4]].concat();
        let bytes = [stale, ready().to_bytes()].concat();
        let read = Preamble::read(&mut &bytes[..], BeforePreamble::EarlierConnection).await;
        assert!(matches!(read, Ok(Preamble::Ready(_))), "{read:?}");
        let error = Preamble::read(&mut &bytes[..], BeforePreamble::Nothing).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }

    #[tokio::test]
    async fn a_preamble_that_claims_to_be_huge_is_rejected() {
        let bytes = [&MARKER[..], &u32::MAX.to_be_bytes()].concat();
        let error = Preamble::read(&mut &bytes[..], BeforePreamble::Nothing).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
