//! DNS queries of programs, and the three answers there are: an address, no record of that type, no such
//! name. Queries come from the guest: every length is checked.

use std::net::Ipv4Addr;

const HEADER: usize = 12;
const LONGEST_NAME: usize = 255;
const TYPE_A: u16 = 1;
const CLASS_INTERNET: u16 = 1;
/// TTL of an address: it stays the same, and every connection is decided separately.
const TTL_SECONDS: u32 = 60;

const NO_ERROR: u8 = 0;
const FORMAT_ERROR: u8 = 1;
const SERVER_FAILURE: u8 = 2;
const NO_SUCH_NAME: u8 = 3;
const NOT_IMPLEMENTED: u8 = 4;

/// A query.
#[derive(Debug, PartialEq, Eq)]
pub struct Query {
    /// The name as text. Bytes that are not allowed in a name are question marks.
    pub name: String,
    wants_address: bool,
    /// Its header and question section, to be repeated in the answer.
    packet: Vec<u8>,
}

/// How a query is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The name has this address, and no other record.
    Address(Ipv4Addr),
    /// There is no such name.
    Unknown,
    /// Not now.
    Failure,
}

/// What a packet is.
#[derive(Debug, PartialEq, Eq)]
pub enum Parsed {
    /// A query to be answered.
    Query(Query),
    /// Not supported; to be answered with this packet.
    Rejected(Vec<u8>),
    /// Not a query.
    Ignored,
}

/// Parses a packet.
#[must_use]
pub fn parse(packet: &[u8]) -> Parsed {
    let Some(header) = packet.get(..HEADER) else { return Parsed::Ignored };
    let is_answer = header[2] & 0x80 != 0;
    if is_answer {
        return Parsed::Ignored;
    }
    let operation = (header[2] >> 3) & 0x0f;
    let questions = u16::from_be_bytes([header[4], header[5]]);
    if operation != 0 {
        return Parsed::Rejected(reply(header, &[], NOT_IMPLEMENTED, None));
    }
    if questions != 1 {
        return Parsed::Rejected(reply(header, &[], FORMAT_ERROR, None));
    }
    match question(packet) {
        Some(question) => Parsed::Query(question),
        None => Parsed::Rejected(reply(header, &[], FORMAT_ERROR, None)),
    }
}

fn question(packet: &[u8]) -> Option<Query> {
    let mut name = String::new();
    let mut at = HEADER;
    loop {
        let length = usize::from(*packet.get(at)?);
        at += 1;
        if length == 0 {
            break;
        }
        // Longer ones would be compression pointers, which a query does not need.
        if length > 63 || at - HEADER + length > LONGEST_NAME {
            return None;
        }
        if !name.is_empty() {
            name.push('.');
        }
        for &byte in packet.get(at..at + length)? {
            let plain = byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
            name.push(if plain { char::from(byte) } else { '?' });
        }
        at += length;
    }
    let &[type_high, type_low, class_high, class_low] = packet.get(at..at + 4)? else { return None };
    if u16::from_be_bytes([class_high, class_low]) != CLASS_INTERNET {
        return None;
    }
    let wants_address = u16::from_be_bytes([type_high, type_low]) == TYPE_A;
    Some(Query { name, wants_address, packet: packet[..at + 4].to_vec() })
}

impl Query {
    /// The packet that answers it.
    #[must_use]
    pub fn answered(&self, answer: Answer) -> Vec<u8> {
        let (header, question) = self.packet.split_at(HEADER);
        match answer {
            Answer::Address(address) => {
                reply(header, question, NO_ERROR, self.wants_address.then_some(address))
            }
            Answer::Unknown => reply(header, question, NO_SUCH_NAME, None),
            Answer::Failure => reply(header, question, SERVER_FAILURE, None),
        }
    }
}

fn reply(header: &[u8], question: &[u8], code: u8, address: Option<Ipv4Addr>) -> Vec<u8> {
    let wants_recursion = header[2] & 0x01;
    let mut packet = vec![header[0], header[1], 0x80 | wants_recursion, 0x80 | code];
    let questions = u16::from(!question.is_empty());
    let answers = u16::from(address.is_some());
    for count in [questions, answers, 0, 0] {
        packet.extend(count.to_be_bytes());
    }
    packet.extend(question);
    if let Some(address) = address {
        // A pointer to the name in the question section.
        packet.extend([0xc0, 12]);
        packet.extend(TYPE_A.to_be_bytes());
        packet.extend(CLASS_INTERNET.to_be_bytes());
        packet.extend(TTL_SECONDS.to_be_bytes());
        packet.extend([0, 4]);
        packet.extend(address.octets());
    }
    packet
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(labels: &[&[u8]], kind: u16) -> Vec<u8> {
        let mut packet = vec![0xab, 0xcd, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in labels {
            packet.push(u8::try_from(label.len()).unwrap());
            packet.extend_from_slice(label);
        }
        packet.push(0);
        packet.extend(kind.to_be_bytes());
        packet.extend([0, 1]);
        packet
    }

    #[test]
    fn a_query_is_answered_with_an_address_no_record_or_no_such_name() {
        let Parsed::Query(asked) = parse(&packet(&[b"API", b"example"], 1)) else { panic!() };
        assert_eq!(asked.name, "API.example");
        let answer = asked.answered(Answer::Address(Ipv4Addr::new(198, 18, 1, 0)));
        assert_eq!(answer[..12], [0xab, 0xcd, 0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]);
        assert_eq!(answer[answer.len() - 4..], [198, 18, 1, 0]);
        assert_eq!(asked.answered(Answer::Unknown)[3], 0x83);
        let Parsed::Query(other) = parse(&packet(&[b"api", b"example"], 28)) else { panic!() };
        let answer = other.answered(Answer::Address(Ipv4Addr::LOCALHOST));
        assert_eq!((answer[3], answer[7]), (0x80, 0), "no record of that type, and no error");
    }

    #[test]
    fn bytes_that_are_not_allowed_in_a_name_are_replaced() {
        let Parsed::Query(asked) = parse(&packet(&[b"api.example"], 1)) else { panic!() };
        assert_eq!(asked.name, "api?example");
        let Parsed::Query(asked) = parse(&packet(&[b"a\0b", b"\xff"], 1)) else { panic!() };
        assert_eq!(asked.name, "a?b.?");
    }

    #[test]
    fn malformed_packets_are_rejected_or_ignored() {
        let whole = packet(&[b"api", b"example"], 1);
        for end in 0..whole.len() {
            assert!(!matches!(parse(&whole[..end]), Parsed::Query(_)), "{end}");
        }
        for position in 0..whole.len() {
            for change in [0x40, 0x80, 0xc0, 0xff] {
                let mut changed = whole.clone();
                changed[position] ^= change;
                drop(parse(&changed));
            }
        }
        assert_eq!(parse(&[&whole[..2], &[0x81], &whole[3..]].concat()), Parsed::Ignored);
        let long: Vec<&[u8]> = vec![b"abcdefghi"; 30];
        assert!(matches!(parse(&packet(&long, 1)), Parsed::Rejected(_)));
    }
}
