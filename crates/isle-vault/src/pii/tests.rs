//! What is taken for personal data, and above all what is not.

use bytes::Bytes;

use super::*;
use crate::mask::Masker;
use crate::stream::MaskedStream;

fn masker(kinds: &[&str]) -> Masker {
    let words: Vec<String> = kinds.iter().map(|kind| (*kind).to_owned()).collect();
    Masker::of(None, PiiKinds::read(&words).unwrap()).unwrap()
}

fn all() -> Masker {
    masker(&Kind::ALL.map(Kind::as_str))
}

fn masked(text: &str) -> String {
    String::from_utf8(all().mask(text.as_bytes()).into_owned()).unwrap()
}

#[test]
fn personal_data_is_replaced_by_what_it_is() {
    for (text, shown) in [
        ("write to jane.doe+x@mail.example.co.uk.", "write to [email]."),
        ("<a@b.de>,me@163.com;x_y%z@sub-domain.example.museum", "<[email]>,[email];[email]"),
        ("mailto:jane@example.com?subject=x", "mailto:[email]?subject=x"),
        ("jane@example.com:hunter2", "[email]:hunter2"),
        (
            "f\u{fc}r jane@m\u{fc}ller.de \u{4f60}jane@example.com",
            "f\u{fc}r jane@m\u{fc}ller.de \u{4f60}[email]",
        ),
        ("4111111111111111", "[card]"),
        ("card=4111 1111 1111 1111, 123", "card=[card], 123"),
        ("4111-1111-1111-1111 12/26", "[card] 12/26"),
        ("1 5500 0000 0000 0004 123\n2 4012 8888 8888 1881", "1 [card] 123\n2 [card]"),
        ("3782 822463 10005;378282246310005", "[card];[card]"),
        ("name,6011111111111117,x 3530111333300000 30569309025904", "name,[card],x [card] [card]"),
        ("2223003122003222 4222222222222", "[card] [card]"),
        ("DE89370400440532013000", "[iban]"),
        ("IBAN: DE89 3704 0044 0532 0130 00.", "IBAN: [iban]."),
        ("GB82WEST12345698765432 NO9386011117947", "[iban] [iban]"),
        ("FR14 2004 1010 0505 0001 3M02 606", "[iban]"),
        ("call +49 30 123456 or +1 (212) 555-0100!", "call [phone] or [phone]!"),
        ("+4930123456789,+442071838750", "[phone],[phone]"),
        ("tel:+33-1-23 +49 (0) 30 1234567 x", "tel:+33-1-23 [phone] x"),
        ("+1.212.555.0100 +33 1 23 45 67 89", "[phone] [phone]"),
        ("from 93.184.215.14:443.", "from [ip]:443."),
        ("8.8.8.8 2606:2800:21f:cb07:6820:80da:af6b:8b2c, 1.1.1.1/32", "[ip] [ip], [ip]/32"),
    ] {
        assert_eq!(masked(text), shown, "{text}");
    }
}

#[test]
fn ordinary_numbers_and_words_are_left_alone() {
    for text in [
        // Times, sizes, versions, identifiers.
        "1700000000 1700000000000 1700000000000000 1700000000000000000",
        "2026-11-16T02:31:28.123456789Z 2026-11-16 02:31:28+01:00 12:34:56.789",
        "550e8400-e29b-41d4-a716-446655440000 0x4111111111111111 4111111111111111abc",
        "0.4111111111111111 4111111111111111.5 id-4111111111111111 41111111111111110000",
        "deadbeefcafe4111111111111111 sha256:4111111111111111e 9f86d081884c7d659a2feaa0c55ad015",
        // One digit wrong.
        "4111111111111112 4111 1111 1111 1112 378282246310006 5500 0000 0000 0005",
        "DE89370400440532013001 GB82WEST12345698765433 DE8937040044053201300 DE893704004405320130000",
        // A table of numbers in which a card would be found.
        "1234 4111 1111 1111 1111 9999",
        "4111 1111 1111 1111 1111",
        // Not issued by anybody.
        "1234567812345670 9999999999999995 0000000000000000",
        // Programs.
        "react@18.2.0 lodash@4.17.21 actions/checkout@v4 golang.org/x/net@v0.17.0 pkg@1.2.3.tgz",
        "icon@2x.png git@github.com:isle/isle.git user@host @types/node@20 a@b @app.route('/') x@",
        "std::vector a::b fe80::1 ::1 127.0.0.1 10.0.0.1 192.168.1.1 255.255.255.255 1.2.3 1.2.3.4.5",
        "v1.2.3.4 1.2.3.400 20:31:28",
        "+1700000000 +1 -1 +100 +0123456789 1+12345678901 ++12345678901 +12 +1 2 3 4 5 6 7 8 9 0 1",
        "@@ -12345,678901 +12345,678901 @@ +20261116 a+4930123456789b +4930123456789b",
        "IS26 DE CH21 DEADBEEF AT20 is fine",
        "",
        "@",
        "+",
        "....@....",
    ] {
        assert_eq!(masked(text), text);
    }
}

#[test]
fn random_numbers_are_hardly_ever_taken_for_cards() {
    let mut dice = Dice(0x5eed);
    for length in [8, 10, 12, 20, 24] {
        for _ in 0..2000 {
            let number: String = (0..length).map(|_| char::from(b'0' + dice.roll(10))).collect();
            assert_eq!(masked(&number), number);
        }
    }
    let sixteen = (0..10_000)
        .filter(|_| {
            let number: String = (0..16).map(|_| char::from(b'0' + dice.roll(10))).collect();
            masked(&number) != number
        })
        .count();
    assert!(sixteen < 400, "{sixteen} of 10000");
}

#[test]
fn only_the_configured_kinds_are_masked() {
    let text = "a@b.de 4111111111111111 DE89370400440532013000 +4930123456789 8.8.8.8";
    for (kind, shown) in [
        ("email", "[email] 4111111111111111 DE89370400440532013000 +4930123456789 8.8.8.8"),
        ("card", "a@b.de [card] DE89370400440532013000 +4930123456789 8.8.8.8"),
        ("iban", "a@b.de 4111111111111111 [iban] +4930123456789 8.8.8.8"),
        ("phone", "a@b.de 4111111111111111 DE89370400440532013000 [phone] 8.8.8.8"),
        ("ip", "a@b.de 4111111111111111 DE89370400440532013000 +4930123456789 [ip]"),
    ] {
        assert_eq!(masker(&[kind]).mask(text.as_bytes()), shown.as_bytes(), "{kind}");
    }
    assert!(Masker::of(None, PiiKinds::default()).is_none());
    assert_eq!(PiiKinds::read(&["name".to_owned()]).unwrap_err().code, Code::InvalidArgument);
    let words = all().for_messages().unwrap();
    assert_eq!(words.mask(b"a@b.de 8.8.8.8"), &b"[email] 8.8.8.8"[..]);
    assert!(all().for_bytes().is_none());
}

/// Numbers that look random and are the same every time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u8) -> u8 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        u8::try_from(self.0 % u64::from(below)).unwrap()
    }
}

const SAMPLES: &[&str] = &[
    "jane@example.com",
    "4111 1111 1111 1111",
    "4111111111111111",
    "3782-822463-10005",
    "DE89 3704 0044 0532 0130 00",
    "DE89370400440532013000",
    "+49 30 1234567",
    "+1 (212) 555-0100",
    "93.184.215.14",
    "2606:2800:21f::8b2c",
    "1234 ",
    "@",
    ".",
    " ",
    "-",
    "+",
    "a",
    "7",
    ":",
    "\n",
    "\u{fc}",
];

#[test]
fn wherever_a_text_is_cut_the_same_is_masked() {
    let masker = all();
    let mut dice = Dice(0xc0ffee);
    let mut replaced = 0;
    for round in 0..3000 {
        let mut text = String::new();
        for _ in 0..dice.roll(12) {
            let sample = SAMPLES[usize::from(dice.roll(u8::try_from(SAMPLES.len()).unwrap()))];
            // Sometimes only a part of it.
            let kept =
                if dice.roll(4) == 0 { usize::from(dice.roll(20)).min(sample.len()) } else { sample.len() };
            text.push_str(sample.get(..kept).unwrap_or_default());
        }
        let expected = masker.mask(text.as_bytes()).into_owned();
        replaced += usize::from(expected != text.as_bytes());
        let mut stream = MaskedStream::default();
        let (mut got, mut rest) = (Vec::new(), text.as_bytes());
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(usize::from(dice.roll(9)).min(rest.len()));
            got.extend_from_slice(&stream.push(Some(&masker), &Bytes::copy_from_slice(piece)));
            assert!(stream.delayed() < PiiKinds::LONGEST, "round {round}");
            rest = after;
        }
        got.extend_from_slice(&stream.finish(Some(&masker)));
        assert_eq!(
            String::from_utf8_lossy(&got),
            String::from_utf8_lossy(&expected),
            "round {round}: {text:?}"
        );
    }
    assert!(replaced > 1000, "there was something to be found in {replaced} texts");
}

#[test]
fn a_part_of_a_file_shows_no_part_of_personal_data() {
    let masker = all();
    for sample in &SAMPLES[..10] {
        let text = format!("<{sample}>");
        for from in 0..text.len() {
            for to in from..=text.len() {
                let shown = masker.window(text.as_bytes(), from, to).unwrap();
                let mut shown = String::from_utf8(shown).unwrap();
                for kind in Kind::ALL {
                    shown = shown.replace(kind.marker(), "");
                }
                assert_eq!(shown.replace(['<', '>'], ""), "", "{text} {from} {to}");
            }
        }
    }
}

#[test]
fn little_of_a_text_is_held_back_that_begins_something_at_every_place() {
    for part in ["a.", "1 ", "4111 ", "+1", "DE", "a@a.", "1:", "+49 30 "] {
        let text = part.repeat(200_000 / part.len());
        let mut stream = MaskedStream::default();
        let masker = all();
        let mut emitted = 0;
        for piece in text.as_bytes().chunks(4096) {
            emitted += stream.push(Some(&masker), &Bytes::copy_from_slice(piece)).len();
            assert!(stream.delayed() < PiiKinds::LONGEST, "{part}");
        }
        emitted += stream.finish(Some(&masker)).len();
        assert_eq!(emitted, text.len(), "{part}");
    }
}
