//! Calls past the proxy, to listeners of the host.

use serde_json::{Value, json};

use super::{WORD, ground};
use crate::harness::{per_connection, require, until};
use crate::servers::{Server, allow, plain_python, python};

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

per_connection!(no_call_reaches_a_listener_of_the_host_past_the_proxy);

fn no_call_reaches_a_listener_of_the_host_past_the_proxy() {
    let daemon = require!(ground());
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
    // It is told, with the way that there is. A program that ends right after its last attempt may be gone
    // before the refusal is on record, so it stays for a moment longer each time.
    let mut rounds = 0;
    until("a run is told of it", || {
        rounds += 1;
        let script = format!("{ATTACKS}\nimport time\ntime.sleep({rounds} / 20)");
        let run =
            daemon.exec("plain", json!({ "argv": ["python3", "-c", script, arguments[0], arguments[1]] }));
        let violations = run["violations"].to_string();
        violations.contains("past_proxy") && violations.contains("HTTPS_PROXY")
    });
}
