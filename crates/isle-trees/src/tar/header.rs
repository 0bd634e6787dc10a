//! The header block of an entry.

use super::BLOCK;
use super::reader::TarError;

/// The relevant fields of a header.
#[derive(Debug)]
pub(super) struct Header {
    pub(super) name: Vec<u8>,
    pub(super) mode: u32,
    pub(super) size: u64,
    pub(super) modified: i64,
    pub(super) kind: u8,
    pub(super) link: Vec<u8>,
}

/// Parses a header; `None` for a block of zeros, which ends an archive.
pub(super) fn parse(block: &[u8; BLOCK]) -> Result<Option<Header>, TarError> {
    if block.iter().all(|&byte| byte == 0) {
        return Ok(None);
    }
    let stated = number(&block[148..156]).ok_or(TarError::NotAnArchive)?;
    let sum: u64 = block
        .iter()
        .enumerate()
        .map(|(at, &byte)| u64::from(if (148..156).contains(&at) { b' ' } else { byte }))
        .sum();
    if sum != stated {
        return Err(TarError::NotAnArchive);
    }
    let mut name = text(&block[..100]);
    // Only POSIX archives have a prefix there; GNU archives have times.
    if &block[257..263] == b"ustar\0" && block[345] != 0 {
        name = [text(&block[345..500]), name].join(&b'/');
    }
    Ok(Some(Header {
        name,
        mode: u32::try_from(number(&block[100..108]).unwrap_or(0o644)).unwrap_or(0o644),
        size: number(&block[124..136]).ok_or(TarError::NotAnArchive)?,
        modified: number(&block[136..148]).and_then(|time| i64::try_from(time).ok()).unwrap_or(0),
        kind: block[156],
        link: text(&block[157..257]),
    }))
}

fn text(field: &[u8]) -> Vec<u8> {
    field.split(|&byte| byte == 0).next().unwrap_or_default().to_vec()
}

/// Octal digits, or a binary number if the highest bit is set.
fn number(field: &[u8]) -> Option<u64> {
    if field[0] & 0x80 != 0 {
        if field[0] != 0x80 {
            return None;
        }
        let (high, low) = field[1..].split_at(field.len().saturating_sub(9));
        if high.iter().any(|&byte| byte != 0) {
            return None;
        }
        return Some(low.iter().fold(0u64, |sum, &byte| (sum << 8) | u64::from(byte)));
    }
    let digits: Vec<u8> = field.iter().copied().filter(|&byte| byte != 0 && byte != b' ').collect();
    if digits.is_empty() {
        return Some(0);
    }
    digits.iter().try_fold(0u64, |sum, &digit| match digit {
        b'0'..=b'7' => sum.checked_mul(8)?.checked_add(u64::from(digit - b'0')),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn numbers_are_octal_or_bytes() {
        assert_eq!(number(b"0000644\0"), Some(0o644));
        assert_eq!(number(b"   12 \0\0"), Some(0o12));
        assert_eq!(number(b"\0\0\0\0\0\0\0\0\0\0\0\0"), Some(0));
        assert_eq!(number(&[0x80, 0, 0, 0, 2, 0, 0, 0, 0]), Some(2 << 32));
        assert_eq!(number(&[0xff; 12]), None);
        assert_eq!(number(b"00000009"), None);
        assert_eq!(number(&[0x80, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]), None);
    }
}
