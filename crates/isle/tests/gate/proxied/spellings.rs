//! Hosts that are spelt so that somebody could read them as another.

use serde_json::{Value, json};

use super::{WORD, ground};
use crate::harness::{per_connection, require, until};
use crate::servers::{Server, allow, hex, python};

/// Says each of several messages to the proxy, on a connection of its own, and gives what it hears.
const SAY: &str = r#"
import json, socket, sys
answers = {}
for name, text in json.loads(sys.argv[1]).items():
    stream = socket.create_connection(('127.0.0.1', 3128), 30)
    stream.sendall(bytes.fromhex(text))
    heard = b''
    if name.startswith('socks'):
        heard = stream.recv(2)
    else:
        stream.shutdown(socket.SHUT_WR)
    while True:
        piece = stream.recv(4096)
        if not piece or len(heard) > 1000: break
        heard += piece
        if name.startswith('socks'): break
    stream.close()
    answers[name] = (heard[:20] + heard[-20:]).hex()
print(json.dumps(answers))"#;

per_connection!(no_spelling_of_a_host_passes_the_proxy);

fn no_spelling_of_a_host_passes_the_proxy() {
    let daemon = require!(ground());
    let server = Server::saying("127.0.0.1:0", WORD);
    let port = server.port;
    let hosts = [
        "other.test",
        "sub.web.test",
        "notweb.test",
        "web.test.other.test",
        "test",
        "wild.test",
        "notwild.test",
        "web.test\0",
        "web.test\0.other.test",
        "web.test%00",
        "web%2etest",
        "user@web.test",
        "web.test@other.test",
        "web.test#",
        "web.test?",
        "web.test/",
        "web.test\\",
        "web.test..",
        "web。test",
        "web．test",
        "ｗeb.test",
        "127.1",
        "2130706433",
        "0x7f000001",
        "017700000001",
        "0177.0.0.1",
        "127.0.0.1.",
        "localhost",
        "web.localhost",
        "0.0.0.0",
        "169.254.169.254",
        "[::1]",
        "[::ffff:127.0.0.2]",
        "[64:ff9b::7f00:1]",
        "[fe80::1%25lo]",
        "[::]",
        "",
    ];
    let socks = |host: &str| {
        let length = u8::try_from(host.len()).unwrap();
        [&[5, 1, 0, 5, 1, 0, 3, length], host.as_bytes(), &port.to_be_bytes()].concat()
    };
    let connect = |host: &str| format!("CONNECT {host}:{port} HTTP/1.1\r\n\r\n").into_bytes();
    let get = |host: &str| {
        format!("GET http://{host}:{port}/ HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n").into_bytes()
    };
    let mut said = serde_json::Map::new();
    for host in hosts.into_iter().chain(["web.test"]) {
        said.insert(format!("connect {host}"), json!(hex(&connect(host))));
        said.insert(format!("get {host}"), json!(hex(&get(host))));
        said.insert(format!("socks {host}"), json!(hex(&socks(host))));
    }
    allow(
        &daemon,
        "plain",
        &[format!("web.test:{port}"), format!("*.wild.test:{port}"), format!("127.0.0.1:{port}/tls")],
    );
    let answers = python(&daemon, "plain", SAY, &[&Value::Object(said).to_string()]);
    let answer = |kind: &str, host: &str| answers[format!("{kind} {host}")].as_str().unwrap().to_owned();
    let word = hex(WORD.as_bytes());
    assert!(answer("connect", "web.test").ends_with(&word), "{answers:#}");
    // Who closes without having read a request may take its own answer back.
    assert!(!answer("get", "web.test").starts_with(&hex(b"HTTP/1.1 4")), "{answers:#}");
    assert!(answer("socks", "web.test").starts_with("05000500"), "{answers:#}");
    // The list begins with the word itself.
    until("all three were heard", || server.heard().len() == 1 + 3);
    for host in hosts {
        for kind in ["connect", "get"] {
            let denied = ["HTTP/1.1 403", "HTTP/1.1 400"].map(|start| hex(start.as_bytes()));
            let found = answer(kind, host);
            assert!(denied.iter().any(|start| found.starts_with(start)), "{kind} {host:?}: {found}");
        }
        assert!(answer("socks", host).starts_with("05000502"), "{host:?}: {}", answer("socks", host));
    }
    assert_eq!(server.heard().len(), 1 + 3, "somebody got through");
}
