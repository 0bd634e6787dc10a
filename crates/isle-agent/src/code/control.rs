//! How agent and interpreter speak: frames of a kind byte, a big-endian length and a payload, over a
//! socket that is the interpreter's third descriptor. What a call is travels as fields of a tag, a
//! length and bytes, which every language reads in a few lines; the shell gets words instead.

use std::cell::RefCell;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use bytes::{Bytes, BytesMut};
use isle_wire::{CodeLanguage, CodeRequest, CodeSource};
use minicbor::bytes::ByteVec;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use tokio::io::unix::AsyncFd;

use crate::entrance::write_all;
use crate::place;
use crate::watched::watch;

/// Largest payload an interpreter may send. It is inside the sandbox, so its word is bounded.
const LARGEST: usize = 12 * 1024 * 1024;
const HEADER: usize = 5;

/// One frame of an interpreter.
pub(super) struct Message {
    pub(super) kind: u8,
    pub(super) payload: Bytes,
}

impl Message {
    /// The payload as numbers with spaces between them.
    pub(super) fn numbers(&self) -> Vec<i64> {
        let text = String::from_utf8_lossy(&self.payload);
        text.split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect()
    }
}

/// The agent's end.
pub(super) struct Control {
    socket: AsyncFd<OwnedFd>,
    buffer: RefCell<BytesMut>,
}

/// A pair: the agent's end, and the one an interpreter gets.
pub(super) fn pair() -> io::Result<(Control, OwnedFd)> {
    let (ours, theirs) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    rustix::io::ioctl_fionbio(&ours, true)?;
    Ok((Control { socket: watch(ours)?, buffer: RefCell::default() }, theirs))
}

impl Control {
    /// Sends bytes; `false` when nobody reads any more.
    pub(super) async fn send(&self, bytes: &[u8]) -> bool {
        write_all(&self.socket, bytes).await
    }

    /// Sends a short word with descriptors.
    pub(super) fn hand_over(&self, word: &[u8], descriptors: &[&OwnedFd]) -> io::Result<()> {
        let borrowed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        ancillary.push(SendAncillaryMessage::ScmRights(&borrowed));
        let slices = [io::IoSlice::new(word)];
        rustix::net::sendmsg(self.socket.get_ref(), &slices, &mut ancillary, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// The next frame; `None` when there will be none.
    pub(super) async fn next(&self) -> Option<Message> {
        loop {
            if let Some(message) = self.buffered()? {
                return Some(message);
            }
            let mut ready = self.socket.readable().await.ok()?;
            if let Ok(Ok(0) | Err(_)) = ready.try_io(|_| self.fill()) {
                return None;
            }
        }
    }

    /// A frame that is there already.
    pub(super) fn next_now(&self) -> Option<Message> {
        while self.fill().is_ok_and(|count| count > 0) {}
        self.buffered().flatten()
    }

    fn fill(&self) -> io::Result<usize> {
        let mut chunk = [0u8; 16 * 1024];
        let count = rustix::io::read(self.socket.get_ref(), &mut chunk)?;
        self.buffer.borrow_mut().extend_from_slice(&chunk[..count]);
        Ok(count)
    }

    /// A whole frame of what was read; the outer `None` when it cannot become one.
    #[expect(clippy::option_option, reason = "not yet and never are different answers")]
    fn buffered(&self) -> Option<Option<Message>> {
        let mut buffer = self.buffer.borrow_mut();
        let Some((head, _)) = buffer.split_first_chunk::<HEADER>() else { return Some(None) };
        let [kind, length @ ..] = *head;
        let length = usize::try_from(u32::from_be_bytes(length)).ok().filter(|&length| length <= LARGEST)?;
        if buffer.len() < HEADER + length {
            return Some(None);
        }
        let payload = buffer.split_to(HEADER + length).freeze().slice(HEADER..);
        Some(Some(Message { kind, payload }))
    }
}

/// A driver as its bootstrap reads it.
pub(super) fn driver(source: &str) -> Vec<u8> {
    let length = u32::try_from(source.len()).unwrap_or(0);
    [&length.to_be_bytes()[..], source.as_bytes()].concat()
}

/// What an interpreter is to take over from the request besides the code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    /// It was started for this call and has environment and directory already.
    Nothing,
    /// Only what the caller gave: the rest is the context's own.
    Given,
    /// The whole environment and the directory.
    Everything,
}

/// A call in the words of the interpreter's language.
pub(super) fn call(request: &CodeRequest, taken: Taken) -> Vec<u8> {
    let translate = |word: &[u8]| place::real(word).into_owned();
    let environment = |entries: &[ByteVec]| -> Vec<Vec<u8>> {
        match place::private() {
            None => entries.iter().map(|entry| entry.to_vec()).collect(),
            Some(private) => private.environment(entries).into_iter().map(Into::into).collect(),
        }
    };
    let directory = match taken {
        Taken::Nothing => None,
        Taken::Given => request.given_cwd.then(|| translate(&request.exec.cwd)),
        Taken::Everything => Some(translate(&request.exec.cwd)),
    };
    let given = match taken {
        Taken::Given if !request.given_env.is_empty() => environment(&request.given_env),
        Taken::Given | Taken::Nothing | Taken::Everything => Vec::new(),
    };
    let arguments: Vec<Vec<u8>> = request.args.iter().map(|word| translate(word)).collect();
    if request.language == CodeLanguage::Shell {
        return shell_line(&request.source, directory, &given, &arguments);
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
    if taken == Taken::Everything {
        for entry in environment(&request.exec.env) {
            field(b'e', &entry);
        }
    }
    let length = u32::try_from(body.len()).unwrap_or(0);
    [&b"Q"[..], &length.to_be_bytes(), &body].concat()
}

/// Words for `printf %b`: directory, how many variables, the variables, the code, its arguments.
fn shell_line(
    source: &CodeSource,
    directory: Option<Vec<u8>>,
    given: &[Vec<u8>],
    arguments: &[Vec<u8>],
) -> Vec<u8> {
    let code = match source {
        CodeSource::Text(code) => code.to_vec(),
        // The path as its first argument, whatever is in it.
        CodeSource::File(path) => [b". -- ".to_vec(), quoted(&place::real(path))].concat(),
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

/// A word between quotes, every byte that could mean something as an octal number.
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
    use super::*;

    #[test]
    fn words_for_the_shell_hold_nothing_it_could_take_for_its_own() {
        assert_eq!(escaped(b"a b'$(\n"), b"'a b\\0047\\0044\\0050\\0012'");
        assert_eq!(quoted(b"it's"), b"'it'\\''s'");
    }
}
