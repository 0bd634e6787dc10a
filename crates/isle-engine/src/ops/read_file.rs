//! `read_file`: a file, or a part of it.

use super::Handler;
use crate::context::{CallContext, Door};
use crate::engine::{ByteStream, Engine};
use crate::run::output::KeptOutput;
use crate::sandbox::Sandbox;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::TryStreamExt;
use isle_api::inputs::sandbox_or_default;
use isle_api::ops::read_file::{Encoding, Input, Output, ReadFile};
use isle_core::values::GuestPath;
use isle_core::{Code, Error, Result};
use isle_vault::Masker;
use isle_wire::{FileKind, GuestUser};

/// What one answer to a model holds.
const PAGE: u64 = 24_000;

impl Handler for ReadFile {
    async fn call(engine: Engine, context: CallContext, input: Input) -> Result<Output> {
        let cap = match context.door {
            Door::Mcp => PAGE,
            Door::Http | Door::Cli | Door::Library | Door::Guest => engine.inner.config.file_cap.0,
        };
        let limit = input.limit.unwrap_or(cap).min(cap);
        let offset = input.offset.unwrap_or(0);
        if limit == 0 {
            return Err(Error::new(Code::InvalidArgument, "limit is 0").next("ask for at least one byte"));
        }
        let lines = input.lines.as_deref().map(Lines::parse).transpose()?;
        if lines.is_some() && (input.offset.is_some() || input.limit.is_some()) {
            return Err(Error::new(Code::InvalidArgument, "lines and offset or limit are both given")
                .next("give either lines, or offset and limit"));
        }
        let sandbox = engine.inner.sandboxes.looked_at(&context, &sandbox_or_default(input.sandbox)).await?;
        let user = input.user.unwrap_or_default().into();
        let (from, wanted) = if lines.is_some() { (0, None) } else { (offset, Some(limit)) };
        let (stat, body) = sandbox.agent()?.read_file(&input.path, user, from, wanted).await?;
        if stat.kind == FileKind::Directory {
            return Err(Error::new(Code::IsDirectory, format!("{} is a directory", input.path))
                .next("name a file; list_files shows what the directory holds"));
        }
        if let Some(lines) = lines {
            let (offset, bytes) = lines.pick(body, cap).await?;
            let cut = bytes.len() as u64 >= cap;
            let (content, encoding, used) = encode(bytes, input.encoding.unwrap_or_default(), cut, cap)?;
            let content = hidden(&sandbox, &input.path, user, offset, used, encoding, content).await?;
            let size = stat.size.max(offset + used);
            let next_offset = Some(offset + used).filter(|next| *next < size && used > 0);
            let first_line = Some(lines.first);
            return Ok(Output { path: input.path, content, encoding, offset, size, next_offset, first_line });
        }
        let bytes = collected(body).await?;
        // Files such as those of /proc say size 0 and hold more.
        let size = stat.size.max(offset + bytes.len() as u64);
        let more = stat.size > offset + bytes.len() as u64;
        let (content, encoding, used) = encode(bytes, input.encoding.unwrap_or_default(), more, cap)?;
        let content = hidden(&sandbox, &input.path, user, offset, used, encoding, content).await?;
        let next = offset + used;
        let next_offset = (next < size && used > 0).then_some(next);
        Ok(Output { path: input.path, content, encoding, offset, size, next_offset, first_line: None })
    }
}

async fn collected(body: ByteStream) -> Result<Vec<u8>> {
    body.try_fold(Vec::new(), |mut all, piece| async move {
        all.extend_from_slice(&piece);
        Ok(all)
    })
    .await
}

/// A part of a file with values of secrets and personal data taken out. What stands around it is read as well: a part may
/// begin or end within one.
async fn hidden(
    sandbox: &Sandbox,
    path: &GuestPath,
    user: GuestUser,
    offset: u64,
    length: u64,
    encoding: &'static str,
    content: String,
) -> Result<String> {
    let masker = sandbox.masker();
    let masker = if encoding == "utf8" { masker } else { masker.and_then(Masker::for_bytes) };
    let Some(masker) = masker else { return Ok(content) };
    let margin = masker.longest() as u64;
    let from = offset.saturating_sub(margin);
    let wanted = (offset - from) + length + margin;
    let (_, body) = sandbox.agent()?.read_file(path, user, from, Some(wanted)).await?;
    let bytes = collected(body).await?;
    let place = |at: u64| usize::try_from(at - from).unwrap_or(usize::MAX).min(bytes.len());
    Ok(match (masker.window(&bytes, place(offset), place(offset + length)), encoding) {
        (None, _) => content,
        (Some(masked), "utf8") => String::from_utf8_lossy(&masked).into_owned(),
        (Some(masked), _) => STANDARD.encode(masked),
    })
}

/// A range of lines, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Lines {
    first: u64,
    last: u64,
}

impl Lines {
    /// Reads `10-20`, `10-` and `10`.
    fn parse(text: &str) -> Result<Self> {
        let refuse = || {
            Error::new(Code::InvalidArgument, format!("{text:?} is not a range of lines"))
                .next("write it like \"10-20\", \"10-\" or \"10\"; the first line is 1")
        };
        let number = |text: &str| text.trim().parse::<u64>().map_err(|_| refuse());
        let (first, last) = match text.split_once('-') {
            None => (number(text)?, number(text)?),
            Some((first, last)) if last.trim().is_empty() => (number(first)?, u64::MAX),
            Some((first, last)) => (number(first)?, number(last)?),
        };
        if first == 0 || last < first { Err(refuse()) } else { Ok(Self { first, last }) }
    }

    /// The bytes of these lines, at most `cap`, and where in the file they begin. What comes after them
    /// is not read.
    async fn pick(self, mut body: ByteStream, cap: u64) -> Result<(u64, Vec<u8>)> {
        let (mut line, mut offset, mut picked) = (1, 0, Vec::new());
        while let Some(piece) = body.try_next().await? {
            for part in piece.split_inclusive(|&byte| byte == b'\n') {
                if line > self.last || picked.len() as u64 >= cap {
                    return Ok((offset, picked));
                }
                if line >= self.first {
                    let room = usize::try_from(cap - picked.len() as u64).unwrap_or(usize::MAX);
                    picked.extend_from_slice(&part[..part.len().min(room)]);
                } else {
                    offset += part.len() as u64;
                }
                line += u64::from(part.ends_with(b"\n"));
            }
        }
        Ok((offset, picked))
    }
}

/// Text when it is text and costs no more than `budget` as JSON, base64 otherwise.
fn encode(bytes: Vec<u8>, wanted: Encoding, more: bool, budget: u64) -> Result<(String, &'static str, u64)> {
    let budget = usize::try_from(budget).unwrap_or(usize::MAX);
    // A page may end within a character; the rest of it comes with the next page.
    let text_end = match std::str::from_utf8(&bytes) {
        Ok(_) => Some(bytes.len()),
        Err(error) if error.error_len().is_none() && more => Some(error.valid_up_to()),
        Err(_) => None,
    };
    match (wanted, text_end) {
        (Encoding::Auto | Encoding::Utf8, Some(end)) if end > 0 || bytes.is_empty() => {
            let head = bytes[..end].to_vec();
            let kept = KeptOutput { total: head.len() as u64, head, tail: Vec::new() };
            let page = kept.page(0, usize::MAX, budget);
            Ok((page.text, "utf8", page.next))
        }
        (Encoding::Utf8, _) => Err(Error::new(Code::InvalidArgument, "the file is not UTF-8 text")
            .next("set encoding to base64, or leave it out")),
        (Encoding::Auto | Encoding::Base64, _) => {
            let used = bytes.len().min(budget / 4 * 3);
            Ok((STANDARD.encode(&bytes[..used]), "base64", used as u64))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_text_and_anything_else_is_base64() {
        let encoded = |bytes: &[u8], more| encode(bytes.to_vec(), Encoding::Auto, more, 1000).unwrap();
        assert_eq!(encoded("häuser".as_bytes(), false), ("häuser".into(), "utf8", 7));
        assert_eq!(encoded(&[0xff, 0xfe], false), ("//4=".into(), "base64", 2));
        assert_eq!(encoded(b"", false), (String::new(), "utf8", 0));
    }

    #[test]
    fn a_page_that_ends_within_a_character_leaves_it_to_the_next() {
        let bytes = "a€".as_bytes()[..2].to_vec();
        assert_eq!(encode(bytes.clone(), Encoding::Auto, true, 1000).unwrap(), ("a".into(), "utf8", 1));
        assert_eq!(encode(bytes, Encoding::Auto, false, 1000).unwrap().1, "base64");
    }

    #[test]
    fn lines_are_written_as_a_range() {
        assert_eq!(Lines::parse("10-20").unwrap(), Lines { first: 10, last: 20 });
        assert_eq!(Lines::parse("7").unwrap(), Lines { first: 7, last: 7 });
        assert_eq!(Lines::parse("7-").unwrap(), Lines { first: 7, last: u64::MAX });
        for bad in ["", "0", "0-3", "5-4", "-3", "a-b", "1-2-3"] {
            assert_eq!(Lines::parse(bad).unwrap_err().code, Code::InvalidArgument, "{bad}");
        }
    }

    #[test]
    fn a_page_costs_no_more_than_its_budget() {
        let (text, _, used) = encode(vec![b'\n'; 1000], Encoding::Auto, false, 100).unwrap();
        assert_eq!((text.len(), used), (50, 50));
        let (text, _, used) = encode(vec![0xff; 1000], Encoding::Auto, false, 100).unwrap();
        assert!(text.len() <= 100 && used == 75);
    }
}
