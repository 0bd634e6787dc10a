use super::*;

fn vector(width: usize, content: &[u8]) -> Vec<u8> {
    let mut out = content.len().to_be_bytes()[8 - width..].to_vec();
    out.extend_from_slice(content);
    out
}

fn sni(names: &[(u8, &str)]) -> Vec<u8> {
    let list: Vec<u8> =
        names.iter().flat_map(|(kind, name)| [vec![*kind], vector(2, name.as_bytes())].concat()).collect();
    [vec![0, 0], vector(2, &vector(2, &list))].concat()
}

fn hello(extensions: Option<&[u8]>) -> Vec<u8> {
    let mut body =
        [vec![3, 3], vec![7; 32], vector(1, &[9; 32]), vector(2, &[0x13, 1]), vector(1, &[0])].concat();
    if let Some(extensions) = extensions {
        body.extend(vector(2, extensions));
    }
    [vec![CLIENT_HELLO], vector(3, &body)].concat()
}

fn records(message: &[u8], size: usize) -> Vec<u8> {
    message.chunks(size).flat_map(|part| [vec![HANDSHAKE, 3, 1], vector(2, part)].concat()).collect()
}

/// A first message for a server, as a client sends it.
pub(crate) fn client_hello(name: &str) -> Vec<u8> {
    let other = [vec![0, 43], vector(2, &[2, 3, 4])].concat();
    records(&hello(Some(&[other, sni(&[(0, name)])].concat())), 4096)
}

fn named(text: &str) -> ClientHello {
    ClientHello::Named(Name::parse(text).unwrap())
}

#[test]
fn the_server_is_read_from_whole_and_split_messages() {
    let bytes = client_hello("Example.COM");
    assert_eq!(server_name(&bytes), Ok(named("example.com")));
    for end in 0..bytes.len() {
        assert_eq!(server_name(&bytes[..end]), Ok(ClientHello::Partial), "{end}");
    }
    let message = hello(Some(&sni(&[(0, "a.example")])));
    for size in [1, 2, 3, 50] {
        assert_eq!(server_name(&records(&message, size)), Ok(named("a.example")), "{size}");
    }
}

#[test]
fn a_message_without_a_name_is_unnamed() {
    assert_eq!(server_name(&records(&hello(None), 4096)), Ok(ClientHello::Unnamed));
    assert_eq!(server_name(&records(&hello(Some(&[])), 4096)), Ok(ClientHello::Unnamed));
    for odd in ["127.0.0.1", "", "a b", "example.com\0.evil.example"] {
        assert_eq!(server_name(&client_hello(odd)), Ok(ClientHello::Unnamed), "{odd:?}");
    }
}

#[test]
fn what_is_ambiguous_or_not_tls_is_refused() {
    let twice = [sni(&[(0, "a.example")]), sni(&[(0, "b.example")])].concat();
    let malformed = [
        records(&hello(Some(&twice)), 4096),
        records(&hello(Some(&sni(&[(0, "a.example"), (0, "b.example")]))), 4096),
        records(&hello(Some(&sni(&[(1, "a.example")]))), 4096),
        records(&hello(Some(&[0, 0, 0])), 4096),
        records(&[2, 0, 0, 1, 0], 4096),
        records(&[1, 1, 0, 0, 0], 4096),
        vec![22, 3, 1, 0, 0],
        [records(&hello(None)[..20], 4096), vec![23, 3, 3, 0, 1, 0]].concat(),
    ];
    for bytes in malformed {
        assert_eq!(server_name(&bytes), Err(ClientHelloError::Malformed), "{bytes:?}");
    }
    for bytes in [&b"GET / HTTP/1.1\r\n"[..], b"\x80\x2e\x01", b"SSH-2.0-x", &[22, 2]] {
        assert_eq!(server_name(bytes), Err(ClientHelloError::NotTls), "{bytes:?}");
    }
}

#[test]
fn odd_messages_are_read_to_the_same_name_in_any_pieces() {
    let extension = |kind: u16, content: &[u8]| [kind.to_be_bytes().to_vec(), vector(2, content)].concat();
    let name = sni(&[(0, "a.example")]);
    let messages = [
        // GREASE before and behind it, a ticket, early data, padding.
        [extension(0x0a0a, &[]), name.clone(), extension(0xfafa, &[0])].concat(),
        [extension(35, &[7; 200]), name.clone(), extension(42, &[]), extension(41, &[7; 300])].concat(),
        [name.clone(), extension(21, &[0; 16_000])].concat(),
        // What is encrypted names another server to those who have the key, and this one to us.
        [extension(0xfe0d, &[0; 250]), name.clone()].concat(),
        (0..200).flat_map(|kind| extension(0x3000 + kind, &[7; 40])).chain(name.clone()).collect(),
    ];
    for extensions in messages {
        let message = hello(Some(&extensions));
        for size in [1, 7, 100, 4096, 16_000] {
            let bytes = records(&message, size);
            assert_eq!(server_name(&bytes), Ok(named("a.example")), "{size}");
            let mut reader = ClientHelloReader::default();
            let last = (1..=bytes.len())
                .map(|end| reader.read(&bytes[..end]))
                .find(|read| *read != Ok(ClientHello::Partial));
            assert_eq!(last, Some(Ok(named("a.example"))), "{size}");
        }
    }
    let huge = hello(Some(&extension(21, &vec![0; LONGEST])));
    assert_eq!(server_name(&records(&huge, 16_000)), Err(ClientHelloError::Malformed));
}

#[test]
fn changed_bytes_never_panic() {
    let bytes = client_hello("example.com");
    for position in 0..bytes.len() {
        for change in [1, 0x7f, 0x80, 0xff] {
            let mut changed = bytes.clone();
            changed[position] ^= change;
            server_name(&changed).ok();
        }
    }
}
