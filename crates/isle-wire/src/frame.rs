//! Frames on one stream: a kind byte, a big-endian length, the payload. Both sides reject a
//! frame over [`MAX_FRAME`], so a peer cannot make the other allocate without bound.

use bytes::{Bytes, BytesMut};
use minicbor::{Decode, Encode};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Largest payload of one frame.
pub const MAX_FRAME: usize = 1024 * 1024;

pub(crate) const HEADER: usize = 5;
/// Kinds of the frames that also carry connections.
pub(crate) const DATA: u8 = 4;
pub(crate) const END: u8 = 5;

/// One unit on a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// A CBOR message; its type follows from the operation.
    Message(Bytes),
    /// Bytes for the standard input of an exec.
    Stdin(Bytes),
    /// Bytes from the standard output of an exec (or of its terminal).
    Stdout(Bytes),
    /// Bytes from the standard error of an exec.
    Stderr(Bytes),
    /// File contents.
    Data(Bytes),
    /// End of the file contents (or of standard input).
    End,
}

/// Why a frame could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The stream broke.
    #[error("the stream to the agent broke: {0}")]
    Io(#[from] std::io::Error),
    /// The peer announced a frame larger than allowed.
    #[error("a frame of {0} bytes exceeds the limit of {MAX_FRAME}")]
    TooLarge(usize),
    /// This side has a message that is larger than allowed; nothing of it was sent.
    #[error("a message of {0} bytes exceeds the limit of {MAX_FRAME}")]
    TooLong(usize),
    /// The peer sent a kind of frame this side does not know.
    #[error("unknown frame kind {0}")]
    UnknownKind(u8),
    /// The CBOR inside a message frame did not have the expected shape.
    #[error("malformed message: {0}")]
    Malformed(String),
    /// A bulk frame came where a message was expected, or the reverse.
    #[error("unexpected frame: wanted {0}")]
    Unexpected(&'static str),
    /// The peer ended the stream where more was expected.
    #[error("the stream to the agent ended early")]
    Ended,
}

impl Frame {
    /// Encodes `message` as a message frame.
    pub fn message<T: Encode<()>>(message: &T) -> Self {
        // Encoding into a Vec cannot fail: the writer is infallible and our types have no custom encoders.
        let encoded = minicbor::to_vec(message).unwrap_or_default();
        Self::Message(encoded.into())
    }

    /// Decodes a message frame as `T`.
    pub fn decode<T>(&self) -> Result<T, FrameError>
    where
        T: for<'b> Decode<'b, ()>,
    {
        match self {
            Self::Message(bytes) => decode(bytes),
            _ => Err(FrameError::Unexpected("a message")),
        }
    }

    /// Bytes of the payload.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "an end has no payload and is not nothing")]
    pub fn len(&self) -> usize {
        self.parts().1.len()
    }

    fn parts(&self) -> (u8, &[u8]) {
        match self {
            Self::Message(bytes) => (0, bytes),
            Self::Stdin(bytes) => (1, bytes),
            Self::Stdout(bytes) => (2, bytes),
            Self::Stderr(bytes) => (3, bytes),
            Self::Data(bytes) => (DATA, bytes),
            Self::End => (END, &[]),
        }
    }
}

fn decode<T>(bytes: &[u8]) -> Result<T, FrameError>
where
    T: for<'b> Decode<'b, ()>,
{
    let mut decoder = minicbor::Decoder::new(bytes);
    let value = decoder.decode().map_err(|error| FrameError::Malformed(error.to_string()))?;
    if decoder.position() != bytes.len() {
        return Err(FrameError::Malformed("bytes after the message".into()));
    }
    Ok(value)
}

/// Writes one frame in a single write, so that it costs one packet of the multiplexer.
pub async fn write_frame<W: AsyncWrite + Unpin>(stream: &mut W, frame: &Frame) -> Result<(), FrameError> {
    let (kind, payload) = frame.parts();
    let length = u32::try_from(payload.len())
        .ok()
        .filter(|_| payload.len() <= MAX_FRAME)
        .ok_or(FrameError::TooLong(payload.len()))?;
    let mut buffer = BytesMut::with_capacity(HEADER + payload.len());
    buffer.extend_from_slice(&[kind]);
    buffer.extend_from_slice(&length.to_be_bytes());
    buffer.extend_from_slice(payload);
    stream.write_all(&buffer).await?;
    stream.flush().await?;
    Ok(())
}

/// Encodes and writes one message.
pub async fn write_message<W, T>(stream: &mut W, message: &T) -> Result<(), FrameError>
where
    W: AsyncWrite + Unpin,
    T: Encode<()>,
{
    write_frame(stream, &Frame::message(message)).await
}

/// Reads the next frame; `None` at a clean end between frames.
pub async fn read_frame<R: AsyncRead + Unpin>(stream: &mut R) -> Result<Option<Frame>, FrameError> {
    let mut header = [0u8; HEADER];
    let first = stream.read(&mut header).await?;
    if first == 0 {
        return Ok(None);
    }
    stream.read_exact(&mut header[first..]).await?;
    let length = u32::from_be_bytes([header[1], header[2], header[3], header[4]]) as usize;
    if length > MAX_FRAME {
        return Err(FrameError::TooLarge(length));
    }
    let mut payload = vec![0u8; length];
    stream.read_exact(&mut payload).await?;
    let payload = Bytes::from(payload);
    Ok(Some(match header[0] {
        0 => Frame::Message(payload),
        1 => Frame::Stdin(payload),
        2 => Frame::Stdout(payload),
        3 => Frame::Stderr(payload),
        DATA => Frame::Data(payload),
        END => Frame::End,
        kind => return Err(FrameError::UnknownKind(kind)),
    }))
}
