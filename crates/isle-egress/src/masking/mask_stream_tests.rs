use super::*;

fn finder(values: &[&str]) -> Arc<SecretFinder> {
    Arc::new(SecretFinder::new(values.iter().map(|value| ("KEY", *value))).unwrap().unwrap())
}

fn in_pieces(finder: &Arc<SecretFinder>, text: &[u8], size: usize) -> Vec<u8> {
    let mut stream = MaskStream::new(Arc::clone(finder));
    let mut out = Vec::new();
    for piece in text.chunks(size) {
        out.extend_from_slice(&stream.push(Bytes::copy_from_slice(piece)));
    }
    out.extend_from_slice(&stream.finish());
    out
}

#[test]
fn it_makes_no_difference_in_which_pieces_something_came() {
    let finder = finder(&["abcabcabd", "cabdxyz1", "s3cr3t-value"]);
    for text in [
        "abcabcabcabd and s3cr3t-value",
        "abcabcabdxyz1",
        "abcabcab",
        "xabcabcabdxyz1s3cr3t-values3cr3t-valu",
        "S3cR3t-VALUE x-s3CR3T-value",
        "czNjcjN0LXZhbHVl c3.%73%33%63%72%33%74%2d%76%61%6c%75%65",
        "",
    ] {
        let whole = masked(&finder, text.as_bytes()).map_or(text.as_bytes().to_vec(), |(out, _)| out);
        for size in 1..=text.len().max(1) {
            assert_eq!(in_pieces(&finder, text.as_bytes(), size), whole, "{text} in pieces of {size}");
        }
        assert!(!String::from_utf8_lossy(&whole).to_lowercase().contains("s3cr3t-value"));
        assert_eq!(whole.len(), text.len());
    }
}

#[test]
fn what_is_held_back_does_not_depend_on_what_it_is() {
    let finder = finder(&["s3cr3t-value"]);
    let shown = |text: &str| {
        let mut stream = MaskStream::new(Arc::clone(&finder));
        let at_once = stream.push(format!("{}{text}", ".".repeat(500)).into()).len();
        (at_once, stream.held())
    };
    for guess in ["s3cr3t-valu", "s3cr3t-valx", "736563", "736564", "czNjcjN0"] {
        let other = "x".repeat(guess.len());
        assert_eq!(shown(guess), shown(&other), "{guess}");
    }
}

#[test]
fn what_was_released_stays_known() {
    let mut stream = MaskStream::new(finder(&["s3cr3t-value"]));
    assert_eq!((&stream.push("yes".into())[..], stream.held()), (&b""[..], 3));
    assert_eq!((&stream.release()[..], stream.held()), (&b"yes"[..], 0));
    assert_eq!(&stream.push("3cr3t-value!".into())[..], b"");
    assert_eq!(&stream.release()[..], b"***********!");
    assert_eq!(stream.take_found(), ["KEY"]);
    assert_eq!(&stream.push("?".into())[..], b"");
    assert_eq!(&stream.finish()[..], b"?");
    assert!(stream.take_found().is_empty());
}
