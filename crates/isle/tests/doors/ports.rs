//! Ports of a sandbox, seen from outside: at the listener for ports, with a ticket, and on the host's
//! loopback. The server inside is this test's own and says what it hears.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::contexts::needs;
use crate::harness::http::{self, Answer};
use crate::harness::{Missing, TestDaemon, per_connection, require, until};
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
fn serving(settings: &[(&str, &str)]) -> Result<(TestDaemon, Caller), Missing> {
    let (daemon, address) = listening(settings);
    needs(&daemon, "python3")?;
    start(&daemon);
    let token = std::fs::read_to_string(daemon.home().state_dir().join("token")).unwrap();
    let operator = Caller { address, token: token.trim().to_owned() };
    Ok((daemon, operator))
}

fn start(daemon: &TestDaemon) {
    daemon.exec("box", json!({ "argv": ["python3", "-c", SERVER], "wait": "0s" }));
    let waited = daemon.get("/v1/sandboxes/box/ports/8000?wait=60s");
    assert_eq!(waited["listening"], true, "{waited}");
}

/// A port of a sandbox at the listener for ports, and the ticket to it.
struct Port {
    /// Where the listener is.
    address: String,
    /// The name of the port, as a browser has it in its address.
    host: String,
    ticket: String,
}

impl Port {
    fn of(answer: &Value) -> Self {
        let text = |name: &str| answer[name].as_str().unwrap().to_owned();
        let host = text("base_url").trim_start_matches("http://").trim_end_matches('/').to_owned();
        assert_eq!(text("url"), format!("{}?isle_ticket={}", text("base_url"), text("ticket")));
        Self { address: text("address"), host, ticket: text("ticket") }
    }

    fn mint(daemon: &TestDaemon, port: u16) -> Self {
        Self::of(&daemon.post(&format!("/v1/sandboxes/box/ports/{port}/url"), json!({})))
    }

    /// With exactly these headers.
    fn raw(&self, line: &str, headers: &[&str], body: &[u8]) -> Answer {
        http::tcp(&self.address, line, headers, body)
    }

    /// As a program does.
    fn ask(&self, line: &str, headers: &[&str], body: &[u8]) -> Answer {
        let own = [format!("Host: {}", self.host), format!("Isle-Ticket: {}", self.ticket)];
        let headers: Vec<&str> = own.iter().map(String::as_str).chain(headers.iter().copied()).collect();
        self.raw(line, &headers, body)
    }

    fn refused(&self, line: &str, headers: &[&str]) -> (u16, String) {
        let answer = self.raw(line, headers, b"");
        assert!(!answer.json()["error"]["next_steps"].as_array().unwrap().is_empty(), "{}", answer.text());
        (answer.status, answer.code())
    }
}

fn headers(answer: &Answer) -> Value {
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["headers"].clone()
}

fn unauthenticated() -> (u16, String) {
    (401, "UNAUTHENTICATED".to_owned())
}

fn forbidden() -> (u16, String) {
    (403, "FORBIDDEN".to_owned())
}

per_connection!(a_port_is_reached_with_its_ticket_and_the_program_sees_no_credential);

fn a_port_is_reached_with_its_ticket_and_the_program_sees_no_credential() {
    let (daemon, operator) = require!(serving(&[]));
    let port = Port::mint(&daemon, 8000);
    let tenant = tenant(&daemon, &operator.address, "one");
    let bearer = format!("Authorization: Bearer {}", operator.token);
    let key = format!("X-API-Key: {}", tenant.token);
    let cookie = format!("Cookie: a=b; isle_ticket={}", port.ticket);
    let answer = port.ask(
        "PUT /a%2Fb/../c?x=%20y&z",
        &[
            "X-Own: kept",
            "Connection: X-Hop",
            "X-Hop: gone",
            "X-Forwarded-Host: evil.example",
            "Forwarded: host=evil.example",
            &cookie,
            &bearer,
            &key,
        ],
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
        (&own["x-own"], &own["cookie"], &own["host"], &own["x-forwarded-host"]),
        (&json!("kept"), &json!("a=b"), &json!("localhost:8000"), &json!(port.host))
    );
    for gone in ["authorization", "x-api-key", "isle-ticket", "x-hop", "forwarded", "x-forwarded-prefix"] {
        assert!(own[gone].is_null(), "{gone}: {own}");
    }
    for secret in [&operator.token, &tenant.token, &port.ticket] {
        assert!(!answer.text().contains(secret.as_str()), "{own}");
    }
    // A token of Isle in the address is refused before the program could see it.
    let told = port.ask(&format!("GET /?token={}", operator.token), &[], b"");
    assert_eq!((told.status, told.code().as_str()), (400, "INVALID_ARGUMENT"));
    // What is the program's own stays so.
    let own = headers(&port.ask("GET /", &["Authorization: Bearer of-the-program", "X-API-Key: k"], b""));
    assert!(own["authorization"] == "Bearer of-the-program" && own["x-api-key"] == "k", "{own}");
    for method in ["GET", "POST", "DELETE", "PATCH", "OPTIONS"] {
        assert_eq!(port.ask(&format!("{method} /"), &[], b"").json()["method"], method);
    }
    let moved = port.ask("GET /moved", &[], b"");
    assert_eq!((moved.status, moved.header("location")), (302, Some("/elsewhere")));
    assert_eq!(moved.header("set-cookie"), Some("a=1; Path=/"));
    assert_eq!(moved.header("access-control-allow-origin"), None);
    // By the name of the listener it works too, and no cookie is set where all ports would share it.
    let named = [format!("Host: {}", port.address), format!("Isle-Ticket: {}", port.ticket)];
    let moved = port.raw("GET /moved", &[&named[0], &named[1]], b"");
    assert_eq!((moved.status, moved.header("set-cookie")), (302, None));
    // A megabyte each way is whole.
    let heard = port.ask("POST /large", &[], &vec![b'x'; 1 << 20]).json();
    assert_eq!(heard["length"], 1 << 20, "{heard}");
    // One caller and one port are one line of the audit, however often it comes; no ticket is on record.
    let audited = daemon.get("/v1/audit?sandbox=box&limit=500")["rows"].to_string();
    assert_eq!(audited.matches("\"proxy\"").count(), 1, "{audited}");
    assert!(audited.contains("port_url") && !audited.contains(&port.ticket), "{audited}");
    assert!(
        !daemon.log().contains(&port.ticket)
            && !daemon.get("/v1/events/history").to_string().contains(&port.ticket)
    );
    assert!(daemon.succeeds(&["net", "box"]).contains("HTTP port proxy: "));
    let proxied = daemon.get("/v1/sandboxes/box/net")["proxied"].clone();
    assert!(
        proxied["connections"].as_u64().unwrap() >= 9
            && proxied["received_bytes"].as_u64().unwrap() > 1 << 20,
        "{proxied}"
    );
    // Below the API there are no ports any more, and the answer says where they are.
    let gone = operator.ask("GET", "/v1/sandboxes/box/ports/8000/", None);
    assert_eq!((gone.status, gone.code().as_str()), (410, "OPERATION_NOT_FOUND"));
    assert!(gone.text().contains("isle url"), "{}", gone.text());
    assert_eq!(operator.get("/v1/sandboxes/box/ports/8000")["listening"], true);
}

per_connection!(a_browser_trades_the_ticket_for_a_cookie_of_that_host_alone);

fn a_browser_trades_the_ticket_for_a_cookie_of_that_host_alone() {
    let (daemon, _) = require!(serving(&[]));
    let port = Port::mint(&daemon, 8000);
    let host = format!("Host: {}", port.host);
    let open = format!("GET //evil.example/page?isle_ticket={}&x=%20", port.ticket);
    let traded = port.raw(&open, &[&host, "Sec-Fetch-Site: none"], b"");
    assert_eq!((traded.status, traded.header("location")), (303, Some("/evil.example/page?x=%20")));
    assert_eq!(traded.header("referrer-policy"), Some("no-referrer"));
    let cookie = traded.header("set-cookie").unwrap().to_owned();
    assert!(cookie.contains("; HttpOnly; SameSite=Strict") && !cookie.contains("Domain"), "{cookie}");
    // From a link on another page the cookie would not be sent along a redirect, so a page leads on.
    let linked = port.raw(&open, &[&host, "Sec-Fetch-Site: cross-site"], b"");
    assert_eq!((linked.status, linked.header("content-type")), (200, Some("text/html; charset=utf-8")));
    assert!(
        linked.text().contains("content=\"0;url=/evil.example/page?x=%20\"")
            && !linked.text().contains(&port.ticket)
    );
    let cookie = format!("Cookie: {}", cookie.split(';').next().unwrap());
    let own = format!("Origin: http://{}", port.host);
    let heard = headers(&port.raw("POST /", &[&host, &cookie, &own, "Sec-Fetch-Site: same-origin"], b""));
    assert_eq!(
        (&heard["cookie"], &heard["origin"]),
        (&Value::Null, &json!("http://localhost:8000")),
        "{heard}"
    );
    // Elsewhere, from elsewhere and together with another one it is worth nothing.
    let listener = format!("Host: {}", port.address);
    assert_eq!(port.refused("GET /", &[&listener, &cookie]), unauthenticated());
    let label = port.host.split_once('-').unwrap().1;
    let other = format!("Host: 8001-{label}");
    assert_eq!(port.refused("GET /", &[&other, &cookie]), unauthenticated());
    let ticket = format!("Isle-Ticket: {}", port.ticket);
    assert_eq!(port.refused("GET /", &[&other, &ticket]), unauthenticated());
    for site in ["cross-site", "same-site", "nonsense"] {
        let site = format!("Sec-Fetch-Site: {site}");
        assert_eq!(port.refused("GET /", &[&host, &cookie, &site]), forbidden(), "{site}");
    }
    for origin in ["null", "http://evil.example", &format!("http://8001-{label}"), "http://127.0.0.1"] {
        let origin = format!("Origin: {origin}");
        assert_eq!(port.refused("GET /", &[&host, &cookie, &origin]), forbidden(), "{origin}");
        assert_eq!(port.refused("GET /", &[&host, &ticket, &origin]), forbidden(), "{origin}");
    }
    let twice = format!("{cookie}; isle_ticket=x");
    assert_eq!(port.refused("GET /", &[&host, &twice]), unauthenticated());
    assert_eq!(port.refused(&format!("POST /?isle_ticket={}", port.ticket), &[&host]), unauthenticated());
    for name in ["evil.example", &format!("{}.evil", port.host), "localhost", "127.0.0.1", ""] {
        assert_eq!(port.refused("GET /", &[&format!("Host: {name}"), &ticket]), forbidden(), "{name}");
    }
    assert_eq!(port.ask("GET /", &[], b"").status, 200);
}

per_connection!(a_ticket_ends_with_its_time_its_sandbox_and_its_token);

fn a_ticket_ends_with_its_time_its_sandbox_and_its_token() {
    let (daemon, operator) = require!(serving(&[]));
    let host = |port: &Port| format!("Host: {}", port.host);
    let port = Port::mint(&daemon, 8000);
    assert_eq!(port.refused("GET /", &[&host(&port)]), unauthenticated());
    let almost = format!("Isle-Ticket: {}", &port.ticket[..42]);
    assert_eq!(port.refused("GET /", &[&host(&port), &almost]), unauthenticated());
    // What opens the API opens no port.
    let bearer = format!("Authorization: Bearer {}", operator.token);
    let token = format!("Isle-Ticket: {}", operator.token);
    assert_eq!(port.refused("GET /", &[&host(&port), &bearer]), unauthenticated());
    assert_eq!(port.refused("GET /", &[&host(&port), &token]), unauthenticated());
    // And a ticket opens nothing of the API.
    let as_token = Caller { address: operator.address.clone(), token: port.ticket.clone() };
    assert_eq!(as_token.ask("GET", "/v1/sandboxes", None).status, 401);
    assert_eq!(port.ask("GET /v1/sandboxes", &[], b"").json()["path"], "/v1/sandboxes");
    let wish = json!({ "lifetime": "1s" });
    let short = Port::of(&daemon.post("/v1/sandboxes/box/ports/8000/url", wish));
    until("it has expired", || short.ask("GET /", &[], b"").status == 401);
    for lifetime in ["0s", "2d"] {
        let wish = json!({ "lifetime": lifetime });
        assert_eq!(
            daemon.refused("POST", "/v1/sandboxes/box/ports/8000/url", Some(&wish))["code"],
            "INVALID_ARGUMENT"
        );
    }
    // A tenant's ends with its token, and what is open then is cut.
    let id = |daemon: &TestDaemon| {
        let tokens = daemon.get("/v1/tokens?namespace=one")["tokens"].clone();
        tokens[0]["id"].as_str().unwrap().to_owned()
    };
    let one = tenant(&daemon, &operator.address, "one");
    assert_eq!(
        one.ask("POST", "/v1/sandboxes/box/ports/8000/url", Some(&json!({}))).code(),
        "SANDBOX_NOT_FOUND"
    );
    let serve = json!({ "argv": ["python3", "-c", SERVER], "wait": "0s" });
    assert_eq!(one.ask("POST", "/v1/sandboxes/box/exec", Some(&serve)).status, 200);
    assert_eq!(one.get("/v1/sandboxes/box/ports/8000?wait=60s")["listening"], true);
    let theirs = Port::of(&one.ask("POST", "/v1/sandboxes/box/ports/8000/url", Some(&json!({}))).json());
    assert_ne!(theirs.host, port.host, "one name, two namespaces, two origins");
    assert_eq!(theirs.ask("GET /mine", &[], b"").json()["path"], "/mine");
    let ours = format!("Isle-Ticket: {}", port.ticket);
    assert_eq!(port.refused("GET /", &[&host(&theirs), &ours]), unauthenticated());
    let mut slow = open(&theirs, "GET /slow", "");
    assert_eq!(status(&mut slow), "HTTP/1.1 200 OK");
    daemon.succeeds(&["token", "revoke", &id(&daemon)]);
    assert_eq!(theirs.ask("GET /", &[], b"").status, 401);
    let mut rest = Vec::new();
    let cut = slow.read_to_end(&mut rest).is_err() || !rest.ends_with(b"0\r\n\r\n");
    assert!(cut, "{}", String::from_utf8_lossy(&rest));
    assert_eq!(port.ask("GET /", &[], b"").status, 200, "others are none the worse");
    // A sandbox that is made again is another one.
    daemon.post("/v1/sandboxes/box/reset", json!({}));
    assert_eq!(port.ask("GET /", &[], b"").status, 401);
    start(&daemon);
    assert_eq!(port.ask("GET /", &[], b"").status, 401);
    let again = Port::mint(&daemon, 8000);
    assert_ne!(again.host, port.host);
    assert_eq!(again.ask("GET /", &[], b"").status, 200);
    let printed = daemon.succeeds(&["url", "box", "8000", "--for", "10m"]);
    assert!(printed.starts_with(&format!("http://{}/?isle_ticket=", again.host)), "{printed}");
}

per_connection!(ports_are_not_served_where_the_operator_says_so);

fn ports_are_not_served_where_the_operator_says_so() {
    let (daemon, operator) = require!(serving(&[("ISLE_PORTS_LISTEN", "off")]));
    let error = daemon.refused("POST", "/v1/sandboxes/box/ports/8000/url", Some(&json!({})));
    assert_eq!(error["code"], "BACKEND_UNAVAILABLE", "{error}");
    assert!(error.to_string().contains("ports_listen"), "{error}");
    assert_eq!(operator.get("/v1/sandboxes/box/ports/8000")["listening"], true);
}

per_connection!(a_port_where_nobody_answers_is_said_to_be_so);

fn a_port_where_nobody_answers_is_said_to_be_so() {
    let (daemon, operator) = require!(serving(&[]));
    let nobody = Port::mint(&daemon, 8001).ask("GET /x", &[], b"");
    assert_eq!((nobody.status, nobody.code().as_str()), (502, "NOTHING_LISTENS"));
    assert!(nobody.text().contains("nothing listens on port 8001 of box"), "{}", nobody.text());
    let port = Port::mint(&daemon, 8000);
    for path in ["nonsense", "silence"] {
        let answer = port.ask(&format!("GET /{path}"), &[], b"");
        assert_eq!((answer.status, answer.code().as_str()), (502, "NOTHING_LISTENS"), "{path}");
    }
    for wrong in ["0", "65536", "x"] {
        let path = format!("/v1/sandboxes/box/ports/{wrong}/url");
        assert_eq!(daemon.refused("POST", &path, Some(&json!({})))["code"], "INVALID_ARGUMENT", "{wrong}");
    }
    let error = daemon.refused("POST", "/v1/sandboxes/nobody/ports/8000/url", Some(&json!({})));
    assert_eq!(error["code"], "SANDBOX_NOT_FOUND");
    assert!(!daemon.names().contains(&"nobody".to_owned()));
    if daemon.offers("process") {
        daemon
            .post("/v1/sandboxes", json!({ "sandbox": "plain", "tier": "process", "allow_downgrade": true }));
        // What listens on this host is not what listens in the sandbox.
        let port = operator.address.rsplit(':').next().unwrap();
        let answer = operator.ask("GET", &format!("/v1/sandboxes/plain/ports/{port}"), None);
        assert_eq!((answer.status, answer.code().as_str()), (503, "BACKEND_UNAVAILABLE"));
        for (path, body) in [
            (format!("/v1/sandboxes/plain/ports/{port}/url"), json!({})),
            ("/v1/sandboxes/plain/ports".to_owned(), json!({ "port": 1, "host_port": 0 })),
        ] {
            let error = daemon.refused("POST", &path, Some(&body));
            assert_eq!(error["code"], "BACKEND_UNAVAILABLE", "{error}");
        }
    }
}

/// Sends a request over TCP and leaves the connection open.
fn open(port: &Port, line: &str, more: &str) -> BufReader<TcpStream> {
    let mut stream = TcpStream::connect(&port.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(90))).unwrap();
    let Port { host, ticket, .. } = port;
    let head = format!("{line} HTTP/1.1\r\nHost: {host}\r\nIsle-Ticket: {ticket}\r\n{more}\r\n");
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

per_connection!(answers_come_as_they_are_made_and_upgrades_carry_anything_both_ways);

fn answers_come_as_they_are_made_and_upgrades_carry_anything_both_ways() {
    let (mut daemon, _) = require!(serving(&[]));
    let port = Port::mint(&daemon, 8000);
    // The first half is there while the program still waits for us.
    let mut slow = open(&port, "GET /slow", "");
    assert_eq!(status(&mut slow), "HTTP/1.1 200 OK");
    let mut first = [0; 10];
    slow.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"5\r\nfirst\r\n");
    daemon.shell("box", "touch go");
    let mut rest = [0; 16];
    slow.read_exact(&mut rest).unwrap();
    assert_eq!(&rest, b"6\r\nsecond\r\n0\r\n\r\n");
    // Upgraded, it is a pipe; when one side has ended the other still speaks.
    let upgrade = "Connection: keep-alive, Upgrade\r\nUpgrade: anything/1\r\n";
    let mut pipe = open(&port, "GET /upgrade", upgrade);
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
    // An upgrade from a page of another origin, or without the ticket, is none.
    let foreign = format!("{upgrade}Origin: http://evil.example\r\n");
    assert!(status(&mut open(&port, "GET /upgrade", &foreign)).starts_with("HTTP/1.1 403 "));
    let nobody = Port { ticket: "x".repeat(43), address: port.address.clone(), host: port.host.clone() };
    assert!(status(&mut open(&nobody, "GET /upgrade", upgrade)).starts_with("HTTP/1.1 401 "));
    // Where the program does not agree, what follows on the connection is not read as a request.
    let mut refused = open(&port, "GET /plain", &format!("{upgrade}\r\nGET /hidden HTTP/1.1\r\nHost: x\r\n"));
    let mut said = String::new();
    refused.read_to_string(&mut said).unwrap();
    assert!(said.starts_with("HTTP/1.1 200 ") && said.contains("connection: close"), "{said}");
    assert_eq!(said.matches("HTTP/1.1 ").count(), 1, "{said}");
    // A caller who leaves ends its connection inside, and none is counted as open.
    daemon.shell("box", "rm go");
    let mut gone = open(&port, "GET /slow", "");
    assert_eq!(status(&mut gone), "HTTP/1.1 200 OK");
    until("only that one is open", || daemon.get("/v1/sandboxes/box/net")["proxied"]["open"] == 1);
    drop(gone);
    until("nothing is open", || daemon.get("/v1/sandboxes/box/net")["proxied"]["open"] == 0);
    // A daemon that goes down does not wait for answers that never end.
    let mut held = open(&port, "GET /slow", "");
    assert_eq!(status(&mut held), "HTTP/1.1 200 OK");
    assert!(daemon.terminate().success());
    daemon.launch();
}

per_connection!(ports_on_the_host_are_capped_counted_and_closed_halfway);

fn ports_on_the_host_are_capped_counted_and_closed_halfway() {
    let (daemon, _operator) = require!(serving(&[]));
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
