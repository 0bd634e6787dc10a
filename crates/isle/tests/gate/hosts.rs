//! Hosts that are not the granted one: names that look like it, spellings of addresses, questions that
//! carry data, other sandboxes.

use serde_json::{Value, json};

use crate::harness::{per_connection, require, until};
use crate::servers::{Server, allow, hex, needs, plain_python, python, start};

/// Asks the name server of the sandbox for each of several names, given as lists of labels in hex; says
/// the code of each answer and its address.
const ASK: &str = r#"
import json, socket, sys
answers = {}
for number, labels in enumerate(json.loads(sys.argv[1])):
    question = number.to_bytes(2, 'big') + bytes([1, 0, 0, 1, 0, 0, 0, 0, 0, 0])
    for label in labels:
        data = bytes.fromhex(label)
        question += bytes([len(data)]) + data
    question += bytes([0, 0, 1, 0, 1])
    asking = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    asking.settimeout(30)
    asking.sendto(question, ('127.0.0.53', 53))
    answer, who = asking.recvfrom(4096)
    assert answer[:2] == question[:2]
    answers[number] = [answer[3] & 15, answer[7], list(answer[-4:]) if answer[7] else []]
print(json.dumps([answers[number] for number in sorted(answers)]))"#;

fn labels(name: &[u8]) -> Vec<String> {
    name.split(|&byte| byte == b'.').map(hex).collect()
}

per_connection!(a_name_that_only_looks_like_the_granted_one_does_not_exist);

fn a_name_that_only_looks_like_the_granted_one_does_not_exist() {
    let (daemon, server) = (start(), Server::echo());
    require!(needs(&daemon, "python3"));
    let port = server.port;
    allow(
        &daemon,
        "box",
        &[format!("web.test:{port}"), format!("*.wild.test:{port}"), format!("127.0.0.1:{port}")],
    );
    let long = [b"x".repeat(63), b"y".repeat(63), b"z".repeat(60)].join(&b'.');
    let other: Vec<Vec<String>> = [
        &b"other.test"[..],
        b"sub.web.test",
        b"notweb.test",
        b"web.test.other.test",
        b"web-test",
        b"test",
        b"wild.test",
        b"notwild.test",
        b"a.wild.test.other.test",
        b"web.test\0",
        b"web.test\0.other.test",
        b"web%2etest",
        b"web.test%00",
        b"user@web.test",
        b"web.test#",
        b"web.test?",
        b"web.test/",
        b"web.test\\",
        b"web.test\r\n",
        b"web.tes t",
        "web。test".as_bytes(),
        "ｗeb.test".as_bytes(),
        "wéb.test".as_bytes(),
        b"xn--web-.test",
        b"2130706433",
        b"0x7f000001",
        b"017700000001",
        b"127.1",
        b"127.0.0.1",
        b"169.254.169.254",
        b"::1",
        b"fe80::1%lo",
        b"localhost",
        b"metadata.google.internal",
        &[&long[..], b".wild.test.other.test"].concat(),
    ]
    .iter()
    .map(|name| labels(name))
    // A dot within a label is no dot between labels.
    .chain([vec![hex(b"web.test")], vec![hex(b"a.wild"), hex(b"test")]])
    .collect();
    let granted: Vec<Vec<String>> = [
        &b"web.test"[..],
        b"WEB.TEST",
        b"wEb.tEsT",
        b"a.wild.test",
        b"b.a.wild.test",
        b"xn--bcher-kva.wild.test",
    ]
    .iter()
    .map(|name| labels(name))
    .collect();
    let ask = |names: &[Vec<String>]| python(&daemon, "box", ASK, &[&json!(names).to_string()]);
    for (name, answer) in other.iter().zip(ask(&other).as_array().unwrap()) {
        assert!(answer[0].as_u64().unwrap() > 0 && answer[1] == 0, "{name:?}: {answer}");
    }
    for (name, answer) in granted.iter().zip(ask(&granted).as_array().unwrap()) {
        assert!(answer[0] == 0 && answer[2][0] == 198, "{name:?}: {answer}");
    }
    assert!(server.heard().is_empty(), "a question dialed");
}

/// Connects to the host by each spelling of an address; says which of them said the word.
const SPELL: &str = r#"
import json, socket, sys
reached = []
for form in json.loads(sys.argv[2]):
    try:
        stream = socket.create_connection((form, int(sys.argv[1])), 5)
        stream.settimeout(20)
        if stream.recv(64) == b'secret': reached.append(form)
    except OSError: pass
print(json.dumps(reached))"#;

per_connection!(no_spelling_of_an_address_reaches_the_host);

fn no_spelling_of_an_address_reaches_the_host() {
    let (daemon, server) = (start(), Server::saying("127.0.0.1:0", "secret"));
    require!(needs(&daemon, "python3"));
    let forms = json!([
        "127.0.0.1",
        "2130706433",
        "0x7f000001",
        "017700000001",
        "127.1",
        "127.0.1",
        "0x7f.0.0.1",
        "0177.0.0.1",
        "0.0.0.0",
        "0",
        "::ffff:127.0.0.1",
        "::ffff:7f00:1",
        "localhost",
    ]);
    let (port, text) = (server.port.to_string(), forms.to_string());
    assert_eq!(plain_python(SPELL, &[&port, &text]), forms, "without a sandbox");
    // The port is granted under a name, and the address too: only the name leads there.
    allow(&daemon, "box", &[format!("web.test:{port}"), format!("127.0.0.1:{port}")]);
    let mut tried = forms.as_array().unwrap().clone();
    tried.extend(
        ["198.18.0.0", "198.18.9.9", "198.19.255.255", "127.0.0.53", "::1", "fe80::1%lo"].map(Value::from),
    );
    tried.push(json!("web.test"));
    let reached = python(&daemon, "box", SPELL, &[&port, &json!(tried).to_string()]);
    assert_eq!(reached, json!(["web.test"]));
}

per_connection!(a_sandbox_does_not_reach_another);

fn a_sandbox_does_not_reach_another() {
    let daemon = start();
    require!(needs(&daemon, "python3"));
    let serve = "import socket, threading\n\
        def say(listener):\n\
        \u{20} while True: listener.accept()[0].sendall(b'secret')\n\
        names = [(socket.AF_INET, ('0.0.0.0', 8123)), (socket.AF_INET6, ('::', 8124)), (socket.AF_UNIX, '\\0isle-neighbour')]\n\
        for family, name in names:\n\
        \u{20} listener = socket.socket(family); listener.bind(name); listener.listen(); threading.Thread(target=say, args=(listener,)).start()\n\
        open('ready', 'w')";
    let reach = r#"
import json, socket
reached = []
names = [(socket.AF_INET, ('127.0.0.1', 8123)), (socket.AF_INET, ('198.18.1.0', 8123)), (socket.AF_INET6, ('::1', 8124)), (socket.AF_UNIX, '\0isle-neighbour')]
for family, name in names:
    try:
        stream = socket.socket(family); stream.settimeout(20); stream.connect(name)
        if stream.recv(64) == b'secret': reached.append(str(name))
    except OSError: pass
print(json.dumps(len(reached)))"#;
    // Both have a gate, and what is granted to one is not granted to the other.
    allow(&daemon, "server", &["web.test:443".into()]);
    allow(&daemon, "client", &["other.test:443".into()]);
    let job = daemon.exec("server", json!({ "argv": ["python3", "-c", serve], "wait": "0s" }));
    until("it listens", || daemon.shell("server", "ls").contains("ready"));
    assert_eq!(python(&daemon, "server", reach, &[]), 4, "from within");
    assert_eq!(python(&daemon, "client", reach, &[]), 0);
    let names = json!([labels(b"web.test"), labels(b"other.test")]).to_string();
    let answers = |sandbox| python(&daemon, sandbox, ASK, &[&names]);
    assert_eq!((&answers("server")[0][0], &answers("server")[1][0]), (&json!(0), &json!(3)));
    assert_eq!((&answers("client")[0][0], &answers("client")[1][0]), (&json!(3), &json!(0)));
    daemon.post(&format!("/v1/runs/{}/kill", job["run_id"].as_str().unwrap()), json!({}));
}
