//! First words that try to get past a grant: requests to other hosts, requests hidden behind others,
//! other protocols, other names in TLS. The server at the other end is the most lenient there can be.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::harness::{TestDaemon, part, per_connection, require, until};
use crate::servers::{Server, allow, hex, make_process, needs, python, start};

/// Sends each of several messages over a connection of its own; says how each was answered.
pub(crate) const SAY: &str = r#"
import json, socket, sys
answers = {}
for name, text in json.loads(sys.argv[3]).items():
    stream = socket.create_connection((sys.argv[1], int(sys.argv[2])), 30)
    heard = b''
    try:
        stream.sendall(bytes.fromhex(text))
        if name.startswith('end'): stream.shutdown(socket.SHUT_WR)
        while b'heard\n' not in heard:
            piece = stream.recv(65536)
            if not piece: break
            heard += piece
    except OSError as error:
        heard += b' ' + type(error).__name__.encode()
    stream.close()
    answers[name] = heard.decode('latin1')
print(json.dumps(answers))"#;

/// The sandboxes it is said in, and how: by the name, and where the gate is a proxy through that.
fn ways(daemon: &TestDaemon) -> Vec<(&'static str, String)> {
    let mut ways = vec![("box", SAY.to_owned())];
    if part(make_process(daemon, "plain")) {
        let direct = "stream = socket.create_connection((sys.argv[1], int(sys.argv[2])), 30)";
        assert!(SAY.contains(direct));
        let through = r"stream = socket.create_connection(('127.0.0.1', 3128), 30)
    stream.sendall(b'CONNECT %s:%s HTTP/1.1\r\n\r\n' % (sys.argv[1].encode(), sys.argv[2].encode()))
    opened = b''
    while not opened.endswith(b'\r\n\r\n'): opened += stream.recv(1)
    assert opened.startswith(b'HTTP/1.1 200 '), opened";
        ways.push(("plain", SAY.replace(direct, through)));
    }
    ways
}

/// What must not be heard is in the request that has this word.
pub(crate) const EVIL: &str = "evil";

/// Requests whose hidden part, or whole, is for somebody else. Each has a name of its own in it.
pub(crate) fn requests() -> Vec<(String, String)> {
    let host = "web.test";
    let other = |name: &str| format!("GET /{EVIL}-{name} HTTP/1.1\r\nHost: other.test\r\n\r\n");
    let all = [
        ("mismatch", other("mismatch")),
        ("none", format!("GET /{EVIL}-none HTTP/1.1\r\n\r\n")),
        ("none-old", format!("GET /{EVIL}-none-old HTTP/1.0\r\n\r\n")),
        ("two", format!("GET /{EVIL}-two HTTP/1.1\r\nHost: {host}\r\nHost: other.test\r\n\r\n")),
        ("twice", format!("GET /{EVIL}-twice HTTP/1.1\r\nHost: {host}\r\nHost: {host}\r\n\r\n")),
        ("absolute", format!("GET http://other.test/{EVIL}-absolute HTTP/1.1\r\nHost: {host}\r\n\r\n")),
        (
            "userinfo",
            format!("GET http://{host}@other.test/{EVIL}-userinfo HTTP/1.1\r\nHost: {host}\r\n\r\n"),
        ),
        ("in-host", format!("GET /{EVIL}-in-host HTTP/1.1\r\nHost: {host}@other.test\r\n\r\n")),
        ("nul", format!("GET /{EVIL}-nul HTTP/1.1\r\nHost: {host}\0.other.test\r\n\r\n")),
        ("percent", format!("GET /{EVIL}-percent HTTP/1.1\r\nHost: {host}%00.other.test\r\n\r\n")),
        ("suffix", format!("GET /{EVIL}-suffix HTTP/1.1\r\nHost: {host}.other.test\r\n\r\n")),
        ("prefix", format!("GET /{EVIL}-prefix HTTP/1.1\r\nHost: not{host}\r\n\r\n")),
        ("port", format!("GET /{EVIL}-port HTTP/1.1\r\nHost: {host}:1\r\n\r\n")),
        ("full-width", format!("GET /{EVIL}-full-width HTTP/1.1\r\nHost: web。test\r\n\r\n")),
        ("feed", format!("GET /{EVIL}-feed HTTP/1.1\r\nX: a\nHost: other.test\r\nHost: {host}\r\n\r\n")),
        ("return", format!("GET /{EVIL}-return HTTP/1.1\r\nX: a\rHost: other.test\r\nHost: {host}\r\n\r\n")),
        ("end-feeds", format!("GET /{EVIL}-end-feeds HTTP/1.1\nHost: other.test\n\n")),
        ("fold", format!("GET /{EVIL}-fold HTTP/1.1\r\nHost: {host}\r\n Host: other.test\r\n\r\n")),
        ("space", format!("GET /{EVIL}-space HTTP/1.1\r\nHost : other.test\r\nHost: {host}\r\n\r\n")),
        ("connect", format!("CONNECT other.test:443 HTTP/1.1\r\nHost: {host}\r\nX: {EVIL}-connect\r\n\r\n")),
        ("http2", format!("PRI * HTTP/2.0\r\nX: {EVIL}-http2\r\n\r\nSM\r\n\r\n")),
        ("socks", format!("\u{5}\u{1}\u{0}{EVIL}-socks\r\n\r\n")),
        ("next", format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n{}", other("next"))),
        (
            "after-length",
            format!(
                "POST / HTTP/1.1\r\nHost: {host}\r\nContent-Length: 2\r\n\r\nhi{}",
                other("after-length")
            ),
        ),
        (
            "after-chunks",
            format!(
                "POST / HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{}",
                other("after-chunks")
            ),
        ),
        (
            "both-lengths",
            format!(
                "POST / HTTP/1.1\r\nHost: {host}\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{}",
                other("both-lengths")
            ),
        ),
        (
            "two-lengths",
            format!(
                "POST / HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\nContent-Length: 90\r\n\r\n{}",
                other("two-lengths")
            ),
        ),
        (
            "odd-coding",
            format!(
                "POST / HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: xchunked\r\n\r\n{}",
                other("odd-coding")
            ),
        ),
        (
            "hidden-coding",
            format!(
                "POST / HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding:\u{b}chunked\r\nContent-Length: 0\r\n\r\n{}",
                other("hidden-coding")
            ),
        ),
        (
            "old-chunks",
            format!(
                "POST / HTTP/1.0\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{}",
                other("old-chunks")
            ),
        ),
        (
            "odd-chunk",
            format!(
                "POST / HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n\r\n0\nX\r\n\r\n{}",
                other("odd-chunk")
            ),
        ),
        (
            "upgrade",
            format!(
                "GET / HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n{}",
                other("upgrade")
            ),
        ),
        (
            "upgrade-h2c",
            format!(
                "GET / HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nUpgrade: {EVIL}-upgrade-h2c\r\n\r\n"
            ),
        ),
        ("end-plain", format!("{EVIL}-end-plain without a line")),
    ];
    all.map(|(name, text)| (name.to_owned(), text)).into()
}

per_connection!(no_request_to_another_host_passes_an_http_grant);

fn no_request_to_another_host_passes_an_http_grant() {
    let (daemon, server) = (start(), Server::lenient());
    require!(needs(&daemon, "python3"));
    let port = server.port;
    let requests = requests();
    // Without the gate each is heard.
    for (name, text) in &requests {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        std::io::copy(&mut stream, &mut std::io::sink()).ok();
        let mark = format!("{EVIL}-{name}");
        until(&format!("{mark} is heard"), || server.heard().iter().any(|request| request.contains(&mark)));
    }
    let mut said: serde_json::Map<String, Value> =
        requests.iter().map(|(name, text)| (name.clone(), json!(hex(text.as_bytes())))).collect();
    said.insert("well".into(), json!(hex(b"GET /well HTTP/1.1\r\nHost: WEB.test.\r\n\r\n")));
    let said = Value::Object(said).to_string();
    for (sandbox, say) in ways(&daemon) {
        let before = server.heard().len();
        allow(&daemon, sandbox, &[format!("web.test:{port}/http"), format!("127.0.0.1:{port}")]);
        let answers = python(&daemon, sandbox, &say, &["web.test", &port.to_string(), &said]);
        assert!(answers["well"].as_str().unwrap().ends_with("heard\n"), "{answers:#}");
        let heard = server.heard().split_off(before);
        let through: Vec<&String> = heard.iter().filter(|request| request.contains(EVIL)).collect();
        assert!(through.is_empty(), "{through:#?}");
        // Who was denied and speaks HTTP was told so.
        for name in ["mismatch", "none", "two", "absolute", "both-lengths", "suffix"] {
            let answer = answers[name].as_str().unwrap();
            assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains("remedy: "), "{name}: {answer}");
        }
    }
}

/// Bytes behind their length.
fn vector(width: usize, content: &[u8]) -> Vec<u8> {
    let mut bytes = (content.len() as u64).to_be_bytes()[8 - width..].to_vec();
    bytes.extend_from_slice(content);
    bytes
}

/// The extension that names servers.
fn server_names(names: &[&str]) -> Vec<u8> {
    let list: Vec<u8> =
        names.iter().flat_map(|name| [vec![0], vector(2, name.as_bytes())].concat()).collect();
    [vec![0, 0], vector(2, &vector(2, &list))].concat()
}

/// A first message of TLS for a server.
pub(crate) fn client_hello(name: &str) -> Vec<u8> {
    let extension = if name.is_empty() { Vec::new() } else { server_names(&[name]) };
    hello_in_records(&extension, 16_000)
}

/// A first message with these extensions, in records of a size.
fn hello_in_records(extensions: &[u8], size: usize) -> Vec<u8> {
    let random = [7; 32];
    let body = [
        vec![3, 3],
        random.to_vec(),
        vector(1, &[]),
        vector(2, &[0x13, 1]),
        vector(1, &[0]),
        vector(2, extensions),
    ]
    .concat();
    let message = [vec![1], vector(3, &body)].concat();
    message.chunks(size).flat_map(|part| [vec![22, 3, 1], vector(2, part)].concat()).collect()
}

per_connection!(only_a_handshake_for_the_granted_name_passes_a_tls_grant);

fn only_a_handshake_for_the_granted_name_passes_a_tls_grant() {
    let (daemon, server) = (start(), Server::echo());
    require!(needs(&daemon, "python3"));
    let port = server.port;
    let words = [
        ("other", client_hello("other.test")),
        ("below", client_hello("a.web.test")),
        ("above", client_hello("test")),
        ("none", client_hello("")),
        ("address", client_hello("127.0.0.1")),
        ("nul", client_hello("web.test\0.other.test")),
        ("prefix", client_hello("notweb.test")),
        ("dot", client_hello("web.test..")),
        ("two", hello_in_records(&server_names(&["web.test", "other.test"]), 16_000)),
        (
            "twice",
            hello_in_records(&[server_names(&["web.test"]), server_names(&["other.test"])].concat(), 16_000),
        ),
        ("pieces", hello_in_records(&server_names(&["other.test"]), 1)),
        ("six", client_hello("::1")),
        (
            "bytes",
            hello_in_records(&[vec![0, 0], vector(2, &vector(2, &[0, 0, 3, 0xff, 0xfe, 0xfd]))].concat(), 99),
        ),
        // The name stands in what is encrypted, and another one before everybody's eyes.
        (
            "hidden",
            hello_in_records(
                &[vec![0xfe, 0x0d], vector(2, &[7; 99]), server_names(&["front.test"])].concat(),
                99,
            ),
        ),
        (
            "huge",
            hello_in_records(
                &[vec![0, 21], vector(2, &[0; 40_000]), server_names(&["web.test"])].concat(),
                16_000,
            ),
        ),
        ("plain", b"GET / HTTP/1.1\r\nHost: web.test\r\n\r\nheard\n".to_vec()),
        ("ssh", b"SSH-2.0-heard\n".to_vec()),
        ("old", [vec![0x80, 0x2e, 1, 3, 1], b"heard\n".to_vec()].concat()),
        // A record of another kind in the middle of the handshake.
        ("alert", [&client_hello("web.test")[..20], &[21, 3, 3, 0, 2, 1, 0], b"heard\n"].concat()),
    ];
    // Without the gate each is given back.
    for (name, bytes) in &words {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.write_all(bytes).unwrap();
        let mut back = vec![0; bytes.len()];
        stream.read_exact(&mut back).unwrap();
        assert_eq!(&back, bytes, "{name}");
    }
    let mut said: serde_json::Map<String, Value> =
        words.iter().map(|(name, bytes)| (format!("end {name}"), json!(hex(bytes)))).collect();
    let well = [client_hello("Web.Test"), b"heard\n".to_vec()].concat();
    said.insert("well".into(), json!(hex(&well)));
    // GREASE, a ticket and early data, in records of one byte.
    let odd =
        [vec![0x0a, 0x0a, 0, 0], server_names(&["web.test"]), vec![0, 35, 0, 1, 7, 0, 42, 0, 0]].concat();
    said.insert("odd".into(), json!(hex(&[hello_in_records(&odd, 1), b"heard\n".to_vec()].concat())));
    let said = Value::Object(said).to_string();
    for (sandbox, say) in ways(&daemon) {
        let before = server.heard().len();
        allow(&daemon, sandbox, &[format!("web.test:{port}/tls"), format!("127.0.0.1:{port}")]);
        let answers = python(&daemon, sandbox, &say, &["web.test", &port.to_string(), &said]);
        assert!(answers["well"].as_str().unwrap().ends_with("heard\n"), "{answers:#}");
        for (name, _) in &words {
            let answer = answers[format!("end {name}")].as_str().unwrap();
            let denied =
                if *name == "plain" { answer.contains("reason: not_tls") } else { !answer.contains("heard") };
            assert!(denied, "{name}: {answer}");
        }
        assert!(answers["odd"].as_str().unwrap().ends_with("heard\n"), "{answers:#}");
        // Nothing was dialed for the others either.
        assert_eq!(server.heard().len() - before, 2, "{answers:#}");
    }
}
