//! Questions about names, as programs ask them over DNS, and the three answers there are: an address,
//! nothing of that kind, no such name. Questions come from the guest: every length is checked.

use std::net::Ipv4Addr;

const HEADER: usize = 12;
const LONGEST_NAME: usize = 255;
const TYPE_A: u16 = 1;
const CLASS_INTERNET: u16 = 1;
/// How long programs may remember an address: it stays the same, and every connection is decided anew.
const SECONDS: u32 = 60;

const NO_ERROR: u8 = 0;
const FORMAT_ERROR: u8 = 1;
const SERVER_FAILURE: u8 = 2;
const NO_SUCH_NAME: u8 = 3;
const NOT_IMPLEMENTED: u8 = 4;

/// A question.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Question {
    /// The name, as text. What no name contains is a question mark here.
    pub(crate) name: String,
    wants_address: bool,
    /// Its header and question, to be sent back.
    packet: Vec<u8>,
}

/// How a question is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The name has this address, and nothing else.
    Address(Ipv4Addr),
    /// There is no such name.
    Unknown,
    /// Not now.
    Failure,
}

/// What a packet is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Read {
    /// A question to be answered.
    Question(Question),
    /// To be answered with this at once.
    Refusal(Vec<u8>),
    /// To be thrown away.
    Nothing,
}

/// Reads a packet.
pub(crate) fn read(packet: &[u8]) -> Read {
    let Some(header) = packet.get(..HEADER) else { return Read::Nothing };
    let is_answer = header[2] & 0x80 != 0;
    if is_answer {
        return Read::Nothing;
    }
    let operation = (header[2] >> 3) & 0x0f;
    let questions = u16::from_be_bytes([header[4], header[5]]);
    if operation != 0 {
        return Read::Refusal(reply(header, &[], NOT_IMPLEMENTED, None));
    }
    if questions != 1 {
        return Read::Refusal(reply(header, &[], FORMAT_ERROR, None));
    }
    match question(packet) {
        Some(question) => Read::Question(question),
        None => Read::Refusal(reply(header, &[], FORMAT_ERROR, None)),
    }
}

fn question(packet: &[u8]) -> Option<Question> {
    let mut name = String::new();
    let mut at = HEADER;
    loop {
        let length = usize::from(*packet.get(at)?);
        at += 1;
        if length == 0 {
            break;
        }
        // Longer ones would be pointers, which a question has no use for.
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
    Some(Question { name, wants_address, packet: packet[..at + 4].to_vec() })
}

impl Question {
    /// The packet that answers it.
    pub(crate) fn answered(&self, answer: Answer) -> Vec<u8> {
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
        // The name is the one of the question.
        packet.extend([0xc0, 12]);
        packet.extend(TYPE_A.to_be_bytes());
        packet.extend(CLASS_INTERNET.to_be_bytes());
        packet.extend(SECONDS.to_be_bytes());
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
    fn a_question_is_answered_with_an_address_nothing_or_no_such_name() {
        let Read::Question(asked) = read(&packet(&[b"API", b"example"], 1)) else { panic!() };
        assert_eq!(asked.name, "API.example");
        let answer = asked.answered(Answer::Address(Ipv4Addr::new(198, 18, 1, 0)));
        assert_eq!(answer[..12], [0xab, 0xcd, 0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]);
        assert_eq!(answer[answer.len() - 4..], [198, 18, 1, 0]);
        assert_eq!(asked.answered(Answer::Unknown)[3], 0x83);
        let Read::Question(other) = read(&packet(&[b"api", b"example"], 28)) else { panic!() };
        let answer = other.answered(Answer::Address(Ipv4Addr::LOCALHOST));
        assert_eq!((answer[3], answer[7]), (0x80, 0), "no address of the other kind, and no error");
    }

    #[test]
    fn bytes_that_no_name_has_cannot_become_a_name() {
        let Read::Question(asked) = read(&packet(&[b"api.example"], 1)) else { panic!() };
        assert_eq!(asked.name, "api?example");
        let Read::Question(asked) = read(&packet(&[b"a\0b", b"\xff"], 1)) else { panic!() };
        assert_eq!(asked.name, "a?b.?");
    }

    #[test]
    fn broken_packets_are_refused_or_thrown_away() {
        let whole = packet(&[b"api", b"example"], 1);
        for end in 0..whole.len() {
            assert!(!matches!(read(&whole[..end]), Read::Question(_)), "{end}");
        }
        for position in 0..whole.len() {
            for change in [0x40, 0x80, 0xc0, 0xff] {
                let mut changed = whole.clone();
                changed[position] ^= change;
                read(&changed);
            }
        }
        assert_eq!(read(&[&whole[..2], &[0x81], &whole[3..]].concat()), Read::Nothing);
        let long: Vec<&[u8]> = vec![b"abcdefghi"; 30];
        assert!(matches!(read(&packet(&long, 1)), Read::Refusal(_)));
    }
}
