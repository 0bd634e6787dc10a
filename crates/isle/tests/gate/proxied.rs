//! Tier `process`, where the gate is a proxy: what is granted is reached by real clients through it, by any
//! of its languages, and nothing else is reached by any call. Every attack is also made without a sandbox,
//! where it has to succeed.

use serde_json::{Value, json};

use crate::clients::{HTTP, sh};
use crate::harness::{TestDaemon, finish, processes_with, until};
use crate::servers::{NAMES, Server, Serving, allow, has, hex, make_process, plain_python, python, start};

/// A daemon with a sandbox of that tier, if there can be one.
fn ground() -> Option<TestDaemon> {
    let daemon = start();
    (make_process(&daemon, "plain") && has(&daemon, "python3") && has(&daemon, "curl")).then_some(daemon)
}

/// What has to be granted to reach a server of this machine.
fn reaching(port: u16) -> [String; 2] {
    [format!("web.test:{port}"), format!("127.0.0.1:{port}")]
}

fn stdout(daemon: &TestDaemon, command: &str) -> String {
    let run = daemon.exec("plain", json!({ "command": command, "timeout": "120s" }));
    assert_eq!(run["state"], "completed", "{command}: {run}");
    run["stdout"].as_str().unwrap().to_owned()
}

/// A web server with one page, and what it was asked for.
fn pages() -> (tempfile::TempDir, Serving, u16) {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("page"), "the page\n").unwrap();
    let (server, port) = Serving::python(directory.path(), HTTP);
    (directory, server, port)
}

#[test]
fn curl_reaches_what_is_granted_by_every_language_of_the_proxy_and_reads_why_it_is_denied() {
    let Some(daemon) = ground() else { return };
    let (_directory, _server, port) = pages();
    let curl = |host: &str, flags: &str| format!("curl -sS -m 30 {flags} http://{host}:{port}/page");
    // Nothing is granted: there is neither a proxy nor a socket.
    let run = daemon.exec("plain", json!({ "command": curl("web.test", "") }));
    assert_eq!(run["state"], "failed", "{run}");
    assert_eq!(stdout(&daemon, "echo \"${HTTPS_PROXY-none} ${http_proxy-none}\""), "none none\n");

    allow(&daemon, "plain", &reaching(port));
    let proxy = "http://127.0.0.1:3128";
    assert_eq!(
        stdout(&daemon, "echo $HTTP_PROXY $https_proxy $ALL_PROXY $NODE_USE_ENV_PROXY"),
        format!("{proxy} {proxy} {proxy} 1\n")
    );
    let socks = |kind: &str| format!("-x {kind}://127.0.0.1:3128");
    for flags in
        ["", "--proxytunnel", &socks("socks5h"), "-x http://[::1]:3128", "-x http://[::ffff:127.0.0.1]:3128"]
    {
        assert_eq!(stdout(&daemon, &curl("web.test", flags)), "the page\n", "{flags}");
        assert_eq!(stdout(&daemon, &curl("WEB.test.", flags)), "the page\n", "{flags}");
    }
    // An address that was granted is reached as one, too.
    assert_eq!(stdout(&daemon, &curl("127.0.0.1", &socks("socks5h"))), "the page\n");

    // A name that is not granted: readable over HTTP, by number over SOCKS, and in the result.
    let denied = daemon.exec("plain", json!({ "command": curl("other.test", "-w %{http_code}") }));
    let text = denied["stdout"].as_str().unwrap();
    assert!(text.ends_with("403") && text.contains("reason: not_granted"), "{denied}");
    let violations = denied["violations"].to_string();
    assert!(violations.contains("other.test") && violations.contains("isle allow plain"), "{denied}");
    let denied = daemon.exec("plain", json!({ "command": curl("other.test", "--proxytunnel -i") }));
    assert!(denied["stdout"].as_str().unwrap().contains("X-Isle-Denied: not_granted"), "{denied}");
    let denied = daemon.exec("plain", json!({ "command": curl("other.test", &socks("socks5h")) }));
    assert_eq!(denied["exit_code"], 97, "{denied}");
    assert!(denied["stderr"].as_str().unwrap().contains("(2)"), "{denied}");
    // Nobody there: a word of the proxy's own.
    let nobody = crate::servers::free_port();
    allow(&daemon, "plain", &reaching(nobody));
    let gone = |flags: &str| {
        let command = format!("curl -sS -m 30 {flags} http://web.test:{nobody}/");
        daemon.exec("plain", json!({ "command": command }))
    };
    assert!(gone("-i").to_string().contains("502 Bad Gateway"));
    assert!(gone("--proxytunnel").to_string().contains("502"));
    assert!(gone(&socks("socks5h"))["stderr"].as_str().unwrap().contains("(5)"));

    // It is written down as everywhere, and taking it back is felt at once.
    let net = daemon.get("/v1/sandboxes/plain/net");
    assert!(net.to_string().contains(&format!("web.test:{port}")), "{net}");
    daemon.succeeds(&["revoke", "plain", &format!("web.test:{port}")]);
    let run = daemon.exec("plain", json!({ "command": curl("web.test", "") }));
    assert!(run["stdout"].as_str().unwrap().contains("reason: "), "{run}");
}

#[test]
fn bulk_data_passes_the_proxy_whole_both_ways_and_is_counted() {
    let Some(daemon) = ground() else { return };
    let echo = Server::echo();
    allow(&daemon, "plain", &reaching(echo.port));
    // Far more than any buffer has, and no two portions alike.
    let script = format!(
        "import hashlib, json, socket, threading\n\
         one = socket.create_connection(('127.0.0.1', 3128), 60)\n\
         one.sendall(b'CONNECT web.test:{} HTTP/1.1\\r\\n\\r\\n')\n\
         answer = b''\n\
         while not answer.endswith(b'\\r\\n\\r\\n'): answer += one.recv(1)\n\
         sent, heard = hashlib.sha256(), hashlib.sha256()\n\
         def send():\n\
         \u{20} for number in range(40):\n\
         \u{20}  piece = hashlib.sha256(b'%d' % number).digest() * 32768\n\
         \u{20}  one.sendall(piece); sent.update(piece)\n\
         \u{20} one.shutdown(socket.SHUT_WR)\n\
         thread = threading.Thread(target=send); thread.start()\n\
         while piece := one.recv(1 << 20): heard.update(piece)\n\
         thread.join()\n\
         print(json.dumps(sent.hexdigest() == heard.hexdigest()))",
        echo.port
    );
    assert_eq!(python(&daemon, "plain", &script, &[]), true);
    let size = 40 * 32 * 32768;
    until("it was counted", || {
        let grants = daemon.get("/v1/sandboxes/plain/grants");
        let counted = |grant: &Value| grant["sent_bytes"] == size && grant["received_bytes"] == size;
        grants["grants"].as_array().unwrap().iter().any(counted)
    });
}

#[test]
fn package_clients_and_libraries_work_through_the_proxy_as_they_are() {
    let Some(daemon) = ground() else { return };
    let (directory, _server, port) = pages();
    sh(
        directory.path(),
        "git init -q source; cd source; echo granted > file; git add file\n\
         git -c user.name=a -c user.email=a@b.test commit -qm first; cd ..\n\
         git clone -q --bare source repo.git; git -C repo.git update-server-info",
    );
    allow(&daemon, "plain", &reaching(port));
    let clone = format!("git clone -q http://web.test:{port}/repo.git && cat repo/file");
    assert_eq!(stdout(&daemon, &clone), "granted\n");
    let url = format!("http://web.test:{port}/page");
    let urllib = format!(
        "import urllib.request; print(urllib.request.urlopen('{url}', timeout=60).read().decode(), end='')"
    );
    let client = format!(
        "import http.client\n\
         connection = http.client.HTTPConnection('127.0.0.1', 3128, timeout=60)\n\
         connection.set_tunnel('web.test', {port}); connection.request('GET', '/page')\n\
         print(connection.getresponse().read().decode(), end='')"
    );
    let requests = format!("import requests; print(requests.get('{url}', timeout=60).text, end='')");
    let aiohttp = format!(
        "import aiohttp, asyncio\n\
         async def main():\n\
         \u{20} async with aiohttp.ClientSession(trust_env=True) as session:\n\
         \u{20}\u{20} async with session.get('{url}') as answer: print(await answer.text(), end='')\n\
         asyncio.run(main())"
    );
    for (module, script) in
        [("urllib", urllib), ("http", client), ("requests", requests), ("aiohttp", aiohttp)]
    {
        let there = json!({ "argv": ["/usr/bin/python3", "-c", format!("import {module}")] });
        if daemon.exec("plain", there)["exit_code"] != 0 {
            println!("skipped: this host has no Python with {module} where a sandbox could see it");
            continue;
        }
        let run =
            daemon.exec("plain", json!({ "argv": ["/usr/bin/python3", "-c", script], "timeout": "120s" }));
        assert_eq!(run["stdout"], "the page\n", "{module}: {run}");
    }
    if has(&daemon, "node") {
        // By hand: only later versions heed the variables by themselves.
        let ask = format!(
            "require('http').get({{ host: '127.0.0.1', port: 3128, path: '{url}', headers: {{ Host: 'web.test:{port}' }} }}, answer => answer.pipe(process.stdout))"
        );
        let run = daemon.exec("plain", json!({ "argv": ["node", "-e", ask], "timeout": "120s" }));
        assert_eq!(run["stdout"], "the page\n", "{run}");
    }
}

/// What a program of the sandbox tries. Each is answered with what was heard, or the name of an error.
const ATTACKS: &str = r#"
import array, ctypes, errno, json, os, select, socket, struct, sys, threading
port, datagrams = int(sys.argv[1]), int(sys.argv[2])
libc = ctypes.CDLL(None, use_errno=True)
here = ('127.0.0.1', port)
def attempt(deed):
    try: return deed()
    except OSError as error: return errno.errorcode.get(error.errno, str(error))
def heard(stream):
    stream.settimeout(20)
    return stream.recv(64).decode()
def stream(family=socket.AF_INET): return socket.socket(family, socket.SOCK_STREAM)
def direct(family, address):
    one = stream(family); one.connect((address, port)); return heard(one)
def packed(address, port): return struct.pack('=HH4s8x', socket.AF_INET, socket.htons(port), socket.inet_aton(address))
def connect(number, address):
    if libc.connect(number, address, len(address)): raise OSError(ctypes.get_errno(), '')
    return 'connected'
def fast_open():
    one = stream(); one.sendto(b'hello', socket.MSG_FASTOPEN, here); return heard(one)
def fast_open_message():
    one = stream(); one.sendmsg([b'hello'], [], socket.MSG_FASTOPEN, here); return heard(one)
def datagram():
    one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); one.sendto(b'hello', ('127.0.0.1', datagrams)); return heard(one)
def inherited():
    one, (ours, theirs) = stream(), os.pipe()
    if os.fork() == 0:
        os.write(theirs, attempt(lambda: (one.connect(here), heard(one))[1]).encode()); os._exit(0)
    os.close(theirs)
    return os.read(ours, 64).decode()
def in_another_thread():
    one, found = stream(), []
    thread = threading.Thread(target=lambda: found.append(attempt(lambda: (one.connect(here), heard(one))[1])))
    thread.start(); thread.join()
    return found[0]
def by_hand(): 
    one = stream(); connect(one.fileno(), packed(*here)); return heard(one)
def domain(): return stream().getsockopt(socket.SOL_SOCKET, 39)
def bound():
    one = stream(); one.bind(('127.0.0.1', 0)); one.listen(1); return 'listens'
tried = {
    'direct': attempt(lambda: direct(socket.AF_INET, '127.0.0.1')),
    'any': attempt(lambda: direct(socket.AF_INET, '0.0.0.0')),
    'mapped': attempt(lambda: direct(socket.AF_INET6, '::ffff:127.0.0.1')),
    'fast open': attempt(fast_open),
    'fast open by message': attempt(fast_open_message),
    'datagram': attempt(datagram),
    'inherited': attempt(inherited),
    'in another thread': attempt(in_another_thread),
    'by hand': attempt(by_hand),
    'bound': attempt(bound),
    'domain': attempt(domain),
}
print(json.dumps(tried))"#;

const WORD: &str = "a word of the host";

/// Answers datagrams; gives its port.
fn answering() -> u16 {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let mut piece = [0; 64];
        while let Ok((_, from)) = socket.recv_from(&mut piece) {
            socket.send_to(WORD.as_bytes(), from).ok();
        }
    });
    port
}

#[test]
fn no_call_reaches_a_listener_of_the_host_past_the_proxy() {
    let Some(daemon) = ground() else { return };
    let (host, datagrams) = (Server::saying("127.0.0.1:0", WORD), answering());
    let arguments = [host.port.to_string(), datagrams.to_string()];
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    // The host itself has it all.
    let plainly = plain_python(ATTACKS, &arguments);
    for (what, found) in plainly.as_object().unwrap() {
        match what.as_str() {
            "bound" => assert_eq!(found, "listens"),
            "domain" => assert_eq!(found, 2),
            // The host may have it switched off; and who closes without having read resets.
            "fast open" | "fast open by message" if found == "EOPNOTSUPP" || found == "ECONNRESET" => {}
            _ => assert_eq!(found, WORD, "{what}: {plainly}"),
        }
    }
    let before = host.heard().len();
    let refused =
        |found: &Value, what: &str, expected: &str| assert_eq!(found[what], expected, "{what}: {found}");
    let without = python(&daemon, "plain", ATTACKS, &arguments);
    for what in without.as_object().unwrap().keys() {
        refused(&without, what, "EAFNOSUPPORT");
    }
    // Something is granted, though not this.
    allow(&daemon, "plain", &["web.test:1".into()]);
    let found = python(&daemon, "plain", ATTACKS, &arguments);
    for what in ["direct", "any", "mapped", "inherited", "in another thread", "by hand"] {
        refused(&found, what, "ECONNREFUSED");
    }
    for what in ["fast open", "fast open by message"] {
        refused(&found, what, "EISCONN");
    }
    refused(&found, "datagram", "EAFNOSUPPORT");
    refused(&found, "bound", "EPERM");
    assert_eq!(found["domain"], 1, "nobody ever has a socket of the internet: {found}");
    assert_eq!(host.heard().len(), before, "somebody got through");
    // It is told, with the way that there is.
    let run = daemon.exec("plain", json!({ "argv": ["python3", "-c", ATTACKS, arguments[0], arguments[1]] }));
    let violations = run["violations"].to_string();
    assert!(violations.contains("past_proxy") && violations.contains("HTTPS_PROXY"), "{run}");
}

/// What a program does to the sockets it was given, and to the calls that are answered by the agent.
const TRICKS: &str = r#"
import array, ctypes, errno, json, os, select, socket, struct, sys, threading
port, evil = int(sys.argv[1]), int(sys.argv[2])
libc = ctypes.CDLL(None, use_errno=True)
proxy = ('127.0.0.1', 3128)
def attempt(deed):
    try: return deed()
    except OSError as error: return errno.errorcode.get(error.errno, str(error))
def packed(port): return struct.pack('=HH4s8x', socket.AF_INET, socket.htons(port), socket.inet_aton('127.0.0.1'))
def connect(number, address):
    if libc.connect(number, address, len(address)): raise OSError(ctypes.get_errno(), '')
    return 'connected'
def opened(descriptors=()):
    one = socket.create_connection(proxy, 30)
    asked = b'CONNECT web.test:%d HTTP/1.1\r\n\r\n' % port
    beside = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', descriptors))] if descriptors else []
    one.sendmsg([asked], beside)
    answer = b''
    while not answer.endswith(b'\r\n\r\n'): answer += one.recv(1)
    assert b' 200 ' in answer, answer
    return one
def echoed(one, text=b'hello'):
    one.sendall(text)
    return one.recv(64) == text
found = {}
# Descriptors go nowhere, neither before the way is open nor afterwards.
reader, writer = os.pipe()
one = opened([writer] * 10)
for _ in range(5):
    one.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [writer] * 10))])
    assert one.recv(1) == b'x'
os.close(writer)
found['descriptors'] = bool(select.select([reader], [], [], 30)[0]) and os.read(reader, 1) == b''
found['still open'] = echoed(one)
# Foreign descriptors, and what is connected already.
ours, theirs = socket.socketpair()
found['a pair'] = attempt(lambda: connect(ours.fileno(), packed(3128)))
found['a file'] = attempt(lambda: connect(os.open('/dev/null', os.O_RDONLY), packed(3128)))
found['nothing'] = attempt(lambda: connect(4000, packed(3128)))
found['again'] = attempt(lambda: connect(one.fileno(), packed(evil)))
found['undone'] = attempt(lambda: connect(one.fileno(), struct.pack('=H14x', socket.AF_UNSPEC)))
def fresh(address):
    another = socket.socket()
    return connect(another.fileno(), address)
found['no address'] = attempt(lambda: fresh(b''))
found['half an address'] = attempt(lambda: fresh(packed(3128)[:8]))
bare = socket.socket()
def nowhere():
    if libc.connect(bare.fileno(), ctypes.c_void_p(8), 16): raise OSError(ctypes.get_errno(), '')
found['no memory'] = attempt(nowhere)
found['a local name'] = attempt(lambda: fresh(struct.pack('=H14s', socket.AF_UNIX, b'\0name')))
found['after all that'] = attempt(lambda: (bare.connect(proxy), 'connected')[1])
# The address changes while it is looked at: it is the proxy's, or refused.
address = ctypes.create_string_buffer(packed(3128), 16)
good, bad, over = struct.pack('!H', 3128), struct.pack('!H', evil), []
def change():
    while not over:
        ctypes.memmove(ctypes.addressof(address) + 2, bad, 2); ctypes.memmove(ctypes.addressof(address) + 2, good, 2)
thread = threading.Thread(target=change); thread.start()
ends = set()
for _ in range(400):
    racing = socket.socket()
    ends.add(attempt(lambda: 'connected' if libc.connect(racing.fileno(), address, 16) == 0 else errno.errorcode[ctypes.get_errno()]))
    racing.close()
over.append(1); thread.join()
found['races'] = sorted(ends - {'connected', 'ECONNREFUSED'})
# More than there may be wait to be connected.
held = []
def flood():
    for _ in range(2000): held.append(socket.socket())
found['flood'] = attempt(flood)
found['held'] = len(held)
found['during'] = echoed(one)
for socket_held in held: socket_held.close()
found['afterwards'] = echoed(opened())
# Those that are closed without being connected make room.
for _ in range(600): socket.socket().close()
kept = socket.socket()
found['flags'] = (os.get_inheritable(kept.fileno()), not socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK).getblocking())
found['options'] = attempt(lambda: one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1) or one.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1) or 'taken')
print(json.dumps(found))"#;

#[test]
fn what_a_program_does_to_its_sockets_opens_nothing_and_hurts_itself_at_most() {
    let Some(daemon) = ground() else { return };
    let (echo, evil) = (Server::echo(), Server::saying("127.0.0.1:0", WORD));
    allow(&daemon, "plain", &reaching(echo.port));
    let run =
        |sandbox: &str| python(&daemon, sandbox, TRICKS, &[&echo.port.to_string(), &evil.port.to_string()]);
    let found = run("plain");
    let expected = json!({
        "descriptors": true,
        "still open": true,
        "a pair": "EISCONN",
        "a file": "EPERM",
        "nothing": "EPERM",
        "again": "EISCONN",
        "undone": "EAFNOSUPPORT",
        "no address": "EINVAL",
        "half an address": "EINVAL",
        "no memory": "EFAULT",
        "a local name": "EAFNOSUPPORT",
        "after all that": "connected",
        "races": [],
        "flood": "EMFILE",
        "during": true,
        "afterwards": true,
        "flags": [false, true],
        "options": "taken",
    });
    for (what, expected) in expected.as_object().unwrap() {
        assert_eq!(&found[what], expected, "{what}: {found:#}");
    }
    assert!(found["held"].as_u64().unwrap() < 1000, "{found}");
    // Only the word that stands for it there.
    assert_eq!(evil.heard(), [WORD], "somebody got through");
    // The sandbox goes on.
    assert_eq!(daemon.shell("plain", "echo here"), "here\n");
}

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

#[test]
fn no_spelling_of_a_host_passes_the_proxy() {
    let Some(daemon) = ground() else { return };
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

/// Keeps connections through the proxy and says how each ended; then tries to make another.
const HOLD: &str = r#"
import errno, json, socket, sys
port = int(sys.argv[1])
def opened():
    one = socket.create_connection(('127.0.0.1', 3128), 60)
    one.sendall(b'CONNECT web.test:%d HTTP/1.1\r\n\r\n' % port)
    answer = b''
    while not answer.endswith(b'\r\n\r\n'):
        piece = one.recv(1)
        if not piece: raise OSError(errno.ECONNRESET, 'ended')
        answer += piece
    if b' 200 ' not in answer: raise OSError(errno.EACCES, 'denied')
    return one
held = [opened() for _ in range(20)]
unused = socket.socket()
for one in held:
    one.sendall(b'hello')
    assert one.recv(64) == b'hello'
open('ready', 'w')
ends = []
for one in held:
    try: ends.append(one.recv(64).decode())
    except OSError: ends.append('cut')
def attempt(deed):
    try: return deed() and 'done'
    except OSError as error: return errno.errorcode[error.errno]
after = [attempt(opened), attempt(lambda: unused.connect(('127.0.0.1', 3128)) or True)]
open('after.new', 'w').write(json.dumps([ends, after]))
import os; os.rename('after.new', 'after')"#;

#[test]
fn the_death_of_the_daemon_ends_every_connection_through_the_proxy_and_the_next_daemon_goes_on() {
    let Some(mut daemon) = ground() else { return };
    let echo = Server::echo();
    let port = echo.port;
    allow(&daemon, "plain", &reaching(port));
    let marker = format!("the-death-of-the-proxy-{port}");
    let argv = ["python3", "-c", HOLD, &port.to_string(), &marker].map(str::to_owned);
    daemon.exec("plain", json!({ "argv": argv, "wait": "0s" }));
    until("all are connected", || daemon.shell("plain", "ls").contains("ready"));
    daemon.kill();
    until("it has seen the end", || processes_with(&marker).is_empty());
    assert_eq!(echo.heard().len(), 20, "somebody got through");
    daemon.launch();
    let after: Value = serde_json::from_str(&daemon.shell("plain", "cat after")).unwrap();
    assert!(after[0].as_array().unwrap().iter().all(|end| end == "cut" || end == ""), "{after}");
    assert_eq!(after[1], json!(["EAFNOSUPPORT", "EPERM"]), "{after}");
    let script =
        format!("{}\nprint(json.dumps(True))", HOLD.split("held = ").next().unwrap().to_owned() + "opened()");
    assert_eq!(python(&daemon, "plain", &script, &[&port.to_string()]), true);
}

#[test]
fn taking_back_a_grant_ends_connections_through_the_proxy_at_once() {
    let Some(daemon) = ground() else { return };
    let echo = Server::echo();
    let hosts = reaching(echo.port);
    allow(&daemon, "plain", &hosts);
    let argv = ["python3", "-c", HOLD, &echo.port.to_string()].map(str::to_owned);
    daemon.exec("plain", json!({ "argv": argv, "wait": "0s" }));
    until("all are connected", || daemon.shell("plain", "ls").contains("ready"));
    daemon.succeeds(&["revoke", "plain", &hosts[0]]);
    until("it has seen the end", || daemon.shell("plain", "ls").contains("after"));
    let after: Value = serde_json::from_str(&daemon.shell("plain", "cat after")).unwrap();
    assert!(after[0].as_array().unwrap().iter().all(|end| end == "cut" || end == ""), "{after}");
    assert_eq!(after[1], json!(["EACCES", "done"]), "{after}");
    assert_eq!(echo.heard().len(), 20, "somebody got through");
}

#[test]
fn every_way_of_granting_works_for_programs_behind_the_proxy() {
    let (_directory, _server, port) = pages();
    let profile = format!(
        "[profiles.fetching]\ntier = \"process\"\nallow_downgrade = true\nallow = [\"web.test:{port}\", \"127.0.0.1:{port}\"]\n"
    );
    let daemon = TestDaemon::start_configured(&format!("{profile}{NAMES}"), &[]);
    if !make_process(&daemon, "plain") || !has(&daemon, "curl") {
        return;
    }
    let curl = format!("curl -sSf -m 30 http://web.test:{port}/page");
    let [name, address] = reaching(port);
    // For one run, of a sandbox or of its own; by the command line as by HTTP.
    let grants = ["--allow", name.as_str(), "--allow", address.as_str()];
    let once = [&["run", "--tier", "process", "--allow-downgrade"][..], &grants, &["--", "sh", "-c", &curl]]
        .concat();
    assert_eq!(daemon.succeeds(&once), "the page\n");
    let within = [&["exec", "plain"][..], &grants, &["--", "sh", "-c", &curl]].concat();
    assert_eq!(daemon.succeeds(&within), "the page\n");
    let run = daemon.exec("plain", json!({ "command": curl }));
    assert_eq!(run["state"], "failed", "it ended with its run: {run}");
    // For a sandbox when it is made, and by its profile.
    let made =
        json!({ "sandbox": "made", "tier": "process", "allow_downgrade": true, "allow": [name, address] });
    daemon.post("/v1/sandboxes", made);
    assert_eq!(daemon.shell("made", &curl), "the page\n");
    daemon.post("/v1/sandboxes", json!({ "sandbox": "profiled", "profile": "fetching" }));
    assert_eq!(daemon.shell("profiled", &curl), "the page\n");
    // For all of the namespace, those that run already included.
    daemon.succeeds(&["allow", "--all", &name, &address]);
    assert_eq!(daemon.shell("plain", &curl), "the page\n");
    daemon.succeeds(&["revoke", "--all", &name]);
    assert_eq!(daemon.exec("plain", json!({ "command": curl }))["state"], "failed");
    // What there is, is told.
    let told = daemon.get("/v1/status?sandbox=plain");
    assert!(told.to_string().contains("granted names through a proxy (HTTP CONNECT, SOCKS5)"), "{told}");
    daemon.shell("box", "true");
    let told = daemon.get("/v1/status?sandbox=box");
    assert!(told.to_string().contains("granted names are reached transparently"), "{told}");
    let doctor = String::from_utf8(finish(&mut daemon.isle(&["doctor", "--json"])).stdout).unwrap();
    assert!(doctor.contains("granted names through a proxy"), "{doctor}");
}
