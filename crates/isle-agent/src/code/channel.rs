//! The channel between agent and interpreter: frames of a kind byte, a big-endian length and a payload. The
//! interpreter receives on a socket, its descriptor 3, and sends on a pipe, its descriptor 4: a pipe
//! carries no descriptors, whose last close could block the agent. A call is encoded as fields of a tag, a
//! length and bytes, which every language parses in a few lines; the shell gets words.

use std::cell::RefCell;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use bytes::{Bytes, BytesMut};
use isle_wire::{CodeLanguage, CodeRequest, CodeSource};
use minicbor::bytes::ByteVec;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, SocketFlags, SocketType,
};
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::io::unix::AsyncFd;

use crate::async_fd::register;
use crate::guest_paths::GuestPaths;
use crate::stdin::write_all;

/// Maximum payload from an interpreter. It is inside the sandbox and not trusted.
const MAX_PAYLOAD: usize = 12 * 1024 * 1024;
const HEADER: usize = 5;

/// One frame of an interpreter.
pub(super) struct Message {
    pub(super) kind: u8,
    pub(super) payload: Bytes,
}

impl Message {
    /// The payload as numbers separated by spaces.
    pub(super) fn numbers(&self) -> Vec<i64> {
        let text = String::from_utf8_lossy(&self.payload);
        text.split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect()
    }
}

/// The agent's end.
pub(super) struct InterpreterChannel {
    socket: AsyncFd<OwnedFd>,
    replies: AsyncFd<OwnedFd>,
    buffer: RefCell<BytesMut>,
}

/// The agent's ends, and those of an interpreter: where it receives, and where it sends.
pub(super) fn pair() -> io::Result<(InterpreterChannel, [OwnedFd; 2])> {
    let (ours, theirs) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // Nothing can be sent to the agent's end any more, and the interpreter cannot undo that.
    rustix::net::shutdown(&ours, Shutdown::Read)?;
    let (replies, answer) = pipe_with(PipeFlags::CLOEXEC)?;
    rustix::io::ioctl_fionbio(&ours, true)?;
    rustix::io::ioctl_fionbio(&replies, true)?;
    let channel = InterpreterChannel {
        socket: register(ours)?,
        replies: register(replies)?,
        buffer: RefCell::default(),
    };
    Ok((channel, [theirs, answer]))
}

impl InterpreterChannel {
    /// Sends bytes; `false` when the interpreter has closed its end.
    pub(super) async fn send(&self, bytes: &[u8]) -> bool {
        write_all(&self.socket, bytes).await
    }

    /// Sends a short message with descriptors.
    pub(super) fn hand_over(&self, message: &[u8], descriptors: &[&OwnedFd]) -> io::Result<()> {
        let borrowed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(5))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        ancillary.push(SendAncillaryMessage::ScmRights(&borrowed));
        let slices = [io::IoSlice::new(message)];
        rustix::net::sendmsg(self.socket.get_ref(), &slices, &mut ancillary, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// The next frame; `None` at the end.
    pub(super) async fn next(&self) -> Option<Message> {
        loop {
            if let Some(message) = self.buffered()? {
                return Some(message);
            }
            let mut ready = self.replies.readable().await.ok()?;
            if let Ok(Ok(0) | Err(_)) = ready.try_io(|_| self.fill()) {
                return None;
            }
        }
    }

    /// A frame that is available already.
    pub(super) fn next_now(&self) -> Option<Message> {
        while self.fill().is_ok_and(|count| count > 0) {}
        self.buffered().flatten()
    }

    fn fill(&self) -> io::Result<usize> {
        let mut chunk = [0u8; 16 * 1024];
        let count = rustix::io::read(self.replies.get_ref(), &mut chunk)?;
        self.buffer.borrow_mut().extend_from_slice(&chunk[..count]);
        Ok(count)
    }

    /// A complete frame of what was read; the outer `None` when it is invalid.
    #[expect(clippy::option_option, reason = "not yet and never are different answers")]
    fn buffered(&self) -> Option<Option<Message>> {
        let mut buffer = self.buffer.borrow_mut();
        let Some((head, _)) = buffer.split_first_chunk::<HEADER>() else { return Some(None) };
        let [kind, length @ ..] = *head;
        let length =
            usize::try_from(u32::from_be_bytes(length)).ok().filter(|&length| length <= MAX_PAYLOAD)?;
        if buffer.len() < HEADER + length {
            return Some(None);
        }
        let payload = buffer.split_to(HEADER + length).freeze().slice(HEADER..);
        Some(Some(Message { kind, payload }))
    }
}

/// A driver in the format its bootstrap reads.
pub(super) fn driver(source: &str) -> Vec<u8> {
    let length = u32::try_from(source.len()).unwrap_or(0);
    [&length.to_be_bytes()[..], source.as_bytes()].concat()
}

/// What an interpreter takes over from the request besides the code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TakeOver {
    /// Nothing: it was started for this call with its environment and directory.
    Nothing,
    /// Only what the caller gave: the rest is that of the context.
    Given,
    /// The whole environment and the directory.
    Everything,
}

/// Encodes a call for the driver of its language.
pub(super) fn encode_call(paths: &GuestPaths, request: &CodeRequest, take_over: TakeOver) -> Vec<u8> {
    let translate = |word: &[u8]| paths.resolve(word).into_owned();
    let environment = |entries: &[ByteVec]| -> Vec<Vec<u8>> {
        paths.environment(entries).iter().map(|entry| entry.to_vec()).collect()
    };
    let directory = match take_over {
        TakeOver::Nothing => None,
        TakeOver::Given => request.given_cwd.then(|| translate(&request.exec.cwd)),
        TakeOver::Everything => Some(translate(&request.exec.cwd)),
    };
    let given = match take_over {
        TakeOver::Given if !request.given_env.is_empty() => environment(&request.given_env),
        TakeOver::Given | TakeOver::Nothing | TakeOver::Everything => Vec::new(),
    };
    let arguments: Vec<Vec<u8>> = request.args.iter().map(|word| translate(word)).collect();
    if request.language == CodeLanguage::Shell {
        return shell_line(paths, &request.source, directory, &given, &arguments);
    }
    let mut body = Vec::new();
    let mut field = |tag: u8, value: &[u8]| {
        body.push(tag);
        body.extend(u32::try_from(value.len()).unwrap_or(0).to_be_bytes());
        body.extend(value);
    };
    match &request.source {
        CodeSource::Text(code) => field(b'c', code),
        CodeSource::File(path) => field(b'p', &translate(path)),
    }
    if let Some(directory) = &directory {
        field(b'd', directory);
    }
    for word in &arguments {
        field(b'a', word);
    }
    for entry in &given {
        field(b'g', entry);
    }
    if take_over == TakeOver::Everything {
        for entry in environment(&request.exec.env) {
            field(b'e', &entry);
        }
    }
    let length = u32::try_from(body.len()).unwrap_or(0);
    [&b"Q"[..], &length.to_be_bytes(), &body].concat()
}

/// Words for `printf %b`: directory, number of variables, the variables, the code, its arguments.
fn shell_line(
    paths: &GuestPaths,
    source: &CodeSource,
    directory: Option<Vec<u8>>,
    given: &[Vec<u8>],
    arguments: &[Vec<u8>],
) -> Vec<u8> {
    let code = match source {
        CodeSource::Text(code) => code.to_vec(),
        // The path is quoted, whatever is in it.
        CodeSource::File(path) => [b". -- ".to_vec(), quoted(&paths.resolve(path))].concat(),
    };
    let count = given.len().to_string().into_bytes();
    let words = [directory.unwrap_or_default(), count]
        .into_iter()
        .chain(given.iter().cloned())
        .chain([code])
        .chain(arguments.iter().cloned());
    let mut line: Vec<u8> = words.map(|word| escaped(&word)).collect::<Vec<_>>().join(&b' ');
    line.push(b'\n');
    line
}

/// A word in quotes, every special byte as an octal number.
fn escaped(word: &[u8]) -> Vec<u8> {
    let mut text = vec![b'\''];
    for &byte in word {
        if byte.is_ascii_alphanumeric() || b" _-./=:,@%+".contains(&byte) {
            text.push(byte);
        } else {
            text.extend(format!("\\0{byte:03o}").into_bytes());
        }
    }
    text.push(b'\'');
    text
}

fn quoted(word: &[u8]) -> Vec<u8> {
    let inner: Vec<u8> =
        word.iter().flat_map(|&byte| if byte == b'\'' { b"'\\''".to_vec() } else { vec![byte] }).collect();
    [&b"'"[..], &inner, b"'"].concat()
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[tokio::test]
    async fn an_interpreter_can_send_nothing_but_bytes() {
        let (control, [receives, sends]) = pair().unwrap();
        let (_file, other) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        for descriptor in [&receives, &sends] {
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            let rights = [other.as_fd()];
            ancillary.push(SendAncillaryMessage::ScmRights(&rights));
            let slices = [io::IoSlice::new(b"Z\0\0\0\0")];
            let sent = rustix::net::sendmsg(descriptor, &slices, &mut ancillary, SendFlags::NOSIGNAL);
            assert!(sent.is_err(), "descriptor {} takes messages", descriptor.as_raw_fd());
        }
        rustix::io::write(&sends, b"D\0\0\0\x010").unwrap();
        assert_eq!(control.next().await.unwrap().numbers(), [0]);
        assert!(control.send(b"call").await, "the agent can send");
        let mut heard = [0; 4];
        assert_eq!(rustix::io::read(&receives, &mut heard).unwrap(), 4);
    }

    #[test]
    fn words_for_the_shell_contain_no_special_bytes() {
        assert_eq!(escaped(b"a b'$(\n"), b"'a b\\0047\\0044\\0050\\0012'");
        assert_eq!(quoted(b"it's"), b"'it'\\''s'");
    }
}
