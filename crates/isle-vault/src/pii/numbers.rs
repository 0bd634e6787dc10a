//! Payment cards, IBANs and phone numbers. Each has a form of its own, and the first two a checksum, so that other
//! numbers do not match.

use super::{Before, Look, More, Text, is_word};

/// Groupings of the digits of a card.
const GROUPINGS: [&[usize]; 4] = [&[4, 4, 4, 4, 3], &[4, 4, 4, 4], &[4, 6, 5], &[4, 6, 4]];
/// Digits of an ungrouped card number.
const FEWEST_ON_CARD: usize = 13;
const MOST_ON_CARD: usize = 19;
/// Groups that are read: one more than a card has.
const MOST_GROUPS: usize = 6;
const LONGEST_GROUP: usize = 7;
/// Digits of a country code.
const LONGEST_COUNTRY: usize = 3;
/// Digits of a phone number, with the country code.
const MOST_IN_PHONE: usize = 15;
const FEWEST_IN_PHONE: usize = 9;
/// Fewest digits of an ungrouped phone number: other numbers have a `+`, too.
const FEWEST_IN_A_ROW: usize = 10;

/// Number of digits from here on, at most `most`.
fn digits(text: &Text<'_>, start: usize, most: usize) -> Result<usize, More> {
    let mut at = start;
    while at - start < most && text.has(at, |byte| byte.is_ascii_digit())? {
        at += 1;
    }
    Ok(at - start)
}

/// End of the card number that begins here.
pub(super) fn card(text: &Text<'_>, start: usize, before: &Before) -> Look<usize> {
    // After a point it is a fraction, after a dash part of something longer.
    if before.byte == b'.' || before.byte == b'-' {
        return Ok(None);
    }
    let first = digits(text, start, MOST_ON_CARD + 1)?;
    if (FEWEST_ON_CARD..=MOST_ON_CARD).contains(&first) {
        let end = start + first;
        return Ok((ends_number(text, end)? && is_card(&text.bytes[start..end])).then_some(end));
    }
    let separator = match text.get(start + first)? {
        Some(byte @ (b' ' | b'-')) if first == 4 => byte,
        _ => return Ok(None),
    };
    // Several four-digit numbers in a row are a table.
    if before.group == 4 {
        return Ok(None);
    }
    let (mut groups, mut ends) = (Vec::with_capacity(MOST_GROUPS), Vec::with_capacity(MOST_GROUPS));
    let mut at = start;
    loop {
        let count = digits(text, at, LONGEST_GROUP)?;
        if count == 0 {
            break;
        }
        at += count;
        groups.push(count);
        ends.push(at);
        if count == LONGEST_GROUP || groups.len() == MOST_GROUPS || !text.has(at, |byte| byte == separator)? {
            break;
        }
        at += 1;
    }
    for grouping in GROUPINGS {
        let Some(&end) = grouping.len().checked_sub(1).and_then(|last| ends.get(last)) else { continue };
        let number: Vec<u8> =
            text.bytes[start..end].iter().copied().filter(|byte| *byte != separator).collect();
        if groups.starts_with(grouping)
            && groups.get(grouping.len()) != Some(&4)
            && is_card(&number)
            && !text.has(end, is_word)?
        {
            return Ok(Some(end));
        }
    }
    Ok(None)
}

/// Whether a number ends here and is not a fraction or part of something longer.
fn ends_number(text: &Text<'_>, end: usize) -> Result<bool, More> {
    Ok(match text.get(end)? {
        None => true,
        Some(b'.' | b'-') => !text.has(end + 1, |byte| byte.is_ascii_digit())?,
        Some(byte) => !is_word(byte),
    })
}

/// Whether the prefix belongs to an issuer and the checksum is valid.
fn is_card(digits: &[u8]) -> bool {
    let begins = |count: usize| {
        digits.iter().take(count).fold(0u32, |number, digit| number * 10 + u32::from(digit - b'0'))
    };
    let issued = match digits.len() {
        14 => matches!(begins(3), 300..=305) || matches!(begins(2), 36 | 38 | 39),
        15 => matches!(begins(2), 34 | 37),
        13 => begins(1) == 4,
        length @ 16..=19 => {
            let anywhere = begins(2) == 62
                || begins(2) == 65
                || begins(4) == 6011
                || matches!(begins(3), 644..=649)
                || matches!(begins(4), 3528..=3589);
            let master = matches!(begins(2), 51..=55) || matches!(begins(4), 2221..=2720);
            anywhere || (length == 16 && master) || (length != 17 && length != 18 && begins(1) == 4)
        }
        _ => false,
    };
    issued && luhn(digits)
}

fn luhn(digits: &[u8]) -> bool {
    let sum: u32 = digits
        .iter()
        .rev()
        .enumerate()
        .map(|(place, digit)| {
            let digit = u32::from(digit - b'0');
            match (place % 2, digit) {
                (0, digit) => digit,
                (_, digit @ 0..=4) => 2 * digit,
                (_, digit) => 2 * digit - 9,
            }
        })
        .sum();
    sum.is_multiple_of(10)
}

/// Lengths of IBANs, by country.
const ACCOUNTS: &str = "AD24 AE23 AL28 AT20 AZ28 BA20 BE16 BG22 BH22 BR29 BY28 CH21 CR22 CY28 CZ24 DE22 DK18 \
    DO28 EE20 EG29 ES24 FI18 FO18 FR27 GB22 GE22 GI23 GL18 GR27 GT28 HR21 HU28 IE22 IL23 IQ23 IS26 IT27 JO30 \
    KW30 KZ20 LB28 LC32 LI21 LT20 LU20 LV21 LY25 MC27 MD24 ME22 MK19 MR27 MT31 MU30 NL18 NO15 PK24 PL28 PS29 \
    PT25 QA29 RO24 RS22 SA24 SC31 SE24 SI19 SK24 SM27 ST25 SV28 TL23 TN24 TR26 UA29 VA22 VG24 XK20";

/// End of the IBAN that begins here, ungrouped or in groups of four.
pub(super) fn iban(text: &Text<'_>, start: usize) -> Look<usize> {
    let (Some(first), Some(second)) = (text.get(start)?, text.get(start + 1)?) else { return Ok(None) };
    let Some(length) = length_of_account(first, second) else { return Ok(None) };
    let mut number = Vec::with_capacity(length);
    let (mut at, mut grouped) = (start, false);
    while number.len() < length {
        let count = number.len();
        match text.get(at)? {
            Some(b' ') if count == 4 && text.bytes[at - 1] != b' ' => grouped = true,
            Some(b' ') if grouped && count.is_multiple_of(4) && text.bytes[at - 1] != b' ' => {}
            Some(_) if grouped && count > 0 && count.is_multiple_of(4) && text.bytes[at - 1] != b' ' => {
                return Ok(None);
            }
            Some(byte)
                if byte.is_ascii_digit() || (byte.is_ascii_uppercase() && !(2..4).contains(&count)) =>
            {
                number.push(byte);
            }
            _ => return Ok(None),
        }
        at += 1;
    }
    Ok((!text.has(at, is_word)? && is_account(&number)).then_some(at))
}

fn length_of_account(first: u8, second: u8) -> Option<usize> {
    ACCOUNTS.split_ascii_whitespace().find_map(|entry| {
        let (country, length) = entry.split_at(2);
        if country.as_bytes() == [first, second] { length.parse().ok() } else { None }
    })
}

/// Whether the checksum is valid: modulo 97, with the first four characters moved to the end and letters as numbers.
fn is_account(number: &[u8]) -> bool {
    let (country, rest) = number.split_at(4);
    let remainder = rest.iter().chain(country).fold(0u32, |sum, &byte| {
        if byte.is_ascii_digit() {
            (sum * 10 + u32::from(byte - b'0')) % 97
        } else {
            (sum * 100 + u32::from(byte - b'A') + 10) % 97
        }
    });
    remainder == 1
}

/// End of the phone number that begins here with `+`: country code, then groups separated by spaces, dashes, points,
/// slashes and brackets.
pub(super) fn phone(text: &Text<'_>, start: usize) -> Look<usize> {
    let (mut at, mut total, mut end) = (start + 1, 0, None);
    let (mut number, mut groups) = (Vec::with_capacity(MOST_IN_PHONE), 0);
    loop {
        let count = digits(text, at, MOST_IN_PHONE + 1 - total)?;
        let trunk = count == 1 && text.bytes[at - 1] == b'(' && text.bytes[at] == b'0';
        // Single digits are a list of numbers, except for country and area code.
        if count == 0 || total + count > MOST_IN_PHONE || (total > LONGEST_COUNTRY && count == 1 && !trunk) {
            return Ok(end);
        }
        groups += 1;
        number.extend_from_slice(&text.bytes[at..at + count]);
        total += count;
        at += count;
        if !text.has(at, is_word)? && is_phone(&number, groups > 1) {
            end = Some(at);
        }
        let mut separators = 0;
        while separators < 2 && text.has(at, |byte| b" -./()".contains(&byte))? {
            separators += 1;
            at += 1;
        }
        if separators == 0 {
            return Ok(end);
        }
    }
}

fn is_phone(number: &[u8], grouped: bool) -> bool {
    let fewest = if grouped { FEWEST_IN_PHONE } else { FEWEST_IN_A_ROW };
    match number {
        [b'0', ..] | [] => false,
        // North America: an area code does not begin with 0 or 1.
        [b'1', area, ..] => number.len() == 11 && *area >= b'2',
        [b'7', ..] => number.len() == 11,
        _ => number.len() >= fewest,
    }
}
