//! Email addresses and IP addresses.

use std::net::IpAddr;

use isle_egress::{AddressClass, classify};

use super::{Look, Text, is_word};

/// Longest local part and longest domain of an email address.
pub(super) const LONGEST_LOCAL: usize = 64;
pub(super) const LONGEST_DOMAIN: usize = 253;
/// Longest label of a domain name.
const LONGEST_LABEL: usize = 63;
/// Longest IP address.
const LONGEST_ADDRESS: usize = 45;

/// End of the email address that begins here.
pub(super) fn email(text: &Text<'_>, start: usize) -> Look<usize> {
    let mut at = start;
    while text.has(at, |byte| is_word(byte) || b".%+-".contains(&byte))? {
        at += 1;
        if at - start > LONGEST_LOCAL {
            return Ok(None);
        }
    }
    let local = &text.bytes[start..at];
    // `git@host:path` is a repository.
    if !text.has(at, |byte| byte == b'@')? || local.ends_with(b".") || local == b"git" {
        return Ok(None);
    }
    domain(text, at + 1)
}

/// End of the domain after the `@`: labels separated by dots, the last one of letters only.
fn domain(text: &Text<'_>, start: usize) -> Look<usize> {
    let (mut at, mut label, mut end) = (start, start, None);
    let mut numbers = 0;
    loop {
        while text.has(at, |byte| byte.is_ascii_alphanumeric() || byte == b'-')? {
            at += 1;
            if at - start > LONGEST_DOMAIN {
                return Ok(end);
            }
        }
        let name = &text.bytes[label..at];
        let first = label == start;
        if name.is_empty()
            || name.len() > LONGEST_LABEL
            || name.starts_with(b"-")
            || name.ends_with(b"-")
            || (first && is_scale(name))
        {
            return Ok(end);
        }
        let is_top = name.len() >= 2 && name.iter().all(u8::is_ascii_alphabetic) || name.starts_with(b"xn--");
        // `package@1.2.3.tgz` is a version.
        if is_top && !first && numbers < 2 {
            end = Some(at);
        }
        numbers += usize::from(name.iter().all(u8::is_ascii_digit));
        if !text.has(at, |byte| byte == b'.')? {
            return Ok(end);
        }
        at += 1;
        label = at;
    }
}

/// `name@2x.png` is the name of an image of double size.
fn is_scale(name: &[u8]) -> bool {
    matches!(name, [digits @ .., b'x'] if !digits.is_empty() && digits.iter().all(u8::is_ascii_digit))
}

/// End of the public IP address that begins here.
pub(super) fn address(text: &Text<'_>, start: usize) -> Look<usize> {
    let mut at = start;
    while text.has(at, |byte| byte.is_ascii_hexdigit() || byte == b':' || byte == b'.')? {
        at += 1;
        if at - start > LONGEST_ADDRESS + 1 {
            return Ok(None);
        }
    }
    if text.has(at, is_word)? {
        return Ok(None);
    }
    // A full stop and a port are not part of it.
    let Ok(word) = std::str::from_utf8(&text.bytes[start..at]) else { return Ok(None) };
    let word = word.trim_end_matches(['.', ':']);
    let before_port = word.split_once(':').map_or(word, |(host, _)| host);
    let public =
        |word: &str| word.parse::<IpAddr>().is_ok_and(|address| classify(address) == AddressClass::Public);
    Ok([word, before_port].into_iter().find(|word| public(word)).map(|word| start + word.len()))
}
