//! Writing an archive in GNU format, which allows names of any length and any bytes.

use super::BLOCK;
use super::reader::EntryKind;

/// Appends the header of an entry. A long name is written as a separate entry before it.
pub fn write_header(out: &mut Vec<u8>, path: &[u8], kind: &EntryKind, mode: u32, modified: i64) {
    let (kind_byte, size, link): (u8, u64, &[u8]) = match kind {
        EntryKind::File(size) => (b'0', *size, b""),
        EntryKind::Directory => (b'5', 0, b""),
        EntryKind::Symlink(target) => (b'2', 0, target),
    };
    let path = if *kind == EntryKind::Directory { [path, b"/"].concat() } else { path.to_vec() };
    for (long, kind_byte) in [(&link.to_vec(), b'K'), (&path, b'L')] {
        if long.len() > 99 {
            block(out, b"././@LongLink", kind_byte, long.len() as u64 + 1, 0o644, 0, b"");
            out.extend_from_slice(long);
            out.push(0);
            padding(out, long.len() as u64 + 1);
        }
    }
    block(out, &path, kind_byte, size, mode, modified, link);
}

/// Pads contents of `size` bytes to the next block.
pub fn padding(out: &mut Vec<u8>, size: u64) {
    let over = usize::try_from(size % BLOCK as u64).unwrap_or(0);
    if over > 0 {
        out.resize(out.len() + BLOCK - over, 0);
    }
}

/// Appends the end of an archive.
pub fn end(out: &mut Vec<u8>) {
    out.resize(out.len() + 2 * BLOCK, 0);
}

/// Appends comments, which other tar programs ignore; those that do not fit are skipped.
pub fn write_comments(out: &mut Vec<u8>, comments: &[Vec<u8>]) {
    let mut records = Vec::new();
    for comment in comments {
        // ` comment=`, the line break, and the digits of the length.
        let bare = comment.len() + 10;
        let mut length = bare + bare.to_string().len();
        length = bare + length.to_string().len();
        if records.len() + length > 60_000 {
            break;
        }
        records.extend_from_slice(format!("{length} comment=").as_bytes());
        records.extend_from_slice(comment);
        records.push(b'\n');
    }
    block(out, b"comments", b'g', records.len() as u64, 0o644, 0, b"");
    out.extend_from_slice(&records);
    padding(out, records.len() as u64);
}

fn block(out: &mut Vec<u8>, path: &[u8], kind: u8, size: u64, mode: u32, modified: i64, link: &[u8]) {
    let mut block = [0u8; BLOCK];
    let put = |block: &mut [u8; BLOCK], at: usize, bytes: &[u8], most: usize| {
        let length = bytes.len().min(most);
        block[at..at + length].copy_from_slice(&bytes[..length]);
    };
    put(&mut block, 0, path, 100);
    put(&mut block, 100, format!("{:07o}\0", mode & 0o7777).as_bytes(), 8);
    put(&mut block, 108, b"0000000\0", 8);
    put(&mut block, 116, b"0000000\0", 8);
    if size < 1 << 33 {
        put(&mut block, 124, format!("{size:011o}\0").as_bytes(), 12);
    } else {
        block[124] = 0x80;
        block[128..136].copy_from_slice(&size.to_be_bytes());
    }
    let modified = u64::try_from(modified).unwrap_or(0).min((1 << 33) - 1);
    put(&mut block, 136, format!("{modified:011o}\0").as_bytes(), 12);
    block[148..156].fill(b' ');
    block[156] = kind;
    put(&mut block, 157, link, 100);
    put(&mut block, 257, b"ustar  \0", 8);
    let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
    put(&mut block, 148, format!("{sum:06o}\0 ").as_bytes(), 8);
    out.extend_from_slice(&block);
}
