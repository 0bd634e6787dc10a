//! What masking promises, for every way a stream may be cut.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;

use super::*;
use crate::stream::MaskedStream;
use isle_core::values::SecretName;

fn masker(values: &[(&str, &str)]) -> Masker {
    let named: Vec<(SecretName, &str)> =
        values.iter().map(|(name, value)| (name.parse().unwrap(), *value)).collect();
    let values = Values::new(named.iter().map(|(name, value)| (name, *value))).unwrap();
    Masker::of(values.map(Arc::new), PiiKinds::default()).unwrap()
}

fn whole(masker: &Masker, text: &[u8]) -> Vec<u8> {
    masker.mask(text).into_owned()
}

fn in_pieces(masker: &Masker, text: &[u8], cuts: &[usize]) -> Vec<u8> {
    let mut stream = MaskedStream::default();
    let mut out = Vec::new();
    let mut at = 0;
    for &cut in cuts.iter().chain([&text.len()]) {
        out.extend_from_slice(&stream.push(Some(masker), &Bytes::copy_from_slice(&text[at..cut])));
        at = cut;
    }
    out.extend_from_slice(&stream.finish(Some(masker)));
    assert_eq!(stream.delayed(), 0);
    out
}

/// Numbers that look random and are the same every time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % below as u64).unwrap()
    }
}

#[test]
fn a_value_is_replaced_by_its_name_in_every_form() {
    let masker = masker(&[("KEY", "s3cr3t-välue")]);
    let value = "s3cr3t-välue";
    let hex: String = value.bytes().map(|byte| format!("{byte:02x}")).collect();
    for form in [value.to_owned(), hex, "s3cr3t-v%C3%A4lue".into(), "s3cr3t-v\\u00e4lue".into()] {
        assert_eq!(whole(&masker, format!("<{form}>").as_bytes()), b"<[secret KEY]>", "{form}");
    }
    let encoded = STANDARD.encode(format!("user:{value}!"));
    let masked = String::from_utf8(whole(&masker, encoded.as_bytes())).unwrap();
    assert!(masked.contains("[secret KEY]") && masked.len() < encoded.len() + 12, "{masked}");
    assert_eq!(whole(&masker, b"nothing here"), b"nothing here");
}

#[test]
fn wherever_a_stream_is_cut_the_same_is_masked() {
    let masker = masker(&[("ONE", "abcdefgh1"), ("TWO", "defgh1xyz"), ("RUN", "aaaaaaaa")]);
    let texts = [
        "abcdefgh1",
        "..abcdefgh1..",
        "abcdefgh1abcdefgh1",
        "abcdefgabcdefgh1",
        "abcdefgh1xyz",
        "aaaaaaaaaaaaaaaaaaaaaaaa",
        "xaaaaaaaaaaaaay",
        "abcdefgh",
        "6162636465666768 616263646566676831",
    ];
    for text in texts {
        let text = text.as_bytes();
        let expected = whole(&masker, text);
        for first in 0..=text.len() {
            for second in first..=text.len() {
                let got = in_pieces(&masker, text, &[first, second]);
                assert_eq!(
                    String::from_utf8_lossy(&got),
                    String::from_utf8_lossy(&expected),
                    "{:?} cut at {first} and {second}",
                    String::from_utf8_lossy(text)
                );
            }
        }
        let every: Vec<usize> = (1..text.len()).collect();
        assert_eq!(in_pieces(&masker, text, &every), expected);
    }
}

#[test]
fn no_value_survives_any_text_of_its_own_letters() {
    let values = ["abababab", "babababa", "aabbaabb", "abcabcab"];
    let named: Vec<(String, &str)> =
        (0..).zip(values).map(|(number, value)| (format!("S{number}"), value)).collect();
    let named: Vec<(&str, &str)> = named.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    let masker = masker(&named);
    let mut dice = Dice(0x5eed);
    for round in 0..2000 {
        let length = dice.roll(80);
        let text: Vec<u8> = (0..length).map(|_| b"abc"[dice.roll(3)]).collect();
        let mut cuts: Vec<usize> = (0..dice.roll(6)).map(|_| dice.roll(length + 1)).collect();
        cuts.sort_unstable();
        let got = in_pieces(&masker, &text, &cuts);
        assert_eq!(got, whole(&masker, &text), "round {round}");
        for value in values {
            assert!(!got.windows(value.len()).any(|bytes| bytes == value.as_bytes()), "round {round}");
        }
    }
}

#[test]
fn what_is_held_back_does_not_depend_on_what_it_is() {
    let masker = masker(&[("KEY", "zzyzx-secret")]);
    let shown = |text: &str| {
        let mut stream = MaskedStream::default();
        let piece = Bytes::from(format!("{}{text}", ".".repeat(500)));
        (stream.push(Some(&masker), &piece).len(), stream.delayed())
    };
    for guess in ["zzyzx-secre", "7a7a797a", "enp5eng"] {
        assert_eq!(shown(guess), shown(&"?".repeat(guess.len())), "{guess}");
    }
}

#[test]
fn what_was_released_is_emitted_once_and_stays_known() {
    let masker = masker(&[("KEY", "zzyzx-secret")]);
    let mut stream = MaskedStream::default();
    let piece = |text: &str| Bytes::copy_from_slice(text.as_bytes());
    assert!(stream.push(Some(&masker), &piece("$ ")).is_empty() && stream.holds());
    assert_eq!(&stream.release(Some(&masker))[..], b"$ ");
    assert!(!stream.holds() && stream.release(Some(&masker)).is_empty());
    assert_eq!(&stream.push(Some(&masker), &piece("zzyzx-secret zz"))[..], b"");
    assert_eq!(&stream.release(Some(&masker))[..], b"[secret KEY] zz");
    assert_eq!(&stream.push(Some(&masker), &piece("yzx-secret"))[..], b"");
    assert_eq!(&stream.finish(Some(&masker))[..], b"[secret KEY]");
    assert_eq!(stream.position(27), 29);
}

#[test]
fn what_is_held_back_stays_small() {
    let masker = masker(&[("RUN", "aaaaaaaaaaaaaaaa")]);
    let mut stream = MaskedStream::default();
    let mut out = Vec::new();
    for _ in 0..1000 {
        out.extend_from_slice(&stream.push(Some(&masker), &Bytes::from_static(&[b'a'; 1000])));
        assert!(stream.delayed() < masker.longest(), "{}", stream.delayed());
    }
    out.extend_from_slice(&stream.finish(Some(&masker)));
    assert_eq!(out, b"[secret RUN]");
}

#[test]
fn a_part_of_a_file_shows_no_part_of_a_value() {
    let masker = masker(&[("KEY", "hunter22")]);
    let text = b"..hunter22..";
    for from in 0..text.len() {
        for to in from..=text.len() {
            let masked = masker.window(text, from, to).unwrap_or_else(|| text[from..to].to_vec());
            let masked = String::from_utf8(masked).unwrap();
            let shown = masked.replace("[secret KEY]", "").replace('.', "");
            assert_eq!(shown, "", "{from} to {to}");
        }
    }
}

#[test]
fn places_follow_what_was_replaced() {
    let masker = masker(&[("K", "hunter22")]);
    let mut stream = MaskedStream::default();
    let said = Bytes::from_static(b"one\nhunter22\ntwo\n");
    assert!(stream.push(Some(&masker), &said).is_empty());
    let emitted = stream.release(Some(&masker));
    assert_eq!(&emitted[..], b"one\n[secret K]\ntwo\n");
    assert_eq!(
        (stream.position(0), stream.position(4), stream.position(13), stream.position(17)),
        (0, 4, 15, 19)
    );
    assert_eq!(stream.position(8), 8);
    assert_eq!(stream.position(11), 11);
}

#[test]
fn without_a_masker_nothing_is_copied_or_held() {
    let mut stream = MaskedStream::default();
    let piece = Bytes::from_static(b"hunter22");
    assert_eq!(stream.push(None, &piece), piece);
    assert_eq!(stream.position(5), 5);
}

#[test]
fn what_cannot_be_masked_is_withheld() {
    let masker = Masker::of(Some(Arc::new(Values::mask_everything())), PiiKinds::default()).unwrap();
    assert_eq!(whole(&masker, b"anything"), b"[withheld: the secrets are locked]");
    assert_eq!(whole(&masker, b""), b"");
    let mut stream = MaskedStream::default();
    let emitted = stream.push(Some(&masker), &Bytes::from_static(b"anything"));
    assert_eq!(&emitted[..], b"[withheld: the secrets are locked]");
}

#[test]
fn short_values_are_not_looked_for() {
    let name: SecretName = "PIN".parse().unwrap();
    assert!(Values::new([(&name, "1234567")]).unwrap().is_none());
}

#[test]
fn values_and_personal_data_are_masked_together_wherever_a_stream_is_cut() {
    let name: SecretName = "KEY".parse().unwrap();
    let values = Values::new([(&name, "hunter22")]).unwrap().map(Arc::new);
    let personal = PiiKinds::read(&["email".to_owned(), "card".to_owned()]).unwrap();
    let masker = Masker::of(values, personal).unwrap();
    for (text, shown) in [
        ("hunter22 jane@example.com", "[secret KEY] [email]"),
        ("hunter22@example.com 4111111111111111hunter22", "[secret KEY]@example.com [card][secret KEY]"),
        ("jane@hunter22.com", "jane@[secret KEY].com"),
    ] {
        assert_eq!(whole(&masker, text.as_bytes()), shown.as_bytes(), "{text}");
        for first in 0..=text.len() {
            for second in first..=text.len() {
                let got = in_pieces(&masker, text.as_bytes(), &[first, second]);
                assert_eq!(String::from_utf8(got).unwrap(), shown, "{text} cut at {first} and {second}");
            }
        }
    }
}
