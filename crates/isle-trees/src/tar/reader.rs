//! Reading an archive incrementally. Every name is checked here, once: relative, without `..`, of bounded
//! length. Symbolic links must stay inside; hard links, devices, pipes and sparse files are rejected.

use super::BLOCK;
use super::header::{self, Header};

/// Maximum length of a path, in bytes.
const LONGEST_PATH: usize = 4095;
/// Maximum length of a name.
const LONGEST_NAME: usize = 255;
/// Maximum depth.
const DEEPEST: usize = 128;
/// Maximum length of an extended header.
const LONGEST_EXTENSION: u64 = 64 * 1024;

/// Maximum number of comments.
const MOST_COMMENTS: usize = 200;

/// The type of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryKind {
    /// A file with its size.
    File(u64),
    /// A directory.
    Directory,
    /// A symbolic link to a path inside.
    Symlink(Vec<u8>),
}

/// One entry, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The components of its path; none is empty, `.` or `..`.
    pub parts: Vec<Vec<u8>>,
    /// Its type.
    pub kind: EntryKind,
    /// Permission bits.
    pub mode: u32,
    /// Seconds since 1970.
    pub modified: i64,
}

/// Why an archive is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TarError {
    /// Not a tar archive.
    #[error("it is not a tar archive, or it is damaged")]
    NotAnArchive,
    /// Truncated.
    #[error("the archive is truncated")]
    BreaksOff,
    /// An unsafe name.
    #[error("{0:?} is not a valid name in an archive: {1}")]
    Name(String, &'static str),
    /// A symbolic link that points outside.
    #[error("the symbolic link {0:?} points outside the archive, to {1:?}")]
    Link(String, String),
    /// An unsupported type.
    #[error("{0:?} is {1}, which is not supported")]
    Kind(String, &'static str),
    /// Too large.
    #[error("the archive has more than {0} {1}")]
    TooLarge(u64, &'static str),
}

/// Receives the entries of a reader.
pub trait Sink {
    /// The error of the receiver.
    type Error: From<TarError>;
    /// An entry begins.
    fn begin(&mut self, entry: Entry) -> Result<(), Self::Error>;
    /// Bytes of the current file.
    fn data(&mut self, bytes: &[u8]) -> Result<(), Self::Error>;
    /// The current file is complete.
    fn complete(&mut self) -> Result<(), Self::Error>;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Extension {
    LongName,
    LongLink,
    Pax,
    /// Global headers; only their comments are used.
    Global,
}

#[derive(Debug)]
enum State {
    Header,
    File { left: u64, padding: usize },
    Extension { what: Extension, left: u64, padding: usize, text: Vec<u8> },
    Padding(usize),
    Ended,
}

/// Reads one archive.
#[derive(Debug)]
pub struct Reader {
    state: State,
    block: Vec<u8>,
    name: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
    entries: u64,
    bytes: u64,
    most_entries: u64,
    most_bytes: u64,
    comments: Vec<Vec<u8>>,
}

impl Reader {
    /// The comments of the archive.
    #[must_use]
    pub fn comments(&self) -> &[Vec<u8>] {
        &self.comments
    }

    /// A reader with limits on entries and bytes of files.
    #[must_use]
    pub fn new(most_entries: u64, most_bytes: u64) -> Self {
        Self {
            state: State::Header,
            block: Vec::with_capacity(BLOCK),
            name: None,
            link: None,
            size: None,
            entries: 0,
            bytes: 0,
            most_entries,
            most_bytes,
            comments: Vec::new(),
        }
    }

    /// The next bytes of the archive.
    pub fn feed<S: Sink>(&mut self, mut bytes: &[u8], sink: &mut S) -> Result<(), S::Error> {
        while !bytes.is_empty() {
            match &mut self.state {
                State::Ended => return Ok(()),
                State::Header => {
                    let wanted = (BLOCK - self.block.len()).min(bytes.len());
                    self.block.extend_from_slice(&bytes[..wanted]);
                    bytes = &bytes[wanted..];
                    if let Ok(block) = <&[u8; BLOCK]>::try_from(&self.block[..]) {
                        let header = header::parse(block)?;
                        self.block.clear();
                        self.begin(header, sink)?;
                    }
                }
                State::File { left, padding } => {
                    let wanted = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                    sink.data(&bytes[..wanted])?;
                    bytes = &bytes[wanted..];
                    *left -= wanted as u64;
                    if *left == 0 {
                        self.state = after(*padding);
                        sink.complete()?;
                    }
                }
                State::Extension { what, left, padding, text } => {
                    let wanted = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                    text.extend_from_slice(&bytes[..wanted]);
                    bytes = &bytes[wanted..];
                    *left -= wanted as u64;
                    if *left == 0 {
                        let (what, text, next) = (*what, std::mem::take(text), after(*padding));
                        self.state = next;
                        self.extend(what, text)?;
                    }
                }
                State::Padding(left) => {
                    let wanted = (*left).min(bytes.len());
                    bytes = &bytes[wanted..];
                    *left -= wanted;
                    if *left == 0 {
                        self.state = State::Header;
                    }
                }
            }
        }
        Ok(())
    }

    /// The archive has ended. It is truncated without its end marker.
    pub fn finish(&self) -> Result<(), TarError> {
        match self.state {
            State::Ended => Ok(()),
            State::Header | State::File { .. } | State::Extension { .. } | State::Padding(_) => {
                Err(TarError::BreaksOff)
            }
        }
    }

    fn extend(&mut self, what: Extension, text: Vec<u8>) -> Result<(), TarError> {
        let ended = |text: Vec<u8>| text.split(|&byte| byte == 0).next().unwrap_or_default().to_vec();
        match what {
            Extension::LongName => self.name = Some(ended(text)),
            Extension::LongLink => self.link = Some(ended(text)),
            Extension::Global => self.read_pax(&text, true)?,
            Extension::Pax => self.read_pax(&text, false)?,
        }
        Ok(())
    }

    /// Records of the form `LENGTH KEY=VALUE\n`.
    fn read_pax(&mut self, mut text: &[u8], global: bool) -> Result<(), TarError> {
        while !text.is_empty() {
            let space = text.iter().position(|&byte| byte == b' ').ok_or(TarError::NotAnArchive)?;
            let length: usize = std::str::from_utf8(&text[..space])
                .ok()
                .and_then(|digits| digits.parse().ok())
                .filter(|&length| length > space + 1 && length <= text.len())
                .ok_or(TarError::NotAnArchive)?;
            let record = text[space + 1..length].strip_suffix(b"\n").ok_or(TarError::NotAnArchive)?;
            let equals = record.iter().position(|&byte| byte == b'=').ok_or(TarError::NotAnArchive)?;
            let (key, value) = (&record[..equals], &record[equals + 1..]);
            match key {
                b"comment" if global && self.comments.len() < MOST_COMMENTS => {
                    self.comments.push(value.to_vec());
                }
                _ if global => {}
                b"path" => self.name = Some(value.to_vec()),
                b"linkpath" => self.link = Some(value.to_vec()),
                b"size" => {
                    let size = std::str::from_utf8(value).ok().and_then(|digits| digits.parse().ok());
                    self.size = Some(size.ok_or(TarError::NotAnArchive)?);
                }
                _ if key.starts_with(b"GNU.sparse") => {
                    return Err(TarError::Kind("an entry".into(), "a sparse file"));
                }
                _ => {}
            }
            text = &text[length..];
        }
        Ok(())
    }

    fn begin<S: Sink>(&mut self, header: Option<Header>, sink: &mut S) -> Result<(), S::Error> {
        let Some(header) = header else {
            self.state = State::Ended;
            return Ok(());
        };
        let extension = match header.kind {
            b'L' => Some(Extension::LongName),
            b'K' => Some(Extension::LongLink),
            b'x' => Some(Extension::Pax),
            b'g' => Some(Extension::Global),
            _ => None,
        };
        if let Some(what) = extension {
            if header.size > LONGEST_EXTENSION {
                return Err(TarError::TooLarge(LONGEST_EXTENSION, "bytes about one entry").into());
            }
            // Extensions precede an entry and are not entries, but their number is limited, too.
            self.count()?;
            let padding = padding_of(header.size);
            self.state = State::Extension { what, left: header.size, padding, text: Vec::new() };
            if header.size == 0 {
                self.state = State::Header;
            }
            return Ok(());
        }
        self.count()?;
        let name = self.name.take().unwrap_or(header.name);
        let link = self.link.take().unwrap_or(header.link);
        let size = self.size.take().unwrap_or(header.size);
        let shown = || String::from_utf8_lossy(&name).into_owned();
        let is_directory = header.kind == b'5' || (matches!(header.kind, b'0' | 0) && name.ends_with(b"/"));
        let kind = match header.kind {
            _ if is_directory => EntryKind::Directory,
            b'0' | 0 | b'7' => EntryKind::File(size),
            b'2' => EntryKind::Symlink(link.clone()),
            b'1' => return Err(TarError::Kind(shown(), "a hard link").into()),
            b'3' | b'4' => return Err(TarError::Kind(shown(), "a device").into()),
            b'6' => return Err(TarError::Kind(shown(), "a pipe").into()),
            b'S' => return Err(TarError::Kind(shown(), "a sparse file").into()),
            _ => return Err(TarError::Kind(shown(), "of an unknown kind").into()),
        };
        let parts = parts(&name)?;
        match &kind {
            EntryKind::File(_) | EntryKind::Symlink(_) if parts.is_empty() => {
                return Err(TarError::Name(shown(), "it is the directory itself").into());
            }
            EntryKind::Symlink(target) => stays_inside(&parts, target, &name)?,
            EntryKind::File(_) | EntryKind::Directory => {}
        }
        let has_body = matches!(kind, EntryKind::File(_));
        let body = if has_body { size } else { 0 };
        self.bytes = self.bytes.saturating_add(body);
        if self.bytes > self.most_bytes {
            return Err(TarError::TooLarge(self.most_bytes, "bytes").into());
        }
        if !has_body && header.size > 0 {
            // Whatever follows a directory or link is not its contents.
            return Err(TarError::NotAnArchive.into());
        }
        sink.begin(Entry { parts, kind, mode: header.mode & 0o7777, modified: header.modified })?;
        if body > 0 {
            self.state = State::File { left: body, padding: padding_of(body) };
        } else if has_body {
            sink.complete()?;
        }
        Ok(())
    }

    fn count(&mut self) -> Result<(), TarError> {
        self.entries += 1;
        if self.entries > self.most_entries.saturating_mul(2).saturating_add(16) {
            return Err(TarError::TooLarge(self.most_entries, "entries"));
        }
        Ok(())
    }
}

fn padding_of(size: u64) -> usize {
    usize::try_from((BLOCK as u64 - size % BLOCK as u64) % BLOCK as u64).unwrap_or(0)
}

fn after(padding: usize) -> State {
    if padding == 0 { State::Header } else { State::Padding(padding) }
}

fn parts(name: &[u8]) -> Result<Vec<Vec<u8>>, TarError> {
    let refuse = |why| Err(TarError::Name(String::from_utf8_lossy(name).into_owned(), why));
    if name.is_empty() || name.contains(&0) {
        return refuse("it is empty, or contains a NUL byte");
    }
    if name.starts_with(b"/") {
        return refuse("it is absolute");
    }
    if name.len() > LONGEST_PATH {
        return refuse("it is too long");
    }
    let mut parts = Vec::new();
    for part in name.split(|&byte| byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => return refuse("it contains `..`"),
            _ if part.len() > LONGEST_NAME => return refuse("a part of it is too long"),
            _ => parts.push(part.to_vec()),
        }
    }
    if parts.len() > DEEPEST {
        return refuse("it is too deep");
    }
    Ok(parts)
}

/// Whether a symbolic link, relative to its directory, stays below the top whatever else is unpacked.
fn stays_inside(parts: &[Vec<u8>], target: &[u8], name: &[u8]) -> Result<(), TarError> {
    let refuse = || {
        let shown = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Err(TarError::Link(shown(name), shown(target)))
    };
    if target.is_empty() || target.starts_with(b"/") || target.contains(&0) || target.len() > LONGEST_PATH {
        return refuse();
    }
    let mut depth = parts.len().saturating_sub(1);
    let mut descended = false;
    for part in target.split(|&byte| byte == b'/') {
        match part {
            b"" | b"." => {}
            // After a name, `..` is where that name leads, which may be another link.
            b".." if descended => return refuse(),
            b".." => match depth.checked_sub(1) {
                Some(less) => depth = less,
                None => return refuse(),
            },
            _ => {
                descended = true;
                depth += 1;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "reader_tests.rs"]
mod tests;
