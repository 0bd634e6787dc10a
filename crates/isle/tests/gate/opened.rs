//! Attacks on connections whose encryption the gate opens: requests hidden behind others, to other hosts
//! and other paths, servers whose certificates are wrong, handshakes that never end. The server at the
//! other end takes everything it can read, and each attack works on it where the gate does not stand.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::harness::{TestDaemon, finish, per_connection, require, until};
use crate::servers::{NAMES, Serving, allow, hex, needs, plain_python, python};
use crate::words::{EVIL, client_hello, requests};

/// An authority, and certificates: a good one, one of another authority, one for another name.
const MAKE: &str = r#"set -e
authority() { openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 \
    -subj "/CN=$1" -keyout $1.key -out $1.pem 2>/dev/null; }
sign() { openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj "/CN=$3" \
    -keyout $1-key.pem -out request.pem 2>/dev/null
  printf "subjectAltName=DNS:$3\n" > extensions
  openssl x509 -req -in request.pem -CA $2.pem -CAkey $2.key -CAcreateserial -days 2 -extfile extensions \
    -out $1.pem 2>/dev/null; }
authority good; authority bad
sign right good web.test; sign stranger bad web.test; sign namesake good other.test"#;

/// Takes whatever ends with an empty line for a request, and writes down each as it came.
const LENIENT: &str = r#"
import json, os, socket, ssl, sys, threading
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(CERTIFICATE + '.pem', CERTIFICATE + '-key.pem')
context.set_alpn_protocols(['http/1.1'])
listener = socket.create_server(('127.0.0.1', 0), backlog=1024)
lock = threading.Lock()
def note(said):
    with lock, open('heard', 'a') as heard: heard.write(json.dumps(said.decode('latin1')) + '\n')
def serve(stream):
    kept = b''
    try:
        stream = context.wrap_socket(stream, server_side=True)
        while piece := stream.recv(65536):
            kept += piece
            while ends := [at + len(end) for end in (b'\r\n\r\n', b'\n\n') if (at := kept.find(end)) >= 0]:
                request, kept = kept[:min(ends)], kept[min(ends):]
                note(request)
                stream.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nheard\n')
    except OSError: pass
    if kept: note(kept)
open('port.new', 'w').write(str(listener.getsockname()[1])); os.rename('port.new', 'port')
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()"#;

/// Sends each of several messages over a TLS connection of its own; says how each was answered.
pub(crate) const SAY: &str = r#"
import json, socket, ssl, sys
context = ssl.create_default_context(cafile=sys.argv[4] if len(sys.argv) > 4 else None)
context.set_alpn_protocols(['http/1.1'])
answers = {}
for name, text in json.loads(sys.argv[3]).items():
    heard = b''
    try:
        stream = socket.create_connection((sys.argv[1], int(sys.argv[2])), 30)
        stream = context.wrap_socket(stream, server_hostname='web.test')
        stream.sendall(bytes.fromhex(text))
        if name.startswith('end'): stream.unwrap()
        while b'heard\n' not in heard:
            piece = stream.recv(65536)
            if not piece: break
            heard += piece
            if b'HTTP/1.1 4' in heard: break
    except OSError as error:
        heard += b' ' + type(error).__name__.encode()
    stream.close()
    answers[name] = heard.decode('latin1')
print(json.dumps(answers))"#;

/// A server with one of the certificates, and the daemon that believes the good authority.
pub(crate) struct World {
    directory: tempfile::TempDir,
    _server: Serving,
    pub(crate) port: u16,
    pub(crate) daemon: TestDaemon,
}

impl World {
    pub(crate) fn new(certificate: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let made = finish(Command::new("sh").args(["-c", MAKE]).current_dir(directory.path()));
        assert!(made.status.success(), "{made:?}");
        let script = LENIENT.replace("CERTIFICATE", &format!("'{certificate}'"));
        let (server, port) = Serving::python(directory.path(), &script);
        let daemon = TestDaemon::start_configured(
            &format!("network_ca_files = [{:?}]\n{NAMES}", directory.path().join("good.pem")),
            &[],
        );
        Self { directory, _server: server, port, daemon }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    /// The file of the authority that signed for it.
    pub(crate) fn authority(&self) -> String {
        self.path().join("good.pem").display().to_string()
    }

    pub(crate) fn heard(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.path().join("heard")).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    pub(crate) fn grant(&self, requests: &str) {
        let hosts = [format!("https://web.test:{}{requests}", self.port), format!("127.0.0.1:{}", self.port)];
        allow(&self.daemon, "box", &hosts);
    }
}

fn messages<'m>(said: impl IntoIterator<Item = (&'m str, &'m str)>) -> String {
    let said = said.into_iter().map(|(name, text)| (name.to_owned(), json!(hex(text.as_bytes()))));
    Value::Object(said.collect()).to_string()
}

per_connection!(no_request_to_another_host_passes_an_opened_connection);

fn no_request_to_another_host_passes_an_opened_connection() {
    let world = World::new("right");
    require!(needs(&world.daemon, "python3"));
    let port = world.port.to_string();
    let all = requests();
    let said = messages(all.iter().map(|(name, text)| (name.as_str(), text.as_str())));
    // Without the gate each is heard.
    let authority = world.path().join("good.pem");
    let outside = ["127.0.0.1", &port, &said, authority.to_str().unwrap()];
    plain_python(SAY, &outside);
    for (name, _) in &all {
        let mark = format!("{EVIL}-{name}");
        until(&format!("{mark} is heard"), || world.heard().iter().any(|request| request.contains(&mark)));
    }
    let before = world.heard().len();
    world.grant("/* GET,POST");
    let answers = python(&world.daemon, "box", SAY, &["web.test", &port, &said]);
    let well = messages([("well", "GET /well HTTP/1.1\r\nHost: WEB.test.\r\n\r\n")]);
    let answer = python(&world.daemon, "box", SAY, &["web.test", &port, &well]);
    assert!(answer["well"].as_str().unwrap().ends_with("heard\n"), "{answer}");
    let heard = world.heard().split_off(before);
    assert!(heard.iter().any(|request| request.contains("/well")), "{heard:#?}");
    let through: Vec<&String> = heard.iter().filter(|request| request.contains(EVIL)).collect();
    assert!(through.is_empty(), "{through:#?}\n{answers:#}");
    for name in ["mismatch", "none", "two", "absolute", "suffix"] {
        assert!(answers[name].as_str().unwrap().starts_with("HTTP/1.1 403 "), "{name}: {answers:#}");
    }
}

per_connection!(no_spelling_of_a_path_passes_a_grant_of_others);

fn no_spelling_of_a_path_passes_a_grant_of_others() {
    let world = World::new("right");
    require!(needs(&world.daemon, "python3"));
    let port = world.port.to_string();
    let paths = [
        "/evil",
        "/v1/../evil",
        "/v1/./../evil",
        "/v1/%2e%2e/evil",
        "/v1/%2E%2e%2fevil",
        "/v1/..;/evil",
        "/v1/..%5cevil",
        "/v1/..\\evil",
        "//evil",
        "/v1//../evil",
        "/v1/%252e%252e/evil",
        "/V1/evil",
        "/v1",
        "/%76%31/evil",
        "/v1/evil%00.txt",
        "https://web.test/evil",
        "/./v1/../evil?x=/v1/",
        "/evil#/v1/",
        "/evil?/v1/",
    ];
    let named: Vec<(String, String)> = (0..)
        .zip(paths)
        .map(|(number, path)| {
            (
                format!("{number}"),
                format!("GET {path} HTTP/1.1\r\nHost: web.test\r\nX: {EVIL}-{number}-\r\n\r\n"),
            )
        })
        .collect();
    let said = messages(named.iter().map(|(name, text)| (name.as_str(), text.as_str())));
    let authority = world.path().join("good.pem");
    plain_python(SAY, &["127.0.0.1", &port, &said, authority.to_str().unwrap()]);
    for (name, text) in &named {
        let mark = format!("{EVIL}-{name}-");
        assert!(world.heard().iter().any(|request| request.contains(&mark)), "the control: {text}");
    }
    let before = world.heard().len();
    world.grant("/v1/* GET");
    let answers = python(&world.daemon, "box", SAY, &["web.test", &port, &said]);
    let heard = world.heard().split_off(before);
    assert!(heard.is_empty(), "{heard:#?}\n{answers:#}");
    let well = messages([("well", "GET /v1/a.b-c/~d HTTP/1.1\r\nHost: web.test\r\n\r\n")]);
    let answer = python(&world.daemon, "box", SAY, &["web.test", &port, &well]);
    assert!(answer["well"].as_str().unwrap().ends_with("heard\n"), "{answer}");
}

per_connection!(a_wrong_certificate_is_an_error_to_the_program_even_to_one_that_believes_everything);

fn a_wrong_certificate_is_an_error_to_the_program_even_to_one_that_believes_everything() {
    for (certificate, words) in [
        ("right", ""),
        ("stranger", "not signed by a CA that this machine trusts"),
        ("namesake", "it is for another name"),
    ] {
        let world = World::new(certificate);
        world.grant("/* GET");
        let fetch = format!("curl -sS -k -m 60 -w ' %{{http_code}}' https://web.test:{}/secret", world.port);
        // Without the gate it is reached, since the program does not look.
        let plain = format!("{fetch} --resolve web.test:{}:127.0.0.1", world.port);
        let control = finish(Command::new("sh").args(["-c", &plain]));
        assert!(String::from_utf8_lossy(&control.stdout).ends_with("heard\n 200"), "{control:?}");
        let before = world.heard().len();
        let run = world.daemon.exec("box", json!({ "command": fetch }));
        let said = run["stdout"].as_str().unwrap();
        if words.is_empty() {
            assert_eq!(said, "heard\n 200", "{run}");
            continue;
        }
        assert!(said.contains("is not accepted") && said.contains(words) && said.ends_with(" 502"), "{run}");
        assert_eq!(world.heard().len(), before, "nothing was said to it");
        let net = world.daemon.get("/v1/sandboxes/box/net").to_string();
        assert!(net.contains("is not accepted"), "{net}");
    }
}

per_connection!(handshakes_that_never_end_hold_up_nobody);

fn handshakes_that_never_end_hold_up_nobody() {
    let world = World::new("right");
    require!(needs(&world.daemon, "python3"));
    world.grant("/* GET");
    let hello = hex(&client_hello("web.test"));
    let script = format!(
        "import socket, time\nheld = []\n\
         for number in range(200):\n\
         \u{20} stream = socket.create_connection(('web.test', {}), 60)\n\
         \u{20} stream.sendall(bytes.fromhex('{hello}')[:(None if number % 2 else 40)])\n\
         \u{20} held.append(stream)\n\
         open('ready', 'w'); time.sleep(600)",
        world.port
    );
    let run = world.daemon.exec("box", json!({ "argv": ["python3", "-c", script], "wait": "0s" }));
    until("the flood has come", || world.daemon.shell("box", "ls").contains("ready"));
    for sandbox in ["box", "other"] {
        let hosts = [format!("https://web.test:{}/* GET", world.port), format!("127.0.0.1:{}", world.port)];
        allow(&world.daemon, sandbox, &hosts);
        let fetch = format!("curl -sS -m 60 https://web.test:{}/well", world.port);
        assert_eq!(world.daemon.shell(sandbox, &fetch), "heard\n", "{sandbox}");
    }
    world
        .daemon
        .post(&format!("/v1/runs/{}/kill", run["run_id"].as_str().unwrap()), json!({ "force": true }));
}
