//! Ports of a sandbox, seen from outside: through the HTTP door by its reverse proxy, and on the host's
//! loopback. The server inside is this test's own and says what it hears.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::contexts::has;
use crate::harness::http::{self, Answer, unix_raw};
use crate::harness::{TestDaemon, until};
use crate::metrics::value;
use crate::tenants::{Caller, listening, tenant};

const SERVER: &str = r#"
import hashlib, json, os, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Handler(BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'

    def log_message(self, *words):
        pass

    def body(self):
        if self.headers.get('transfer-encoding') == 'chunked':
            whole = b''
            while size := int(self.rfile.readline(), 16):
                whole += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return whole
        return self.rfile.read(int(self.headers.get('content-length', 0)))

    def say(self, text, *headers):
        self.send_response(200 if not any(name == 'Location' for name, _ in headers) else 302)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header('Content-Length', str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def chunk(self, text):
        self.wfile.write(f'{len(text):x}\r\n{text}\r\n'.encode())
        self.wfile.flush()

    def anything(self):
        if self.path.startswith('/slow'):
            self.send_response(200)
            self.send_header('Transfer-Encoding', 'chunked')
            self.end_headers()
            self.chunk('first')
            while not os.path.exists('go'):
                time.sleep(0.01)
            self.chunk('second')
            self.chunk('')
        elif self.path == '/upgrade':
            self.send_response(101)
            self.send_header('Connection', 'upgrade')
            self.send_header('Upgrade', self.headers['upgrade'])
            self.end_headers()
            count = 0
            while piece := self.rfile.read1(65536):
                count += len(piece)
                self.wfile.write(piece)
                self.wfile.flush()
            self.wfile.write(f'and that was all: {count}'.encode())
            self.close_connection = True
        elif self.path == '/nonsense':
            self.wfile.write(b'this is not HTTP\r\n\r\n')
            self.close_connection = True
        elif self.path == '/silence':
            self.close_connection = True
        elif self.path == '/moved':
            self.say('', ('Location', '/elsewhere'), ('Set-Cookie', 'a=1; Path=/; Domain=localhost'),
                     ('Access-Control-Allow-Origin', '*'))
        else:
            body = self.body()
            heard = {'method': self.command, 'path': self.path, 'length': len(body),
                     'sha256': hashlib.sha256(body).hexdigest(),
                     'headers': {name.lower(): value for name, value in self.headers.items()}}
            self.say(json.dumps(heard) if self.command != 'HEAD' else '')

    do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = do_HEAD = do_OPTIONS = anything

ThreadingHTTPServer(('127.0.0.1', 8000), Handler).serve_forever()
"#;

/// Gives back what it hears, to as many as come.
const ECHO: &str = "
import asyncio
async def echo(reader, writer):
    while piece := await reader.read(1000):
        writer.write(piece)
        await writer.drain()
    writer.close()
async def main():
    async with await asyncio.start_server(echo, '127.0.0.1', 8001, backlog=512) as server:
        await server.serve_forever()
asyncio.run(main())
";

/// A daemon on TCP, its operator, and a sandbox `box` with the server; `None` without Python.
fn serving(settings: &[(&str, &str)]) -> Option<(TestDaemon, Caller)> {
    let (daemon, address) = listening(settings);
    if !has(&daemon, "python3") {
        return None;
    }
    start(&daemon);
    let token = std::fs::read_to_string(daemon.home().state_dir().join("token")).unwrap();
    let operator = Caller { address, token: token.trim().to_owned() };
    Some((daemon, operator))
}

fn start(daemon: &TestDaemon) {
    daemon.exec("box", json!({ "argv": ["python3", "-c", SERVER], "wait": "0s" }));
    let waited = daemon.get("/v1/sandboxes/box/ports/8000?wait=60s");
    assert_eq!(waited["listening"], true, "{waited}");
}

const PORT: &str = "/v1/sandboxes/box/ports/8000";

fn headers(answer: &Answer) -> Value {
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["headers"].clone()
}

#[test]
fn a_port_is_reached_through_the_http_door_and_the_token_is_not_passed_on() {
    let Some((daemon, operator)) = serving(&[]) else { return };
    let answer = operator.raw(
        &format!("PUT {PORT}/a%2Fb/../c?x=%20y&z"),
        &["Isle-Namespace: default", "X-Own: kept", "Connection: X-Hop", "X-Hop: gone", "Cookie: a=b"],
        b"some body",
    );
    let heard = answer.json();
    assert_eq!(
        (&heard["method"], &heard["path"]),
        (&json!("PUT"), &json!("/a%2Fb/../c?x=%20y&z")),
        "{heard}"
    );
    assert_eq!(heard["length"], 9, "{heard}");
    let own = headers(&answer);
    assert_eq!(
        (&own["x-own"], &own["cookie"], &own["host"]),
        (&json!("kept"), &json!("a=b"), &json!("localhost:8000"))
    );
    assert_eq!(own["x-forwarded-prefix"], PORT);
    for gone in ["authorization", "x-api-key", "isle-namespace", "x-hop", "isle-door"] {
        assert!(own[gone].is_null(), "{gone}: {own}");
    }
    assert!(!answer.text().contains(&operator.token));
    assert!(answer.header("content-security-policy").unwrap().starts_with("sandbox "));
    // With the key in its other place, `Authorization` is the program's.
    let key = format!("X-API-Key: {}", operator.token);
    let host = format!("Host: {}", operator.address);
    let answer = http::tcp(
        &operator.address,
        &format!("GET {PORT}/"),
        &[&host, &key, "Authorization: Basic eDp5"],
        b"",
    );
    let own = headers(&answer);
    assert!(own["authorization"] == "Basic eDp5" && own["x-api-key"].is_null(), "{own}");
    // All the methods, and an answer without a body.
    for method in ["GET", "POST", "DELETE", "PATCH", "OPTIONS"] {
        assert_eq!(operator.ask(method, &format!("{PORT}/"), None).json()["method"], method);
    }
    let moved = operator.ask("GET", &format!("{PORT}/moved"), None);
    assert_eq!(
        (moved.status, moved.header("location")),
        (302, Some("/v1/sandboxes/box/ports/8000/elsewhere"))
    );
    assert_eq!(moved.header("set-cookie"), Some("a=1; Path=/v1/sandboxes/box/ports/8000/"));
    assert_eq!(moved.header("access-control-allow-origin"), None);
    // A megabyte each way is whole; on the Unix socket it needs no token.
    let large = vec![b'x'; 1 << 20];
    let heard = unix_raw(&daemon.socket(), &format!("POST {PORT}/large"), &[], &large).json();
    assert_eq!(heard["length"], 1 << 20, "{heard}");
    // One caller and one port are one line of the audit, however often it comes.
    let audited = daemon.get("/v1/audit?sandbox=box&limit=500")["rows"].to_string();
    assert_eq!(audited.matches("\"proxy\"").count(), 2, "by token and by user: {audited}");
    assert!(daemon.succeeds(&["net", "box"]).contains("ports through the HTTP door: "));
    let net = daemon.get("/v1/sandboxes/box/net");
    let proxied = &net["proxied"];
    assert!(
        proxied["connections"].as_u64().unwrap() >= 9
            && proxied["received_bytes"].as_u64().unwrap() > 1 << 20,
        "{net}"
    );
}

#[test]
fn nobody_reaches_a_port_without_the_token_of_its_namespace() {
    let Some((daemon, operator)) = serving(&[]) else { return };
    let host = format!("Host: {}", operator.address);
    let line = format!("GET {PORT}/");
    let stranger = http::tcp(&operator.address, &line, &[&host], b"");
    assert_eq!((stranger.status, stranger.code().as_str()), (401, "UNAUTHENTICATED"));
    let bearer = format!("Authorization: Bearer {}", operator.token);
    for (header, other) in [(&host, "Origin: https://evil.example"), (&host, "Origin: null")] {
        let answer = http::tcp(&operator.address, &line, &[header, &bearer, other], b"");
        assert_eq!((answer.status, answer.code().as_str()), (403, "FORBIDDEN"), "{other}");
    }
    let answer = http::tcp(&operator.address, &line, &["Host: evil.example", &bearer], b"");
    assert_eq!((answer.status, answer.code().as_str()), (403, "FORBIDDEN"));
    // A tenant reaches its own sandboxes, which are others than the operator's of the same name.
    let one = tenant(&daemon, &operator.address, "one");
    let answer = one.ask("GET", &format!("{PORT}/"), None);
    assert_eq!((answer.status, answer.code().as_str()), (404, "SANDBOX_NOT_FOUND"));
    let serve = json!({ "argv": ["python3", "-c", SERVER], "wait": "0s" });
    assert_eq!(one.ask("POST", "/v1/sandboxes/box/exec", Some(&serve)).status, 200);
    assert_eq!(one.get("/v1/sandboxes/box/ports/8000?wait=60s")["listening"], true);
    let answer = one.ask("GET", &format!("{PORT}/mine"), None);
    assert_eq!(answer.json()["path"], "/mine", "{}", answer.text());
    assert!(!answer.text().contains(&one.token));
}

#[test]
fn a_port_where_nobody_answers_is_said_to_be_so() {
    let Some((daemon, operator)) = serving(&[]) else { return };
    let get = |path: &str| operator.ask("GET", path, None);
    let nobody = get("/v1/sandboxes/box/ports/8001/");
    assert_eq!((nobody.status, nobody.code().as_str()), (502, "NOTHING_LISTENS"));
    let error = daemon.refused("GET", "/v1/sandboxes/box/ports/8001/x", None);
    assert!(error["message"].as_str().unwrap().contains("nothing listens on port 8001 of box"), "{error}");
    for path in ["nonsense", "silence"] {
        let answer = get(&format!("{PORT}/{path}"));
        assert_eq!((answer.status, answer.code().as_str()), (502, "NOTHING_LISTENS"), "{path}");
    }
    for port in ["0", "65536", "x", "08000"] {
        let answer = get(&format!("/v1/sandboxes/box/ports/{port}/"));
        assert_eq!((answer.status, answer.code().as_str()), (400, "INVALID_ARGUMENT"), "{port}");
    }
    let answer = get("/v1/sandboxes/nobody/ports/8000/");
    assert_eq!((answer.status, answer.code().as_str()), (404, "SANDBOX_NOT_FOUND"));
    assert!(!daemon.names().contains(&"nobody".to_owned()));
    if daemon.offers("process") {
        daemon
            .post("/v1/sandboxes", json!({ "sandbox": "plain", "tier": "process", "allow_downgrade": true }));
        // What listens on this host is not what listens in the sandbox.
        let port = operator.address.rsplit(':').next().unwrap();
        for (method, path) in [
            ("GET", format!("/v1/sandboxes/plain/ports/{port}/healthz")),
            ("GET", format!("/v1/sandboxes/plain/ports/{port}")),
        ] {
            let answer = operator.ask(method, &path, None);
            assert_eq!((answer.status, answer.code().as_str()), (503, "BACKEND_UNAVAILABLE"), "{path}");
        }
        let error =
            daemon.refused("POST", "/v1/sandboxes/plain/ports", Some(&json!({ "port": 1, "host_port": 0 })));
        assert_eq!(error["code"], "BACKEND_UNAVAILABLE", "{error}");
    }
    assert_eq!(
        get(PORT).json()["listening"],
        true,
        "without the slash it is asked whether something listens"
    );
}

/// Sends a request over TCP and leaves the connection open.
fn open(operator: &Caller, line: &str, more: &str) -> BufReader<TcpStream> {
    let mut stream = TcpStream::connect(&operator.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(90))).unwrap();
    let Caller { address, token } = operator;
    let head = format!("{line} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n{more}\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    BufReader::new(stream)
}

fn status(reader: &mut impl BufRead) -> String {
    let mut first = String::new();
    reader.read_line(&mut first).unwrap();
    let mut line = String::new();
    while reader.read_line(&mut line).unwrap() > 2 {
        line.clear();
    }
    first.trim_end().to_owned()
}

#[test]
fn answers_come_as_they_are_made_and_upgrades_carry_anything_both_ways() {
    let Some((mut daemon, operator)) = serving(&[]) else { return };
    // The first half is there while the program still waits for us.
    let mut slow = open(&operator, &format!("GET {PORT}/slow"), "");
    assert_eq!(status(&mut slow), "HTTP/1.1 200 OK");
    let mut first = [0; 10];
    slow.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"5\r\nfirst\r\n");
    daemon.shell("box", "touch go");
    let mut rest = [0; 16];
    slow.read_exact(&mut rest).unwrap();
    assert_eq!(&rest, b"6\r\nsecond\r\n0\r\n\r\n");
    // Upgraded, it is a pipe; when one side has ended the other still speaks.
    let mut pipe = open(
        &operator,
        &format!("GET {PORT}/upgrade"),
        "Connection: keep-alive, Upgrade\r\nUpgrade: anything/1\r\n",
    );
    assert!(status(&mut pipe).starts_with("HTTP/1.1 101 "));
    let data: Vec<u8> = (0..3_000_000_u32).map(|number| number.to_le_bytes()[0]).collect();
    let mut writer = pipe.get_ref().try_clone().unwrap();
    let mut back = Vec::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            writer.write_all(&data).unwrap();
            writer.shutdown(Shutdown::Write).unwrap();
        });
        pipe.read_to_end(&mut back).unwrap();
    });
    let (echo, word) = back.split_at(data.len());
    assert!(echo == data, "what came back is not what was sent");
    assert_eq!(String::from_utf8_lossy(word), format!("and that was all: {}", data.len()));
    // A caller who leaves ends its connection inside, and none is counted as open.
    daemon.shell("box", "rm go");
    let mut gone = open(&operator, &format!("GET {PORT}/slow"), "");
    assert_eq!(status(&mut gone), "HTTP/1.1 200 OK");
    until("only that one is open", || daemon.get("/v1/sandboxes/box/net")["proxied"]["open"] == 1);
    drop(gone);
    until("nothing is open", || daemon.get("/v1/sandboxes/box/net")["proxied"]["open"] == 0);
    // A daemon that goes down does not wait for answers that never end.
    let mut held = open(&operator, &format!("GET {PORT}/slow"), "");
    assert_eq!(status(&mut held), "HTTP/1.1 200 OK");
    assert!(daemon.terminate().success());
    daemon.launch();
}

#[test]
fn ports_on_the_host_are_capped_counted_and_closed_halfway() {
    let Some((daemon, _operator)) = serving(&[]) else { return };
    let shown = daemon.post("/v1/sandboxes/box/ports", json!({ "port": 8000, "host_port": 0 }));
    let host_port = u16::try_from(shown["host_port"].as_u64().unwrap()).unwrap();
    let connect = || TcpStream::connect(("127.0.0.1", host_port)).unwrap();
    let counts = || daemon.get("/v1/sandboxes/box/net")["ports"][0].clone();
    // Half of it closed, the other half still speaks.
    let mut half = connect();
    half.write_all(b"GET /upgrade HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nhello").unwrap();
    half.shutdown(Shutdown::Write).unwrap();
    let mut said = String::new();
    half.read_to_string(&mut said).unwrap();
    assert!(said.starts_with("HTTP/1.1 101 ") && said.ends_with("helloand that was all: 5"), "{said}");
    until("it is over", || counts()["open"] == 0);
    let (sent, received) =
        (counts()["sent_bytes"].as_u64().unwrap(), counts()["received_bytes"].as_u64().unwrap());
    assert!(sent >= said.len() as u64 && received > 40, "{}", counts());
    // One more than may be open is closed at once, and the others go on.
    daemon.exec("box", json!({ "argv": ["python3", "-c", ECHO], "wait": "0s" }));
    assert_eq!(daemon.get("/v1/sandboxes/box/ports/8001?wait=60s")["listening"], true);
    let shown = daemon.post("/v1/sandboxes/box/ports", json!({ "port": 8001, "host_port": 0 }));
    let host_port = u16::try_from(shown["host_port"].as_u64().unwrap()).unwrap();
    let connect = || TcpStream::connect(("127.0.0.1", host_port)).unwrap();
    let counts = || daemon.get("/v1/sandboxes/box/net")["ports"][1].clone();
    let mut held: Vec<TcpStream> = (0..256).map(|_| connect()).collect();
    until("all of them are open", || counts()["open"] == 256);
    let mut one_more = connect();
    one_more.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    assert!(matches!(one_more.read(&mut [0; 1]), Ok(0) | Err(_)));
    until("it is counted", || counts()["refused"].as_u64() >= Some(1));
    let last = held.last_mut().unwrap();
    last.write_all(b"still here").unwrap();
    let mut said = [0; 10];
    last.read_exact(&mut said).unwrap();
    assert_eq!(&said, b"still here");
    drop(held);
    until("places come back", || counts()["open"] == 0);
    let stats = daemon.get("/v1/stats");
    let total = |name: &str, labels: &[(&str, &str)]| value(&stats, name, labels);
    assert!(total("isle_port_connections_total", &[("door", "exposed")]) >= 257.0, "{stats}");
    assert!(total("isle_port_refused_total", &[("door", "exposed")]) >= 1.0, "{stats}");
    assert!(total("isle_port_bytes_total", &[("door", "exposed"), ("direction", "sent")]) > 30.0, "{stats}");
}
